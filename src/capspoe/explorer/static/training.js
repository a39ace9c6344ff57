// A run that is still training, or how a finished one went: progress, curves, samples.

import { get } from "./api.js";
import { $, el } from "./dom.js";
import { emit, listen, state } from "./state.js";

const TITLES = {
  loss: "Autoencoder: loss",
  reconstruction: "Capsule error",
  confidence: "Confidence of the gate",
  routing_entropy: "Entropy of the routing",
  weight_norm: "Norm of the weights",
  temperature: "Temperature of the gate",
};
const SVG = "http://www.w3.org/2000/svg";
const PATIENCE = 20000; // milliseconds after which a server counts as gone, be it only suspended
let revision = "";

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text != null) node.textContent = text;
  return node;
}

const short = (value) => (value == null ? "unknown" : value === 0 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(2) : value.toPrecision(3));

function chart(title, steps, values, second = null) {
  const [W, H, left, bottom] = [320, 130, 40, 18];
  const numbers = [...values, ...(second?.values ?? [])].filter((v) => v != null);
  let [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  const [from, to] = [steps[0], Math.max(steps.at(-1), steps[0] + 1)];
  const x = (s) => left + ((W - left) * (s - from)) / (to - from);
  const y = (v) => 6 + (H - bottom - 6) * (1 - (v - low) / (high - low));
  const path = (list) => list.map((v, k) => (v == null ? "" : `${k && list[k - 1] != null ? "L" : "M"}${x(steps[k]).toFixed(1)} ${y(v).toFixed(1)}`)).join("");
  const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: from ${short(values[0])} to ${short(values.at(-1))}` });
  for (const value of [low, (low + high) / 2, high]) {
    drawing.append(svg("line", { class: "grid", x1: left, x2: W, y1: y(value), y2: y(value) }));
    drawing.append(svg("text", { x: left - 6, y: y(value) + 3.5, "text-anchor": "end" }, short(value)));
  }
  drawing.append(svg("text", { x: left, y: H - 3 }, from), svg("text", { x: W, y: H - 3, "text-anchor": "end" }, `step ${to}`));
  if (second) drawing.append(svg("path", { class: "curve second", d: path(second.values) }));
  drawing.append(svg("path", { class: "curve", d: path(values) }));
  return el("div", { class: "chart" }, el("h3", {}, el("span", {}, title), el("b", {}, short(values.at(-1)))), drawing);
}

function progress(stage) {
  const bar = el("div", {}, el("i"));
  const done = stage.of ? Math.min(1, stage.step / stage.of) : 1;
  bar.style.setProperty("--done", done);
  const name = stage.stage === "autoencoder" ? "Autoencoder" : stage.stage === "capsules-0" ? "Capsules" : `Capsules ${Number(stage.stage.split("-")[1]) + 1}`;
  return el("div", { class: "progress" }, el("span", {}, name), bar, el("span", {}, stage.of ? `${stage.step} of ${stage.of}` : `step ${stage.step}`));
}

function render(found) {
  const charts = [];
  for (const { stage, steps, curves } of found.stages) {
    const suffix = /^capsules-[1-9]/.test(stage) ? `, layer ${Number(stage.split("-")[1]) + 1}` : "";
    for (const [name, title] of Object.entries(TITLES)) {
      if (!curves[name] || steps.length < 2) continue;
      if (name === "confidence" && state.run.gate === "none") continue;
      const second = name === "reconstruction" && curves.baseline ? { values: curves.baseline } : null;
      charts.push(chart(title + suffix + (second ? " (dashed: mean)" : ""), steps, curves[name], second));
    }
  }
  $("charts").replaceChildren(...charts);
  $("training-empty").hidden = charts.length > 0;
  $("progress").replaceChildren(...found.stages.map(progress));
  const rate = found.stages.at(-1)?.curves.images_per_second?.at(-1);
  $("training-title").textContent = { training: "Training", stopped: "Training stopped before its end", finished: "Training is finished" }[found.status];
  $("training-note").textContent = [found.images ? `${found.images.toLocaleString("en")} images` : "", rate && found.status === "training" ? `${Math.round(rate).toLocaleString("en")} images a second` : ""].filter(Boolean).join(" · ");
  const use = found.stages.at(-1)?.use ?? [];
  const most = Math.max(...use, 1e-9);
  $("use").replaceChildren(...use.map((share, j) => {
    const bar = el("i");
    bar.style.setProperty("--share", share / most);
    return el("span", { title: `Capsule ${j}: ${(100 * share).toFixed(1)} %` }, bar, String(j));
  }));
}

async function refresh() {
  const found = await get("/api/training", "", PATIENCE);
  if (found.revision !== state.run?.revision) emit("revision");
  const chip = $("status");
  chip.textContent = { training: "training", stopped: "unfinished", finished: "trained" }[found.status];
  chip.classList.toggle("live", found.status === "training");
  if (state.view === "training" && state.run) {
    render(found);
    if (found.revision !== revision && state.run.capsules) {
      revision = found.revision;
      $("samples").src = `/api/samples.png?revision=${revision}`;
    }
  }
  return found.status;
}

/** Looks every two seconds while the run trains or is being studied, and seldom once it is done. */
export function setUpTraining() {
  let timer = 0;
  const again = async () => {
    clearTimeout(timer);
    let status = "training";
    try {
      status = await refresh();
    } catch {
      // the banner says that the server does not answer; look again later
    }
    const eager = status === "training" || !state.run?.revision || state.run.revision.endsWith(".0");
    timer = setTimeout(again, document.hidden ? 15000 : eager ? 2000 : 10000);
  };
  again();
  listen("view", (view) => view === "training" && again());
}
