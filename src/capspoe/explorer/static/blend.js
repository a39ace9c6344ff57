// From one image to another, through the capsules.

import { latest, post } from "./api.js";
import { $, calm, download, el, icon, picture, show, toast } from "./dom.js";
import { loadPicker, randomStart } from "./recognise.js";
import { copyLink } from "./stage.js";
import { listen, state, writeAddress, zeros } from "./state.js";

const FRAMES = 33;
const STRIP = 11;
let sheet = null;
let slot = "first";
let first = 0;
let timer = 0;

const blend = latest(async () => {
  if (!state.run.capsules) return;
  try {
    const { first: a, last: b } = state.blend;
    const { frames } = await post("/api/interpolate", { first: a, last: b, steps: FRAMES });
    sheet = await picture(frames);
    const [height, width] = state.run.image;
    show($("slot-a").querySelector("canvas"), sheet, frameCell(0));
    show($("slot-b").querySelector("canvas"), sheet, frameCell(FRAMES - 1));
    const strip = $("blend-strip");
    strip.width = STRIP * width;
    strip.height = height;
    for (let k = 0; k < STRIP; k++) {
      const cell = frameCell(Math.round((k * (FRAMES - 1)) / (STRIP - 1)));
      strip.getContext("2d").drawImage(sheet, cell.x, 0, width, height, k * width, 0, width, height);
    }
    at(state.blend.t);
    $("blend-note").textContent = "";
  } catch (error) {
    if (error.status !== 409 && error.status !== 0) $("blend-note").textContent = error.message;
  }
});

function frameCell(k) {
  const [height, width] = state.run.image;
  return { x: k * width, y: 0, width, height };
}

function at(t) {
  state.blend.t = t;
  $("blend-t").value = t;
  $("blend-t").setAttribute("aria-valuetext", `${Math.round(100 * t)} %`);
  if (sheet) show($("blended"), sheet, frameCell(Math.round(t * (FRAMES - 1))));
}

function activate(name) {
  slot = name;
  $("slot-a").setAttribute("aria-pressed", String(name === "first"));
  $("slot-b").setAttribute("aria-pressed", String(name === "last"));
  $("blend-choose").textContent = name === "first" ? "Choose the first image" : "Choose the second image";
}

function put(image) {
  stop();
  state.blend[slot] = image;
  activate(slot === "first" ? "last" : "first");
  writeAddress();
  blend();
}

function stop() {
  clearInterval(timer);
  timer = 0;
  $("blend-play").replaceChildren(icon("play"), el("span", {}, "Play"));
}

function play() {
  if (timer) return stop();
  if (calm()) return toast("Motion is reduced on this device; move the slider instead");
  let phase = Math.acos(1 - 2 * state.blend.t);
  timer = setInterval(() => {
    phase += 0.045;
    at((1 - Math.cos(phase)) / 2);
  }, 33);
  $("blend-play").replaceChildren(icon("pause"), el("span", {}, "Pause"));
}

export function setUpBlend() {
  $("slot-a").addEventListener("click", () => activate("first"));
  $("slot-b").addEventListener("click", () => activate("last"));
  $("blend-t").addEventListener("input", () => {
    stop();
    at(Number($("blend-t").value));
  });
  $("blend-t").addEventListener("change", writeAddress);
  $("blend-play").addEventListener("click", play);
  $("blend-save").addEventListener("click", () => download($("blended"), "blend.png"));
  $("blend-save-strip").addEventListener("click", () => download($("blend-strip"), "blend-strip.png", 1232));
  $("blend-copy").addEventListener("click", copyLink);
  $("blend-more").addEventListener("click", () => {
    first = randomStart();
    loadPicker($("blend-picker"), put, "blend-picker", first);
  });
  $("blend-drawing").addEventListener("click", () => state.image && put({ ...state.image }));
  $("blend-sliders").addEventListener("click", () => put({ on: structuredClone(state.on) }));
  listen("images", () => loadPicker($("blend-picker"), put, "blend-picker", first));
  listen("view", (view) => {
    if (view !== "blend") return stop();
    if (!state.run.test_images) {
      for (const end of ["first", "last"])
        if (state.blend[end].index != null) state.blend[end] = { on: { [end === "first" ? 0 : state.run.capsules - 1]: zeros() } };
    }
    $("blend-drawing").disabled = !state.image;
    blend();
  });
  listen("gallery", () => state.view === "blend" && blend());
}
