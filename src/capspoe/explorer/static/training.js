// Training: progress, curves and samples, live while the run trains.

import { $, el, get, latest, listen } from "./lib.js";
import { state } from "./state.js";

const TITLES = {
  loss: "loss",
  reconstruction: "code error (dashed: mean code)",
  confidence: "confidence of the gate",
  routing_entropy: "routing entropy",
  weight_norm: "norm of the weights",
  temperature: "gate temperature",
};
const LEAD = "How the network learned: the code of the images, the capsules on it, and a network that recognises them. Loss and code error should level off.";
const HEADINGS = { training: "Training", stopped: "Training has stopped", finished: "Training is finished" };
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [320, 130, 40, 18];
const LEAST_RANGE = 0.05; // of an axis, relative to the largest value; less would fill the chart with noise
const AT_MOST_1 = ["confidence", "routing_entropy"];

const markup = `
  <div class="panel">
    <div class="head"><h2 id="training-title">Training</h2><span class="note" id="training-note"></span></div>
    <div id="progress"></div>
    <div class="charts" id="charts"></div>
    <div class="note" id="training-empty"></div>
  </div>
  <div class="panel stack">
    <div class="head"><h2>Samples</h2><span class="note" id="samples-note"></span></div>
    <img class="samples" id="samples" alt="Samples of every capsule">
  </div>`;

/** The ends of an axis for values that are at most `most`. */
function endsOfAxis(values, most) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const range = Math.max(high - low, LEAST_RANGE * Math.max(Math.abs(low), Math.abs(high)));
  const top = Math.min((low + high + range) / 2, most);
  return [top - range, top];
}

function chart(title, steps, values, dashed, most) {
  const [low, high] = endsOfAxis([...values, ...dashed], most);
  const decimals = Math.max(0, 1 - Math.floor(Math.log10((high - low) / 2))); // two digits of the space between grid lines
  const format = (value) => value.toFixed(decimals + 1);
  const [from, to] = [steps[0], steps.at(-1)];
  const x = (step) => LEFT + ((WIDTH - LEFT) * (step - from)) / (to - from);
  const y = (value) => 6 + (HEIGHT - BOTTOM - 6) * (1 - (value - low) / (high - low));
  const points = (list) => list.map((v, k) => `${x(steps[k]).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  const grid = [low, (low + high) / 2, high].map((value) => `
    <line class="grid" x1="${LEFT}" x2="${WIDTH}" y1="${y(value)}" y2="${y(value)}"/>
    <text x="${LEFT - 6}" y="${y(value) + 3.5}" text-anchor="end">${value.toFixed(decimals)}</text>`);
  const node = el("div", { class: "chart" }, el("h3", {}, title, el("b", {}, format(values.at(-1)))));
  node.insertAdjacentHTML("beforeend", `
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img">${grid.join("")}
      <text x="${LEFT}" y="${HEIGHT - 3}">${from}</text>
      <text x="${WIDTH}" y="${HEIGHT - 3}" text-anchor="end">step ${to}</text>
      <polyline class="dashed" points="${points(dashed)}"/><polyline points="${points(values)}"/></svg>`);
  node.lastChild.ariaLabel = `${title}: from ${format(values[0])} to ${format(values.at(-1))}`;
  return node;
}

/** "capsules-1" as people read it: "Capsules, layer 2". */
function stageName(stage) {
  const [word, layer] = stage.split("-");
  const name = word[0].toUpperCase() + word.slice(1);
  return Number(layer) ? `${name}, layer ${Number(layer) + 1}` : name;
}

function chartsOf({ stage, curves }) {
  const names = Object.keys(TITLES).filter((name) => new Set(curves[name]).size > 1); // not constant
  const dashed = (name) => (name === "reconstruction" && curves.baseline) || [];
  const most = (name) => (AT_MOST_1.includes(name) ? 1 : Infinity);
  return names.map((name) => chart(`${stageName(stage)}: ${TITLES[name]}`, curves.step, curves[name], dashed(name), most(name)));
}

function progress({ stage, step, planned }) {
  const bar = el("div", { class: "bar" }, el("i"));
  bar.style.setProperty("--on", planned ? Math.min(1, step / planned) : 1);
  return el("div", { class: "progress" }, stageName(stage), bar, planned ? `${step} of ${planned} steps` : `${step} steps`);
}

let sampled = null; // the revision that the samples are of
const showSamples = latest(async (revision) => {
  if (revision === sampled || !state.run?.capsules) return;
  $("samples").src = (await get("samples")).image;
  sampled = revision;
});

let last = null; // the last answer of /api/training

function render() {
  if (!last || state.view !== "training") return;
  const { status, stage, stages, images, revision } = last;
  const charts = stages.flatMap(chartsOf);
  $("charts").replaceChildren(...charts);
  $("progress").replaceChildren(...stages.map(progress));
  $("training-empty").textContent = charts.length ? ""
    : status === "training" ? "The first curves appear after a hundred steps."
    : stages.length ? "The training was too short for curves." : "This network came without its training log.";
  $("training-title").textContent = HEADINGS[status];
  $("training-note").textContent = images ? `${images.toLocaleString("en")} images` : "";
  $("samples-note").textContent = stage === "autoencoder" ? "images and their reconstructions"
    : "one column for each capsule";
  showSamples(revision);
}

listen("training", (answer) => {
  last = answer;
  render();
});

export default { name: "training", title: "Training", lead: LEAD, markup, open: render, setUp: render };
