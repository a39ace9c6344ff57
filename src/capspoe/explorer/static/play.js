// Play: choose a capsule and move its pose. Each dimension is a strip of images that is also its slider.

import { caption, drawTiles, nameOf, reveal, shareOf, showThumbnails, useOf } from "./capsules.js";
import { $, debounce, el, emit, get, latest, listen, percent, picture, post, saveCanvas, show } from "./lib.js";
import { pose, poseHistory, posesChanged, posesOn, state, writeAddress, zeros } from "./state.js";

const EDGE = 3.5; // half an image beyond the outermost positions of a strip
const COLUMNS = 7;

const markup = `
  <div class="panel gallery-panel">
    <div class="head"><h2>Capsules</h2><span class="note" id="gallery-note"></span></div>
    <div class="tiles" id="gallery" role="group" aria-label="Capsules; the arrow keys move between them"></div>
  </div>
  <div class="panel stage">
    <div class="head"><h2 id="stage-title">Capsule</h2><span class="note" id="stage-note"></span></div>
    <canvas class="picture" id="picture" role="img" aria-label="The decoded image"></canvas>
    <div class="tools">
      <button class="main" id="randomise" aria-keyshortcuts="r">Randomise</button>
      <button id="undo" aria-keyshortcuts="Control+z">Undo</button>
      <button id="redo" aria-keyshortcuts="Control+Shift+z">Redo</button>
      <button id="reset" aria-keyshortcuts="0">Reset</button>
      <button id="save" aria-keyshortcuts="s">Save</button>
    </div>
    <div class="head matches"><h3 id="matches-title"></h3><button class="small" id="more-matches">More</button></div>
    <div class="thumbs matches" id="matches"></div>
  </div>
  <div class="panel">
    <div class="head"><h2>Pose</h2>
      <span class="note">strongest first; 0 is the mean of the capsule’s images, 1 a standard deviation</span></div>
    <div class="sliders" id="sliders"></div>
    <button class="small" id="all-sliders"></button>
  </div>`;

// The decoded image

const decode = latest(async () => {
  const { image } = await post("decode", { poses: posesOn() });
  show($("picture"), await picture(image));
});

const randomise = latest(async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const drawn = await Promise.all(state.on.map((j) => get(`random?capsule=${j}&seed=${seed}`)));
  poseHistory.remember();
  for (const one of drawn) state.poses[one.capsule] = one.pose;
  posesChanged();
});

function reset() {
  poseHistory.remember();
  state.poses[state.capsule] = zeros();
  posesChanged();
}

const save = () => saveCanvas($("picture"), `capsule-${state.capsule}.png`);

function describe() {
  const j = state.capsule;
  const others = state.on.filter((k) => k !== j);
  $("stage-title").textContent = nameOf(j) ? `Mostly ${nameOf(j).label}` : `Capsule ${j}`;
  const parts = nameOf(j) ? [`capsule ${j}`, shareOf(j)] : [];
  if (others.length) parts.push(`with ${others.length > 4 ? `${others.length} others` : others.join(", ")}`);
  else if (state.run.gated && useOf(j) != null) parts.push(`use ${percent(useOf(j))}`);
  $("stage-note").textContent = parts.join(" · ");
  $("picture").ariaLabel = `Capsule ${j} decoded, ${parts.join(", ")}`;
}

let matches = 10; // images shown
const showMatches = debounce(() => {
  const none = state.run.revision?.endsWith(".0") ? `Looking through the ${state.run.kind} …` : "None of those tried.";
  const open = (image) => {
    emit("go", "recognise");
    emit("recognise", image);
  };
  const query = `capsule=${state.capsule}&count=${matches}`;
  showThumbnails($("matches"), query, open, none).then((more) => ($("more-matches").hidden = !more || matches > 10));
}, 120);

// The gallery

function drawGallery() {
  drawTiles($("gallery"), (node, j) => node.append(caption(j)), choose);
  markGallery();
}

function markGallery() {
  [...$("gallery").children].forEach((node, j) => {
    node.ariaPressed = String(j === state.capsule);
    node.tabIndex = j === state.capsule ? 0 : -1;
    node.classList.toggle("on", !state.run.gated && state.on.includes(j));
  });
  $("gallery-note").textContent = state.run.gated ? "one is on at a time"
    : `${state.on.length} of ${state.run.capsules} on; click again to switch off`;
  // With many capsules the gallery scrolls, and on a phone it is one row that scrolls.
  reveal($("gallery"), $("gallery").children[state.capsule]);
}

