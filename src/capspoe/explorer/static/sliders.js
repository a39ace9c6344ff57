// Sixteen films: each shows what one number does, and is the slider that moves it.

import { debounce, get, latest, post } from "./api.js";
import { $, complain, el, icon, picture } from "./dom.js";
import { emit, listen, locked, remember, state, writeAddress } from "./state.js";

const EDGE = 3.5; // half a picture beyond the outermost positions of a strip
const rows = new Map(); // number -> its elements
let shown = { capsule: null, revision: null };

const format = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
const clamp = (value) => Math.max(-EDGE, Math.min(EDGE, value));
const values = () => state.on[state.capsule];

function row(n, rank) {
  const input = el("input", {
    type: "range", min: -EDGE, max: EDGE, step: 0.01, value: 0, "data-number": n,
    "aria-label": `Number ${n}, ${rank === 0 ? "the strongest" : `strength ${rank + 1} of ${state.run.numbers}`}`,
  });
  const canvas = el("canvas", { width: state.run.image[1] * 7, height: state.run.image[0], "aria-hidden": "true" });
  const output = el("output", {}, "0.00");
  const effect = el("div", { class: "effect", title: "How much it changes the image" }, el("i"));
  const lock = el("button", { type: "button", class: "lock", "aria-label": `Lock number ${n}`, "aria-pressed": "false", title: "Locked numbers stay when you randomise or reset" }, icon("open"));
  const node = el(
    "div", { class: "slider" },
    el("div", { class: "line" }, el("span", { class: "name" }, `Number ${n}`), effect, output, lock),
    el("div", { class: "film" }, canvas, input),
  );
  let moving = false;
  input.addEventListener("input", () => {
    if (locked().has(n)) return say(n);
    if (!moving) remember();
    moving = true;
    values()[n] = Number(input.value);
    say(n);
    emit("slide");
  });
  input.addEventListener("change", () => {
    moving = false;
    refreshStrips();
    writeAddress();
  });
  input.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -0.1, ArrowDown: -0.1, ArrowRight: 0.1, ArrowUp: 0.1, PageUp: 1, PageDown: -1 }[event.key];
    if (event.key === "l" && !event.ctrlKey && !event.metaKey) toggle(n);
    if (!by || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    input.value = clamp(values()[n] + by);
    input.dispatchEvent(new Event("input"));
    input.dispatchEvent(new Event("change"));
  });
  input.addEventListener("dblclick", () => {
    input.value = 0;
    input.dispatchEvent(new Event("input"));
    input.dispatchEvent(new Event("change"));
  });
  lock.addEventListener("click", () => toggle(n));
  rows.set(n, { node, input, canvas, output, effect, lock });
  return node;
}

function toggle(n) {
  if (locked().has(n)) locked().delete(n);
  else locked().add(n);
  update();
  writeAddress();
}

/** A number as it is, for the eye and the ear. */
function say(n) {
  const { input, output } = rows.get(n);
  const value = values()[n];
  input.value = clamp(value);
  input.setAttribute("aria-valuetext", `${format(value)} standard deviations`);
  output.textContent = format(value);
}

/** Brings the films to the numbers as they are. */
function update() {
  for (const [n, { node, input, lock }] of rows) {
    say(n);
    const fixed = locked().has(n);
    node.classList.toggle("locked", fixed);
    input.setAttribute("aria-disabled", String(fixed)); // not disabled: the key that unlocks it has to arrive
    lock.setAttribute("aria-pressed", String(fixed));
    lock.replaceChildren(icon(fixed ? "lock" : "open"));
  }
}

async function drawStrips(url) {
  const sheet = await picture(url);
  const [height, width] = state.run.image;
  for (const [n, { canvas }] of rows) {
    canvas.getContext("2d").drawImage(sheet, 0, n * height, 7 * width, height, 0, 0, 7 * width, height);
  }
}

const fetchStrips = latest(async () => {
  const capsule = state.capsule;
  const alone = Object.keys(state.on).length === 1 && values().every((v) => v === 0);
  try {
    const found = alone ? await about(capsule) : await post("/api/strips", { on: state.on, capsule });
    if (capsule === state.capsule) await drawStrips(found.strips);
  } catch (error) {
    complain(error);
  }
});
const refreshStrips = debounce(fetchStrips, 180);

const known = { revision: null, capsules: new Map() };
/** What the server says of a capsule, asked once for each revision. */
function about(capsule) {
  if (known.revision !== state.run.revision) Object.assign(known, { revision: state.run.revision, capsules: new Map() });
  const { capsules } = known;
  if (!capsules.has(capsule)) {
    const answer = get(`/api/capsules/${capsule}`);
    answer.catch(() => capsules.delete(capsule));
    capsules.set(capsule, answer);
  }
  return capsules.get(capsule);
}

/** The films of the capsule that is chosen: in the order of their effect, which stays while it is in hand. */
const build = latest(async () => {
  const { capsule } = state;
  const { revision } = state.run;
  if (shown.capsule === capsule && shown.revision === revision) return fetchStrips();
  try {
    const { order, effect, strips } = await about(capsule);
    if (capsule !== state.capsule) return;
    shown = { capsule, revision };
    const focused = document.activeElement?.dataset?.number;
    rows.clear();
    const most = Math.max(...effect, 1e-9);
    const nodes = order.map((n, rank) => row(n, rank));
    for (const [n, { effect: bar }] of rows) bar.style.setProperty("--effect", effect[n] / most);
    $("sliders").replaceChildren(...nodes);
    update();
    await drawStrips(strips);
    $("sliders").dataset.capsule = capsule;
    if (focused) rows.get(Number(focused))?.input.focus();
    fetchStrips();
  } catch (error) {
    complain(error);
  }
});

export function setUpSliders() {
  $("sliders").replaceChildren(...Array.from({ length: state.run.numbers }, (_, n) => row(n, n))); // until the first answer
  listen("numbers", () => {
    update(); // at once, be the answer slow
    build();
  });
}
