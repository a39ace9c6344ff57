// Starts the page: views, keyboard, and what happens when the run changes.

import { loadGallery } from "./capsules.js";
import { $, el, emit, get, latest, listen, toast } from "./lib.js";
import play from "./play.js";
import recognise from "./recognise.js";
import { posesChanged, readAddress, setPoses, state, writeAddressNow, zeros } from "./state.js";
import training from "./training.js";
import two from "./two.js";

// A view has a name, a title, a sentence about it (`lead`), its markup, and `setUp`, which is called once the run has a checkpoint. It may have
// `open`, `clicks` and `keys` (functions by the id of a button and by key) and `history` (for Ctrl+Z).
const VIEWS = [two, play, recognise, training];
const MANY = 36; // capsules; if there are more, their tiles get a box that scrolls
let started = false;

const current = () => VIEWS.find(({ name }) => name === state.view);

function addViews() {
  for (const { name, title, lead, markup, clicks = {} } of VIEWS) {
    const section = el("section", { class: `view ${name}`, "data-view": name, "aria-label": title });
    section.innerHTML = `<p class="lead">${lead}</p>${markup}`;
    section.hidden = true;
    $("main").append(section);
    const tab = el("button", { "data-view": name }, title);
    tab.addEventListener("click", () => go(name));
    $("tabs").append(tab);
    for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
  }
}

function go(view, add = view !== state.view) {
  const changes = view !== state.view;
  if (add) writeAddressNow(); // what Back returns to
  state.view = view;
  for (const section of document.querySelectorAll(".view")) section.hidden = section.dataset.view !== view;
  for (const tab of $("tabs").children) tab.ariaCurrent = tab.dataset.view === view ? "page" : null;
  if (started) current().open?.();
  writeAddressNow(add);
  if (changes) scrollTo(0, 0); // the place in the old view means nothing in the new one
}

function onKey(event) {
  const key = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey) {
    const undo = key === "z" && !event.shiftKey;
    if ((key !== "z" && key !== "y") || !current().history) return;
    event.preventDefault();
    current().history[undo ? "undo" : "redo"]();
  } else if (!event.altKey) {
    if (VIEWS[Number(key) - 1]) go(VIEWS[Number(key) - 1].name);
    else if (started) current().keys?.[key]?.();
  }
}

/** Reads what the address says: at the start, and when somebody edits it. */
function followAddress() {
  const { image, fits } = readAddress(VIEWS.map(({ name }) => name));
  if (!fits) toast("The link is of another run and does not fit this one");
  if (!state.on.length) setPoses({ 0: zeros() }, 0);
  if (image) emit("recognise", image);
  posesChanged();
  go(state.view, false);
}

/** Shows the run as the server has it now: a new checkpoint, or more about the last one. */
const refresh = latest(async () => {
  try {
    state.run = await get("run");
    const { name, groups, stage, capsules, image: [height, width] } = state.run;
    $("run").textContent = name;
    $("groups").hidden = !groups;
    document.title = `${name} · capspoe explorer`;
    document.documentElement.style.setProperty("--aspect", width / height);
    document.body.classList.toggle("many", capsules > MANY);
    showBanner(!capsules ? "The run has no checkpoint yet. The capsules appear with the first one."
      : stage === "autoencoder" ? "The capsules are not trained yet: the autoencoder comes first." : "");
    if (!capsules) return;
    if (!started) {
      started = true;
      for (const view of VIEWS) view.setUp();
      followAddress();
    }
    await loadGallery();
    emit("model");
  } catch (error) {
    if (state.run) state.run.revision = null; // so that the next poll asks again
    if (error.status) showBanner(`The run cannot be shown: ${error.message}`);
  }
});

function showBanner(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

function showWelcome(show) {
  $("welcome").hidden = !show;
  localStorage.setItem("welcomed", "yes");
}

/** Shows the help where it can be seen, or hides it. */
function toggleHelp() {
  const help = $("welcome");
  // Help that is open but scrolled out of sight is to be shown, not closed.
  const inSight = !help.hidden && help.getBoundingClientRect().bottom > document.querySelector(".top").offsetHeight;
  showWelcome(!inSight);
  if (!inSight) help.scrollIntoView();
}

/** Polls every two seconds while the run trains or is surveyed, and seldom when it is finished. */
async function poll() {
  let eager = true;
  try {
    const answer = await get("training");
    const { status, revision } = answer;
    $("status").textContent = { training: "training", stopped: "unfinished", finished: "trained" }[status];
    if (revision !== state.run?.revision) refresh();
    emit("training", answer);
    eager = status === "training" || revision.endsWith(".0") || !state.run?.revision;
  } catch {
    // the banner says that the server does not answer
  }
  setTimeout(poll, document.hidden ? 15000 : eager ? 2000 : 10000);
}

async function start() {
  addViews();
  addEventListener("keydown", onKey);
  // Back only returns to a view. An address that is not ours was edited by hand, and says everything.
  addEventListener("popstate", (event) => {
    if (started && event.state) go(event.state.view, false);
    else if (started) followAddress();
  });
  showWelcome(!localStorage.getItem("welcomed"));
  $("got-it").addEventListener("click", () => showWelcome(false));
  $("help").addEventListener("click", toggleHelp);
  $("skip").addEventListener("click", () => $("main").focus());
  listen("reachable", (yes) => {
    showBanner(yes ? "" : "The server does not answer. Start `capspoe explore` again; the page will reconnect.");
    if (yes) refresh(); // requests were lost in the meantime
  });
  listen("go", (view) => go(view));
  await refresh();
  if (!started) go("training", false);
  poll();
  document.documentElement.dataset.ready = "true";
}

start();
