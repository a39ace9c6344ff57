// The capsules as tiles: what each paints. Twice on the page: to choose one, and as lights that say which is on.

import { get } from "./api.js";
import { $, calm, cellOf, el, percent, picture, show } from "./dom.js";
import { changed, choose, emit, gated, listen, remember, state, switchOff } from "./state.js";

let capsules = [];
let samples = 0; // of each capsule, after its mean
export const faces = []; // an image with the mean and the samples of each capsule

export const nameOf = (j) => capsules[j]?.name ?? null;
export const useOf = (j) => capsules[j]?.use ?? null;

function tile(j, lights) {
  const { name } = capsules[j];
  const canvas = el("canvas", { "aria-hidden": "true" });
  show(canvas, faces[j], cellOf(state.run, 0));
  const label = name ? `mostly ${name.label}` : "";
  const node = el(
    "button",
    { type: "button", class: "tile", "data-capsule": j, "aria-label": `Capsule ${j}${label && ", " + label}`,
      title: name ? `Capsule ${j}: ${percent(name.share)} of its images are labelled ${name.label}` : `Capsule ${j}` },
    canvas,
    lights ? el("div", { class: "bar" }, el("i")) : null,
    el("div", { class: "cap" }, String(j), !lights && name ? el("b", {}, name.label) : null),
  );
  if (!lights) animate(node, canvas, j);
  return node;
}

/** While the pointer rests on a tile it goes through a few samples. */
function animate(node, canvas, j) {
  let timer = 0;
  let at = 0;
  node.addEventListener("pointerenter", (event) => {
    if (calm() || event.pointerType !== "mouse") return;
    timer = setInterval(() => {
      if (node.isConnected) show(canvas, faces[j], cellOf(state.run, 1 + (at++ % samples)));
      else clearInterval(timer); // a newer gallery took its place under the pointer
    }, 320);
  });
  node.addEventListener("pointerleave", () => {
    clearInterval(timer);
    show(canvas, faces[j], cellOf(state.run, 0));
  });
}

function mark() {
  for (const node of $("gallery").children) {
    const j = Number(node.dataset.capsule);
    node.setAttribute("aria-pressed", String(j === state.capsule));
    node.tabIndex = j === state.capsule ? 0 : -1;
    node.classList.toggle("on", !gated() && j in state.on);
  }
  const count = Object.keys(state.on).length;
  $("gallery-note").textContent = gated() ? "one is on at a time"
    : `${count} of ${state.run.capsules} on; click again to switch off`;
}

function pick(j) {
  if (gated() && j === state.capsule) return;
  remember();
  if (!gated() && j in state.on && j === state.capsule) switchOff(j);
  else choose(j);
  changed();
}

export function step(by) {
  const count = state.run.capsules;
  pick((((state.capsule + by) % count) + count) % count);
  reveal();
}

/** On a phone the gallery is a row that scrolls: bring the chosen tile into it. */
function reveal() {
  const [box, node] = [$("gallery"), $("gallery").children[state.capsule]];
  if (node) box.scrollLeft = node.offsetLeft - box.offsetLeft - (box.clientWidth - node.offsetWidth) / 2;
}

function arrows(event) {
  const columns = getComputedStyle($("gallery")).gridTemplateColumns.split(" ").length;
  const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = state.capsule + move;
  event.preventDefault();
  if (target < 0 || target >= state.run.capsules) return;
  pick(target);
  $("gallery").children[target].focus();
}

export function setLights(on, winner) {
  for (const node of $("lights").children) {
    const p = on ? on[Number(node.dataset.capsule)] : 0;
    node.style.setProperty("--on", p);
    node.classList.toggle("winner", on !== null && Number(node.dataset.capsule) === winner);
    node.setAttribute("aria-label", `Capsule ${node.dataset.capsule}${on ? `, on with ${percent(p)}` : ""}`);
  }
}

export async function loadGallery() {
  const found = await get("/api/gallery");
  const images = await Promise.all(found.capsules.map((c) => picture(c.sheet)));
  ({ capsules, samples } = found);
  faces.splice(0, faces.length, ...images);
  const focused = document.activeElement?.closest("#gallery .tile")?.dataset.capsule;
  $("gallery").replaceChildren(...capsules.map((c) => tile(c.capsule, false)));
  $("lights").replaceChildren(...capsules.map((c) => tile(c.capsule, true)));
  mark();
  reveal();
  if (focused) $("gallery").children[focused]?.focus();
  emit("gallery");
}

export function setUpGallery() {
  $("gallery").addEventListener("click", (event) => {
    const node = event.target.closest(".tile");
    if (node) pick(Number(node.dataset.capsule));
  });
  $("gallery").addEventListener("keydown", arrows);
  $("lights").addEventListener("click", (event) => {
    const node = event.target.closest(".tile");
    if (node) emit("focus-capsule", Number(node.dataset.capsule));
  });
  listen("numbers", mark);
}
