// Routing by agreement, iteration by iteration: lower capsules over the image, edges to the upper ones.

import { $, calm, cellOf, el, icon, percent } from "./dom.js";
import { listen, state } from "./state.js";

const TRAVEL = 700; // milliseconds from one iteration to the next
const REST = 900;
let data = null;
let at = 0; // iteration, with a fraction while it moves
let playing = false;
let focus = 0;
let frame = 0;
let timer = 0;

export function showRouting(routing, image = null, winner = 0, faces = []) {
  cancelAnimationFrame(frame);
  data = routing && { ...routing, image, winner, faces };
  focus = winner;
  at = 0;
  playing = false;
  const steps = data ? data.iterations.length : 0;
  $("routing-steps").replaceChildren(
    ...Array.from({ length: steps }, (_, k) => el("button", { type: "button", class: "small", "data-step": k, onclick: () => jump(k) }, `Iteration ${k + 1}`)),
  );
  $("routing-note").textContent = !data ? "" : steps > 1 ? `${steps} iterations` : "this run does not route: all weights are equal";
  $("routing-play").disabled = steps < 2;
  if (data && steps > 1 && !calm()) play();
  else if (data) at = steps - 1;
  draw();
}

function jump(k) {
  playing = false;
  move(at, k, calm() ? 1 : TRAVEL);
}

function play() {
  playing = true;
  clearTimeout(timer); // of a play that was paused
  const last = data.iterations.length - 1;
  const from = data;
  const next = (k) => {
    if (!playing || data !== from) return;
    move(k, k + 1, TRAVEL, () => {
      if (k + 1 < last) timer = setTimeout(() => next(k + 1), REST);
      else {
        playing = false;
        draw();
      }
    });
  };
  at = 0;
  draw();
  timer = setTimeout(() => next(0), REST / 2);
}

function move(from, to, milliseconds, then = () => {}) {
  cancelAnimationFrame(frame);
  const start = performance.now();
  const tick = (now) => {
    const t = Math.min(1, Math.max(0, (now - start) / milliseconds));
    at = from + (to - from) * (t * t * (3 - 2 * t));
    draw();
    if (t < 1) frame = requestAnimationFrame(tick);
    else then();
  };
  frame = requestAnimationFrame(tick);
}

/** A quantity between two iterations. */
function between(pick) {
  const k = Math.min(Math.floor(at), data.iterations.length - 1);
  const next = Math.min(k + 1, data.iterations.length - 1);
  const t = at - k;
  const a = pick(data.iterations[k]);
  const b = pick(data.iterations[next]);
  return a.map((v, n) => v + (b[n] - v) * t);
}

function layout(width, height) {
  const J = data.iterations[0].on.length;
  const tall = height / width > 0.9;
  const pad = 14;
  const columns = Math.max(1, Math.ceil(J / 10));
  const perColumn = Math.ceil(J / columns);
  const room = height - 2 * pad;
  const slot = room / perColumn;
  const face = Math.max(10, Math.min(slot - 5, 44));
  const columnWidth = face + (tall ? 34 : 48);
  const right = columns * columnWidth;
  const gap = tall ? 26 : Math.max(50, width * 0.13);
  const side = Math.min(room, width - 2 * pad - right - gap);
  const image = { x: pad, y: (height - side) / 2, side };
  const upper = Array.from({ length: J }, (_, j) => {
    const column = Math.floor(j / perColumn);
    return { x: width - pad - right + column * columnWidth, y: pad + (j % perColumn) * slot + (slot - face) / 2, face };
  });
  return { image, upper };
}

/** Where the lower capsules are drawn: those that share a place stand in a small square around it. */
function places({ x, y, side }) {
  const I = data.iterations[0].weights[0].length;
  if (!data.lower.length) {
    const columns = Math.ceil(Math.sqrt(I));
    return Array.from({ length: I }, (_, i) => [x + side * (0.1 + (0.8 * ((i % columns) + 0.5)) / columns), y + side * (0.1 + (0.8 * (Math.floor(i / columns) + 0.5)) / columns)]);
  }
  const shared = data.lower.filter((p) => p[0] === data.lower[0][0] && p[1] === data.lower[0][1]).length;
  const row = Math.ceil(Math.sqrt(shared));
  const distinct = [...new Set(data.lower.map((p) => p[0]))].sort((a, b) => a - b);
  const pitch = distinct.length > 1 ? distinct[1] - distinct[0] : 0.1;
  return data.lower.map(([px, py], i) => {
    const k = i % shared;
    const dx = (((k % row) + 0.5) / row - 0.5) * pitch * 0.8;
    const dy = ((Math.floor(k / row) + 0.5) / row - 0.5) * pitch * 0.8;
    return [x + side * (px + dx), y + side * (py + dy)];
  });
}

let geometry = null;

