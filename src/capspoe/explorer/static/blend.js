// Blend: from one image to another through the capsules.

import { setUpPicker } from "./capsules.js";
import { $, latest, listen, picture, post, show } from "./lib.js";
import { posesOn, state, writeAddress, zeros } from "./state.js";

const FRAMES = 17;
const ENDS = ["first", "last"];

const markup = `
  <div class="panel stack">
    <h2>From one image to another</h2>
    <div class="blend-stage">
      <button class="slot" data-end="first"><canvas class="picture"></canvas>from</button>
      <canvas class="picture" id="blended" role="img" aria-label="The blend"></canvas>
      <button class="slot" data-end="last"><canvas class="picture"></canvas>to</button>
    </div>
    <div class="film"><canvas id="blend-strip" aria-hidden="true"></canvas>
      <input type="range" id="blend-t" min="0" max="1" step="0.0625" aria-label="Position between the two"></div>
  </div>
  <div class="panel stack">
    <div class="head"><h3 id="blend-choose"></h3><button class="small" id="blend-more">Others</button></div>
    <div class="buttons">
      <button id="blend-image">Image from Recognise</button>
      <button id="blend-pose">Pose from Play</button>
    </div>
    <div class="thumbs picker" id="blend-picker" role="group" aria-label="Test images"></div>
  </div>`;

let frames = null;
let active = "first"; // the end that the next choice replaces

const slot = (end) => document.querySelector(`.slot[data-end=${end}]`);
const showFrame = (canvas, k) => show(canvas, frames, state.run.image, 0, k);

const blend = latest(async () => {
  $("blend-image").disabled = !state.image;
  if (state.view !== "blend") return;
  for (const [end, at] of [["first", -2], ["last", 2]]) // to begin with, along the longest axis of one capsule
    state.blend[end] ??= { poses: { [state.capsule]: zeros().with(0, at) } };
  const { first, last } = state.blend;
  frames = await picture((await post("blend", { first, last, steps: FRAMES })).frames);
  showFrame(slot("first").firstChild, 0);
  showFrame(slot("last").firstChild, FRAMES - 1);
  show($("blend-strip"), frames);
  moveTo(state.blend.t);
});

function moveTo(t) {
  state.blend.t = t;
  $("blend-t").value = t;
  $("blend-t").ariaValueText = `${Math.round(100 * t)}%`;
  if (frames) showFrame($("blended"), Math.round(t * (FRAMES - 1)));
}

function activate(end) {
  active = end;
  for (const one of ENDS) slot(one).ariaPressed = String(one === end);
  $("blend-choose").textContent = `Choose the ${end === "first" ? "first" : "second"} image`;
}

function choose(image) {
  state.blend[active] = image;
  activate(active === "first" ? "last" : "first");
  writeAddress();
  blend();
}

export default {
  name: "blend",
  title: "Blend",
  lead: "Poses are numbers, so there is a way between any two. Within one capsule every step on it is a sensible image.",
  markup,
  open: blend,
  clicks: {
    "blend-image": () => choose({ ...state.image }),
    "blend-pose": () => choose({ poses: structuredClone(posesOn()) }),
  },
  setUp() {
    const fillPicker = setUpPicker($("blend-picker"), $("blend-more"), choose);
    for (const end of ENDS) slot(end).addEventListener("click", () => activate(end));
    $("blend-t").addEventListener("input", () => {
      moveTo(Number($("blend-t").value));
      writeAddress();
    });
    activate("first");
    listen("model", () => {
      fillPicker();
      blend();
    });
  },
};
