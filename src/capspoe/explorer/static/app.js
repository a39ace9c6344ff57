// Starts the page: theme, views, keyboard, and what happens when the server's model changes.

import { get, latest, onReachable } from "./api.js";
import { setUpBlend } from "./blend.js";
import { $, applyTheme, storedTheme, toast } from "./dom.js";
import { loadGallery, setUpGallery, step } from "./gallery.js";
import { nothing, setUpRecognise, showImage } from "./recognise.js";
import { setUpSliders } from "./sliders.js";
import { setUpStage } from "./stage.js";
import { changed, choose, emit, isOwnAddress, listen, readAddress, redo, state, undo, writeAddress } from "./state.js";
import { setUpTraining } from "./training.js";

function setUpTheme() {
  const order = ["auto", "light", "dark"];
  let chosen = storedTheme();
  const apply = () => {
    applyTheme(chosen);
    $("theme").setAttribute("aria-label", `Theme: ${chosen}`);
    $("theme").title = `Theme: ${chosen}`;
  };
  $("theme").addEventListener("click", () => {
    chosen = order[(order.indexOf(chosen) + 1) % 3];
    try {
      localStorage.setItem("theme", chosen);
    } catch {
      // then it holds for this page only
    }
    apply();
    toast(`Theme: ${chosen}`);
  });
  apply();
}

function go(view) {
  state.view = view;
  for (const section of document.querySelectorAll(".view")) section.hidden = section.dataset.view !== view;
  for (const button of document.querySelectorAll(".tabs button")) {
    if (button.dataset.view === view) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  emit("view", view);
  writeAddress();
}

const keys = {
  r: () => $("randomise").click(),
  0: () => $("reset").click(),
  s: () => $("save").click(),
  "[": () => step(-1),
  "]": () => step(1),
};

function setUpKeyboard() {
  addEventListener("keydown", (event) => {
    if ($("help").open || event.target.matches("input:not([type=range]), textarea")) return;
    const command = event.ctrlKey || event.metaKey;
    if (command && event.key.toLowerCase() === "z") {
      event.preventDefault();
      if (event.shiftKey) redo();
      else undo();
    }
    if (command && event.key.toLowerCase() === "y") {
      event.preventDefault();
      redo();
    }
    if (command || event.altKey) return;
    if (event.key === "?") $("help").showModal();
    const view = ["play", "recognise", "blend", "training"][Number(event.key) - 1];
    if (view) go(view);
    if (state.view === "play" && state.run?.capsules && keys[event.key]) keys[event.key]();
  });
  $("help-open").addEventListener("click", () => $("help").showModal());
}

async function readRun() {
  state.run = await get("/api/run");
  $("run").textContent = state.run.name;
  $("run").title = state.run.capsules ? `${state.run.data}: ${state.run.lower} lower capsules, ${state.run.capsules} upper ones of ${state.run.numbers} numbers` : state.run.data;
  document.title = `${state.run.name} · capspoe explorer`;
  const [height, width] = state.run.image;
  document.documentElement.style.setProperty("--aspect", width / height);
  document.documentElement.style.setProperty("--film", (7 * width) / height);
  document.documentElement.style.setProperty("--blend-film", (11 * width) / height);
}

let started = false;
let images = ""; // what was said of the test images the last time

/** Shows the run as the server has it now: another checkpoint, or more about this one. */
const refresh = latest(async () => {
  const had = state.run;
  try {
    await readRun();
    banner();
    if (!state.run.capsules) return;
    if (started) changed();
    else firstModel();
    await loadGallery();
    const now = `${state.run.test_images} ${state.run.no_test_images}`;
    if (now !== images) emit("images");
    images = now;
  } catch (error) {
    if (state.run) state.run.revision = ""; // so that the next look finds it changed, and asks again
    banner(had ? "" : `The run cannot be shown: ${error.message}`);
  }
});

function firstModel() {
  started = true;
  if (!readAddress()) toast("The link does not fit this run; it is shown from the start");
  if (!Object.keys(state.on).length) choose(0);
  setUpGallery();
  setUpSliders();
  setUpStage();
  setUpRecognise();
  setUpBlend();
  changed();
  if (state.image) showImage(state.image);
  else nothing();
  go(state.view);
}

let reachable = true;
function banner(problem = "") {
  const text = !reachable ? "The server does not answer. Start it again with capspoe explore; this page carries on by itself."
    : state.run && !state.run.capsules ? "The run has no checkpoint yet. Its capsules appear here as soon as there is one."
    : problem;
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

async function start() {
  setUpTheme();
  setUpKeyboard();
  for (const button of document.querySelectorAll(".tabs button")) button.addEventListener("click", () => go(button.dataset.view));
  onReachable((yes) => {
    reachable = yes;
    banner();
    images = "";
    if (yes) refresh(); // what was asked for meanwhile was lost
  });
  listen("go", go);
  listen("revision", refresh);
  addEventListener("hashchange", () => {
    if (isOwnAddress() || !state.run?.capsules) return;
    if (!readAddress()) toast("The link does not fit this run");
    go(state.view);
    changed();
    if (state.image) showImage(state.image);
  });
  await refresh();
  if (!started) go("training");
  setUpTraining();
  document.documentElement.dataset.ready = "true";
}

start();
