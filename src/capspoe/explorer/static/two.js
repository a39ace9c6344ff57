// Two at once: draw two things over each other and watch them come apart.

import { mostly } from "./capsules.js";
import { $, drawCell, el, get, latest, listen, percent, picture, post, show, undoHistory } from "./lib.js";
import { onDrag, setUpPad } from "./pad.js";
import { state, writeAddress } from "./state.js";

const [FRAME, SLIDE] = [45, 700]; // milliseconds of a step of the search, and of the way apart

const markup = `
  <div class="panel stack">
    <div class="head"><h2>Draw two over each other</h2><button class="small" id="two-clear">Clear</button></div>
    <div class="pad-box">
      <canvas class="pad" id="two-pad" width="280" height="280" role="img" aria-label="Drawing pad for two"></canvas>
      <div class="hint" id="two-hint">Draw here</div>
    </div>
    <button class="main" id="example"></button>
  </div>
  <div class="panel stack apart-panel">
    <div class="head"><h2 id="two-title" aria-live="polite"></h2><button class="small" id="again">Show it again</button></div>
    <canvas class="apart" id="apart" role="img" aria-label="The two objects; drag either of them"></canvas>
    <div class="pair"><figcaption id="object-0"></figcaption><figcaption id="object-1"></figcaption></div>
    <input type="range" id="apart-by" min="0" max="1" step="0.01" aria-label="How far apart">
  </div>
  <figure class="panel"><canvas class="picture" id="owner" role="img" aria-label="Pixels by object"></canvas>
    <figcaption>which pixel belongs to which</figcaption></figure>`;

let pad;
let subject = null; // the image to explain, as the server takes it
let found = null; // the answer, with its frames as a picture
let places = [[0, 0], [0, 0]]; // how far each object was moved, in pixels
let turn = 0; // of the animation; an older one stops
let cleared = false; // whoever cleared the pad wants it blank, not another example

const strokes = undoHistory(() => ({ pixels: pad.read(), subject }), (before) => {
  pad.write(before.pixels);
  take(before.subject);
}, 30);

function take(image) {
  [subject, found] = [image, null];
  $("two-hint").hidden = image !== null;
  moveApart(0);
  draw();
  if (image) {
    look();
  } else {
    state.two = null;
    writeAddress();
  }
}

const look = latest(async () => {
  const image = subject;
  const answer = await post("explain", { image });
  const [frames, owner, input] = await Promise.all([answer.frames, answer.owner, answer.input].map(picture));
  if (image !== subject) return;
  if (image === state.two) pad.put(input); // of a link
  found = { ...answer, frames };
  state.two = { data: answer.input, fit: false };
  writeAddress();
  show($("owner"), owner);
  animate();
});

/** The two objects where they were moved to, after a step of the search. */
function draw(step = found?.count - 1) {
  const [height, width] = state.run.image;
  Object.assign($("apart"), { width: 2 * width, height });
  const context = $("apart").getContext("2d");
  context.globalCompositeOperation = "lighten";
  const names = found?.capsules.map((j) => mostly(j) || `capsule ${j}`);
  $("two-title").textContent = found ? `One is ${names.join(", the other ")}` : subject ? "Looking …" : "Waiting for two objects";
  if (!found) $("owner").width = 0;
  $("again").disabled = !found;
  $("apart-by").disabled = !found;
  places.forEach(([x, y], m) => {
    $(`object-${m}`).textContent = found ? `capsule ${found.capsules[m]}, ${percent(found.probability[m])}` : "";
    if (found) drawCell(context, found.frames, state.run.image, m, step, width / 2 + x, y);
  });
}

function moveApart(by) {
  const half = (by * state.run.image[1]) / 2;
  places = [[-half, 0], [half, 0]];
  $("apart-by").value = by;
}