/** Switches a capsule on. Without the gate the others stay on, and choosing it again switches it off. */
function choose(j) {
  const again = j === state.capsule;
  if (again && (state.run.gated || state.on.length === 1)) return;
  poseHistory.remember();
  const others = state.run.gated ? [] : state.on.filter((k) => k !== j);
  state.on = again ? others : [...others, j];
  state.capsule = again ? others[0] : j;
  posesChanged();
}

const step = (by) => choose((state.capsule + by + state.run.capsules) % state.run.capsules);

function onGalleryKey(event) {
  const columns = getComputedStyle($("gallery")).gridTemplateColumns.split(" ").length;
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const target = state.capsule + by;
  if (target < 0 || target >= state.run.capsules) return;
  choose(target);
  $("gallery").children[target].focus();
}

// The sliders

const FEW = 6; // sliders shown at first
let rows = []; // by dimension
let all = false; // whether all sliders are shown

function makeRow(n) {
  const label = `Dimension ${n}`;
  const input = el("input", { type: "range", min: -EDGE, max: EDGE, step: 0.1, "aria-label": label });
  const [height, width] = state.run.image;
  const canvas = el("canvas", { "aria-hidden": "true", width: COLUMNS * width, height });
  const output = el("output");
  const effect = el("div", { class: "bar", title: "How much it changes the image" }, el("i"));
  const name = el("span", {}, label);
  const line = el("div", { class: "line" }, name, effect, output);
  input.addEventListener("input", () => move(n, Number(input.value)));
  const node = el("div", { class: "slider" }, line, el("div", { class: "film" }, canvas, input));
  return { node, name, input, canvas, output, effect };
}

function move(n, value) {
  poseHistory.remember(`${state.capsule}/${n}`);
  pose()[n] = value;
  showValue(n);
  decode();
  showStripsSoon();
  writeAddress();
}

function showValue(n) {
  const text = pose()[n].toFixed(2).replace("-", "−");
  rows[n].input.value = pose()[n];
  rows[n].input.ariaValueText = `${text} standard deviations`;
  rows[n].output.textContent = text;
}

const showStrips = latest(async () => {
  const { capsule } = state;
  const { strips, effect } = await post("strips", { poses: posesOn(), capsule });
  const sheet = await picture(strips);
  if (capsule !== state.capsule) return;
  const [height, width] = state.run.image;
  rows.forEach((row, n) => {
    show(row.canvas, sheet, [height, COLUMNS * width], n);
    row.effect.style.setProperty("--on", effect[n] / Math.max(...effect, 1e-9));
  });
});

/** Puts the strongest dimensions first, with the names of what they change. */
const showNames = latest(async () => {
  const { capsule } = state;
  const { order, names } = await get(`sliders?capsule=${capsule}`, "sliders");
  if (capsule !== state.capsule) return;
  const focused = document.activeElement;
  order.forEach((n, k) => {
    rows[n].name.textContent = rows[n].input.ariaLabel = names[k] ?? `Dimension ${n}`;
    rows[n].node.hidden = k >= FEW && !all;
  });
  $("sliders").replaceChildren(...order.map((n) => rows[n].node));
  $("sliders").dataset.capsule = capsule;
  $("all-sliders").hidden = order.length <= FEW;
  $("all-sliders").textContent = all ? `Show the ${FEW} strongest` : `Show all ${order.length} dimensions`;
  focused.focus({ preventScroll: true });
});
const showStripsSoon = debounce(showStrips, 180);

function onPoses() {
  rows.forEach((_, n) => showValue(n));
  markGallery();
  describe();
  decode();
  showStrips();
  showNames();
  showMatches();
}

export default {
  name: "play",
  title: "Play",
  lead: "Each tile is a capsule: one kind of thing that the network found by itself. Pick one and move its pose.",
  markup,
  history: poseHistory,
  clicks: {
    randomise, reset, save, undo: poseHistory.undo, redo: poseHistory.redo,
    "all-sliders": () => {
      all = !all;
      showNames();
    },
    "more-matches": () => {
      matches = 500;
      showMatches();
    },
  },
  keys: { r: randomise, 0: reset, s: save, "[": () => step(-1), "]": () => step(1) },
  setUp() {
    rows = zeros().map((_, n) => makeRow(n));
    $("sliders").replaceChildren(...rows.map(({ node }) => node));
    drawGallery();
    $("gallery").addEventListener("keydown", onGalleryKey);
    listen("poses", onPoses);
    listen("model", () => {
      $("matches-title").textContent = `Its ${state.run.kind}`;
      drawGallery();
      onPoses();
    });
  },
};