function draw() {
  const canvas = $("routing");
  const box = canvas.parentElement.getBoundingClientRect();
  if (!box.width) return;
  const ratio = Math.min(2, devicePixelRatio || 1);
  const [width, height] = [Math.round(box.width), Math.round(box.height)];
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
    canvas.width = width * ratio;
    canvas.height = height * ratio;
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  if (!data) {
    g.fillStyle = "#a4aab6";
    g.font = "15px system-ui, sans-serif";
    g.textAlign = "center";
    g.fillText("Show it an image to see its parts find their whole", width / 2, height / 2);
    $("routing-text").textContent = "";
    geometry = null;
    return;
  }
  const { image, upper } = layout(width, height);
  geometry = upper;
  const dots = places(image);
  const weights = between((one) => one.weights[focus]);
  const on = between((one) => one.on);
  const all = data.iterations.flatMap((one) => one.weights[focus]);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const strength = (w) => (most - least < 1e-6 ? 0.5 : (w - least) / (most - least));

  g.imageSmoothingEnabled = false;
  g.globalAlpha = 0.55;
  g.drawImage(data.image, image.x, image.y, image.side, image.side);
  g.globalAlpha = 1;

  // Everyone's strongest edges, faint, then those of the capsule in focus.
  upper.forEach((u, j) => {
    if (j === focus) return;
    const others = between((one) => one.weights[j]);
    const top = others.map((w, i) => [w, i]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    for (const [, i] of top) edge(g, dots[i], u, `rgb(150 160 185 / ${0.05 + 0.25 * on[j]})`, 0.8);
  });
  const order = weights.map((w, i) => [strength(w), i]).sort((a, b) => a[0] - b[0]);
  for (const [s, i] of order) edge(g, dots[i], upper[focus], `rgb(${Math.round(110 + 145 * s)} ${Math.round(140 + 73 * s)} ${Math.round(255 - 181 * s)} / ${0.04 + 0.62 * s ** 2.2})`, 0.5 + 1.9 * s ** 2);
  const largest = Math.max(2.2, image.side / 90);
  for (const [s, i] of order) {
    g.beginPath();
    g.arc(...dots[i], largest * (0.45 + 0.9 * s), 0, 7);
    g.fillStyle = `rgb(${Math.round(110 + 145 * s)} ${Math.round(140 + 73 * s)} ${Math.round(255 - 181 * s)} / ${0.45 + 0.55 * s})`;
    g.fill();
  }
  upper.forEach((u, j) => {
    g.fillStyle = "#0b0d10";
    g.fillRect(u.x, u.y, u.face, u.face);
    g.globalAlpha = 0.35 + 0.65 * Math.max(on[j], j === focus ? 0.8 : 0);
    const cell = cellOf(state.run, 0);
    if (data.faces[j]) g.drawImage(data.faces[j], cell.x, cell.y, cell.width, cell.height, u.x, u.y, u.face, u.face);
    g.globalAlpha = 1;
    g.strokeStyle = j === focus ? "#ffd54a" : "#3a404d";
    g.lineWidth = j === focus ? 2 : 1;
    g.strokeRect(u.x, u.y, u.face, u.face);
    g.fillStyle = "#2a2f39";
    g.fillRect(u.x + u.face + 5, u.y + u.face / 2 + 3, 24, 4);
    g.fillStyle = "#ffd54a";
    g.fillRect(u.x + u.face + 5, u.y + u.face / 2 + 3, 24 * on[j], 4);
    g.fillStyle = j === focus ? "#fff" : "#a4aab6";
    g.font = "11px system-ui, sans-serif";
    g.textAlign = "left";
    g.fillText(String(j), u.x + u.face + 5, u.y + u.face / 2 - 1);
  });
  caption(weights, on);
}

function edge(g, [x, y], u, colour, width) {
  const [tx, ty] = [u.x - 3, u.y + u.face / 2];
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.beginPath();
  g.moveTo(x, y);
  g.bezierCurveTo(x + (tx - x) * 0.55, y, x + (tx - x) * 0.5, ty, tx, ty);
  g.stroke();
}

let last = "";
function caption(weights, on) {
  const step = Math.round(at);
  for (const node of $("routing-steps").children) node.setAttribute("aria-pressed", String(Number(node.dataset.step) === step));
  const key = `${step}/${focus}/${playing}`;
  if (key === last && at !== step) return;
  last = key;
  $("routing-play").replaceChildren(icon(playing ? "pause" : "play"));
  const [least, most] = [Math.min(...weights), Math.max(...weights)];
  const said = most - least < 0.005 ? "hears all lower capsules alike" : `hears the lower capsules that agree with it up to ${most.toFixed(2)} times as much as the average, others down to ${least.toFixed(2)}`;
  $("routing-text").textContent = `Capsule ${focus} ${said}. Its probability to be on is ${percent(on[focus])}. Click another capsule to follow it.`;
}

export function setUpRouting() {
  $("routing-play").addEventListener("click", () => {
    if (playing) {
      playing = false;
      draw();
    } else if (data) play();
  });
  $("routing").addEventListener("click", (event) => {
    if (!data || !geometry) return;
    const box = $("routing").getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const hit = geometry.findIndex((u) => x >= u.x - 4 && x <= u.x + u.face + 32 && y >= u.y - 3 && y <= u.y + u.face + 3);
    if (hit >= 0) setFocus(hit);
  });
  listen("focus-capsule", setFocus);
  new ResizeObserver(() => draw()).observe($("routing").parentElement);
  showRouting(null);
}

function setFocus(j) {
  if (!data) return;
  focus = j;
  draw();
}