/** Shows the steps of the search, and then moves the objects apart. */
function animate() {
  const [mine, start] = [++turn, performance.now()];
  const fast = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1e9 : 1;
  const tick = (now) => {
    if (mine !== turn || !found) return;
    const time = fast * Math.max(0, now - start);
    const by = Math.min(1, Math.max(0, (time - found.count * FRAME) / SLIDE));
    moveApart(by * (2 - by));
    draw(Math.min(Math.floor(time / FRAME), found.count - 1));
    if (by < 1) requestAnimationFrame(tick);
  };
  tick(start);
}

/** Two images with different labels, if there are labels: of the data set, or samples where it is not on this machine. */
async function pickTwo() {
  const random = (below) => Math.floor(Math.random() * Math.max(1, below));
  const { images: count, capsules } = state.run;
  if (count) {
    const { images } = await get(`images?start=${random(count - 12)}&count=12`, "two");
    return [images[0], images.find(({ label }) => label !== images[0].label) ?? images.at(-1)].map(({ image }) => image);
  }
  const first = random(capsules);
  const others = Array.from({ length: capsules }, (_, j) => j).filter((j) => j !== first && mostly(j) !== (mostly(first) || null));
  const drawn = [];
  for (const j of [first, others[random(others.length)] ?? first]) {
    const { pose } = await get(`random?capsule=${j}&seed=${random(2 ** 31)}`);
    drawn.push((await post("decode", { poses: { [j]: pose } }, "two")).image);
  }
  return drawn;
}

const example = latest(async () => {
  const two = await pickTwo();
  const [height, width] = state.run.image;
  const canvas = el("canvas", { width, height });
  const context = canvas.getContext("2d");
  for (const image of two) {
    context.drawImage(await picture(image), 0, 0);
    context.globalCompositeOperation = state.run.dark ? "darken" : "lighten";
  }
  Object.assign(context, { globalCompositeOperation: "difference", fillStyle: "#fff" });
  if (state.run.dark) context.fillRect(0, 0, width, height); // a negative: the pad is black
  strokes.remember();
  pad.clear();
  pad.put(canvas);
  take({ data: canvas.toDataURL("image/png"), fit: false });
});

let held = null; // the object that is dragged, and where it was taken

/** Takes hold of the nearer object. */
function hold([x, y]) {
  if (!found) return false;
  turn++; // ends the animation
  const [height, width] = state.run.image;
  const offsets = places.map((place) => [x - place[0], y - place[1]]);
  const [first, second] = offsets.map(([dx, dy]) => Math.hypot(dx - width, dy - height / 2));
  const m = Number(second < first);
  held = { m, offset: offsets[m] };
}

function drag(to) {
  places[held.m] = to.at(-1).map((at, axis) => at - held.offset[axis]);
  draw();
}

function open() {
  if (state.view !== "two" || subject) return;
  if (state.two) take(state.two);
  else if (cleared) return;
  else if (state.run.images || state.run.no_images) example(); // otherwise they are being opened
}

export default {
  name: "two",
  title: "Two at once",
  lead: "Two capsules explain two things that overlap, though none of them ever saw two at once. Drag one of them away.",
  markup,
  history: strokes,
  open,
  clicks: {
    example,
    again: animate,
    "two-clear"() {
      strokes.remember();
      pad.clear();
      cleared = true;
      take(null);
    },
  },
  setUp() {
    const after = () => take({ data: pad.url(), fit: subject?.fit ?? true }); // images of the data set have their size already
    pad = setUpPad($("two-pad"), strokes.remember, () => ($("two-hint").hidden = true), after);
    pad.clear();
    take(null);
    onDrag($("apart"), hold, drag);
    $("apart-by").addEventListener("input", () => {
      turn++;
      moveApart(Number($("apart-by").value));
      draw();
    });
    listen("model", () => {
      $("example").textContent = state.run.images ? `Two ${state.run.kind}` : "Two samples";
      if (subject) look();
      else open();
    });
  },
};
