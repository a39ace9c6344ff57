// Routing: how much one capsule listens to each lower capsule, iteration by iteration.

import { drawBars } from "./capsules.js";
import { $, el, emit, latest, listen, percent, picture, post } from "./lib.js";
import { state } from "./state.js";

const SIDE = 420; // pixels of a drawing

const markup = `
  <div class="panel stack">
    <div class="head"><h2 id="routing-title">Routing</h2><span class="note" id="routing-note"></span></div>
    <div class="iterations" id="iterations"></div>
    <p id="routing-moves"></p>
    <p class="note">Each dot is a lower capsule, drawn at the centre of the part of the image that it sees. The scale is
      the same for all images: blue and small is half the uniform weight or less, yellow and large twice or more.</p>
    <h3>Choose a capsule</h3>
    <div class="tiles bars" id="routing-capsules" role="group" aria-label="Capsules"></div>
  </div>`;

let answer = null;
let image = null;
let capsule = 0;
let wanted = null; // the capsule to show when the view opens; the most probable one if it is null

const refresh = latest(async () => {
  if (state.view !== "routing") return;
  if (!state.image) emit("image-needed");
  answer = state.image && (await post("routing", { image: state.image }));
  image = answer && (await picture(answer.input));
  const on = answer?.iterations.at(-1).on ?? [];
  capsule = wanted ?? on.indexOf(Math.max(...on));
  wanted = null;
  draw();
});

function draw() {
  $("routing-title").textContent = answer ? `Routing to capsule ${capsule}` : "Routing";
  $("routing-note").textContent = !answer ? "Show the network an image in Recognise first."
    : answer.iterations.length > 1 ? "" : "This run has one iteration: all weights are equal.";
  const last = answer?.iterations.at(-1).weights[capsule] ?? [];
  const moved = last.reduce((sum, weight) => sum + Math.abs(weight - 1), 0) / Math.max(1, last.length);
  $("routing-moves").textContent = !answer ? ""
    : `Routing moves a weight by ${percent(moved)} of the uniform weight on average. On single objects that was measured to change neither groups nor samples.`;
  drawBars($("routing-capsules"), answer?.iterations.at(-1).on, capsule, choose);
  $("iterations").replaceChildren(...(answer?.iterations ?? []).map(drawIteration));
}

function drawIteration({ number, weights, on }) {
  const [low, high] = [Math.min(...weights[capsule]), Math.max(...weights[capsule])];
  const text = high - low < 0.005 ? "all weights equal" : `weights ${low.toFixed(2)} to ${high.toFixed(2)}`;
  const words = `Iteration ${number}: ${text}, on with ${percent(on[capsule])}`;
  const [height, width] = state.run.image.map((side) => (side * SIDE) / Math.max(...state.run.image));
  const canvas = el("canvas", { class: "picture", role: "img", "aria-label": words, width, height });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.globalAlpha = 0.45;
  context.drawImage(image, 0, 0, width, height);
  context.globalAlpha = 0.9;
  weights[capsule].forEach((weight, i) => {
    const strength = Math.max(0, Math.min(1, (1 + Math.log2(weight)) / 2));
    const [x, y] = answer.places[i];
    context.beginPath();
    context.arc(x * width, y * height, (SIDE / 60) * (0.4 + strength), 0, 7);
    context.fillStyle = `rgb(${110 + 145 * strength} ${140 + 73 * strength} ${255 - 181 * strength})`;
    context.fill();
  });
  return el("figure", {}, canvas, el("figcaption", {}, words));
}

function choose(j) {
  if (!answer) return;
  capsule = j;
  draw();
}

export default {
  name: "routing",
  title: "Routing",
  lead: "How much the capsule listens to each part of the image. Parts that agree with one another gain weight.",
  markup,
  open: refresh,
  setUp() {
    for (const event of ["image", "model"]) listen(event, refresh);
    listen("follow", (j) => (wanted = j));
  },
};
