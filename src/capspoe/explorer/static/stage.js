// The picture in the middle, and what can be done with it.

import { debounce, get, latest, post } from "./api.js";
import { $, blank, complain, download, el, percent, picture, saveAs, show, toast } from "./dom.js";
import { nameOf, useOf } from "./gallery.js";
import { canRedo, canUndo, changed, emit, gated, listen, locked, redo, remember, state, undo, writeAddressNow, zeros } from "./state.js";

/** One request in flight, the latest wins: the picture follows the hand. */
const paint = latest(async () => {
  try {
    const { image } = await post("/api/paint", { on: state.on });
    show($("picture"), await picture(image));
  } catch (error) {
    complain(error);
  }
});

async function randomise() {
  remember();
  try {
    const drawn = []; // one after the other: the server lets few wait
    for (const j of Object.keys(state.on)) drawn.push(await get(`/api/random?capsule=${j}&seed=${Math.floor(Math.random() * 2 ** 31)}`));
    for (const { capsule, values } of drawn) {
      if (!(capsule in state.on)) continue; // switched off meanwhile
      const fixed = state.locks[capsule] ?? new Set();
      state.on[capsule] = values.map((v, n) => (fixed.has(n) ? state.on[capsule][n] : v));
    }
    changed();
  } catch (error) {
    complain(error);
  }
}

function reset() {
  remember();
  const now = state.on[state.capsule];
  state.on[state.capsule] = zeros().map((v, n) => (locked().has(n) ? now[n] : v));
  changed();
}

export async function copyLink() {
  writeAddressNow();
  try {
    await navigator.clipboard.writeText(location.href);
    toast("Link copied: it restores this state");
  } catch {
    toast("The link is in the address bar");
  }
}

function describe() {
  const j = state.capsule;
  const name = nameOf(j);
  const also = Object.keys(state.on).filter((k) => Number(k) !== j);
  $("stage-title").textContent = `Capsule ${j}`;
  const parts = [];
  if (name) parts.push(`mostly ${name.label} (${Math.round(100 * name.share)} %)`);
  if (!gated() && also.length) parts.push(`with ${also.length > 4 ? `${also.length} others` : also.join(", ")}`);
  else if (useOf(j) != null) parts.push(`use ${percent(useOf(j))}`);
  $("stage-note").textContent = parts.join(" · ");
  $("picture").setAttribute("aria-label", `What capsule ${j} paints${name ? `, mostly ${name.label}` : ""}`);
  buttons();
}

function buttons() {
  $("undo").disabled = !canUndo();
  $("redo").disabled = !canRedo();
}

let lookalikesOf = "";
const lookalikes = debounce(async () => {
  const key = `${state.run.revision}/${state.capsule}`;
  if (key === lookalikesOf) return;
  if (!state.run.test_images) return $("lookalikes").replaceChildren(empty(state.run.no_test_images));
  try {
    const { images } = await get(`/api/images?capsule=${state.capsule}&count=10`, "lookalikes");
    lookalikesOf = key;
    $("lookalikes").replaceChildren(...images.map((one) => thumb(one, () => emit("recognise", { index: one.index }))));
    if (!images.length) $("lookalikes").replaceChildren(empty(state.run.revision.endsWith(".0") ? "Looking at the test images …" : "None among the test images looked at."));
  } catch (error) {
    complain(error);
  }
}, 120);

export const empty = (words) => el("div", { class: "empty" }, words);

export function thumb(one, choose, pressed = null) {
  const canvas = el("canvas", { "aria-hidden": "true", width: state.run.image[1], height: state.run.image[0] });
  const label = one.label == null ? "" : `, labelled ${one.label}`;
  const node = el("button", { type: "button", "data-index": one.index, "aria-label": `Test image ${one.index}${label}`, title: `Test image ${one.index}${label}`, onclick: choose }, canvas);
  if (pressed !== null) node.setAttribute("aria-pressed", String(pressed));
  picture(one.image).then((image) => show(canvas, image));
  return node;
}

export function setUpStage() {
  blank($("picture"));
  $("randomise").addEventListener("click", randomise);
  $("reset").addEventListener("click", reset);
  $("undo").addEventListener("click", undo);
  $("redo").addEventListener("click", redo);
  $("save").addEventListener("click", () => download($("picture"), `capsule-${state.capsule}.png`));
  $("save-grid").addEventListener("click", () => saveAs("/api/grid.png?rows=8&scale=3", "capsules.png"));
  $("copy").addEventListener("click", copyLink);
  listen("slide", paint);
  listen("slide", buttons);
  listen("numbers", () => {
    paint();
    describe();
    lookalikes();
  });
  listen("gallery", () => {
    describe();
    lookalikes();
  });
}
