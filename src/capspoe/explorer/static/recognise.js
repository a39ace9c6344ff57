// Recognise: show the network an image and see which capsule switches on.

import { caption, drawTiles, mostly, nameOf, reveal, showThumbnails } from "./capsules.js";
import { $, el, emit, latest, listen, percent, picture, post, show, toast, undoHistory } from "./lib.js";
import { erasable } from "./erase.js";
import { setUpPad } from "./pad.js";
import { poseHistory, posesChanged, setPoses, state, writeAddress } from "./state.js";

const MAX_SIDE = 640; // larger images are reduced in the browser before they are sent

const markup = `
  <div class="panel stack">
    <div class="head"><h2>Show it an image</h2><button class="small" id="clear">Clear</button></div>
    <div class="pad-box">
      <canvas class="pad" id="pad" width="280" height="280" role="img" aria-label="Drawing pad"></canvas>
      <div class="hint" id="pad-hint">Draw here</div>
    </div>
    <div class="buttons">
      <label class="button" for="file">Open a file</label>
      <input type="file" id="file" accept="image/png,image/jpeg,image/webp,image/gif,image/bmp">
      <span class="note">or drop one, or paste</span>
    </div>
    <div class="head"><h3 id="picker-title"></h3><button class="small" id="more">Others</button></div>
    <div class="thumbs picker" id="picker" role="group" aria-labelledby="picker-title"></div>
  </div>
  <div class="panel stack">
    <div class="head"><h2 id="verdict" aria-live="polite"></h2><span class="note" id="verdict-note"></span></div>
    <div class="pair">
      <figure><canvas class="picture" id="seen" role="img" aria-label="The image as the network sees it"></canvas>
        <figcaption>as the network sees it; wipe to erase</figcaption></figure>
      <figure><canvas class="picture" id="rebuilt" role="img" aria-label="The reconstruction"></canvas>
        <figcaption>reconstruction</figcaption></figure>
    </div>
    <div class="stack" id="endings" hidden>
      <div class="head"><h3>Without what you erased</h3><button class="small" id="restore">Restore</button></div>
      <div class="endings" id="ends" role="group" aria-label="Completions"></div>
    </div>
    <div><button class="main" id="hold">Edit its pose in Play</button></div>
    <h3>Probability that each capsule is on</h3>
    <div class="tiles bars" id="lights" role="group" aria-label="Capsules; choose one to see its pose in Play"></div>
  </div>`;

let pad;
let subject = null; // the image in question; it becomes state.image once it is recognised
let forPad = null; // an image to put onto the pad once the server has preprocessed it
let found = null; // the answer
let eraser;

const read = () => ({ pixels: pad.read(), subject });
const write = (before) => {
  pad.write(before.pixels);
  recognise(before.subject);
};
const strokes = undoHistory(read, write, 30);

/** Asks about the subject. While a stroke grows, it is not settled. */
const look = latest(async (settled) => {
  const image = subject;
  if (!image) return;
  try {
    const answer = await post("recognise", { image });
    const [seen, rebuilt] = await Promise.all([picture(answer.input), picture(answer.reconstruction)]);
    if (image !== subject) return;
    if (found?.input !== answer.input) {
      show($("seen"), seen);
      eraser.reset(seen); // what is erased stays when only the model has changed
    }
    found = answer;
    show($("rebuilt"), rebuilt);
    if (forPad === image) pad.put(seen);
    if (settled) setImage(image.data ? { data: answer.input, fit: false } : image); // all that a link needs
    showVerdict();
  } catch (error) {
    if (error.status && error.status !== 409 && image === subject) showNothing("Not recognised", error.message);
  }
});

function setImage(image) {
  state.image = image;
  emit("image");
  writeAddress();
}

/** Takes a new subject, or none. */
function recognise(image) {
  subject = image;
  $("pad-hint").hidden = image !== null;
  if (image) look(true);
  else showNothing("Waiting for an image", "Draw, open or pick one.");
}

function showImage(image) {
  strokes.remember();
  pad.clear();
  forPad = image;
  recognise(image);
}

function showVerdict() {
  const { on, winner, label, unlike } = found;
  const { gated } = state.run;
  const count = on.filter((p) => p > 0.5).length;
  const name = nameOf(winner) && `Mostly ${nameOf(winner).label}`;
  $("verdict").textContent = unlike ? "Unlike anything it was trained on"
    : !gated ? `${count} of ${on.length} capsules are on` : name || `Capsule ${winner} is on`;
  $("verdict").classList.toggle("unlike", unlike);
  const which = unlike ? `nearest: capsule ${winner}` : `capsule ${winner} ${gated ? "is on" : "most"}`;
  const parts = [which, percent(on[winner]), (unlike || !gated) && mostly(winner)];
  if (label != null) parts.push(`this image is labelled ${label}`);
  $("verdict-note").textContent = parts.filter(Boolean).join(" · ");
  $("hold").disabled = false;
  drawBars();
}

function showNothing(title, note) {
  found = null;
  eraser.reset(null);
  for (const id of ["seen", "rebuilt"]) $(id).width = 0;
  $("verdict").textContent = title;
  $("verdict").classList.remove("unlike");
  $("verdict-note").textContent = note;
  $("hold").disabled = true;
  drawBars();
  setImage(null);
}

/** Tiles with bars for the probability that each capsule is on. */
function drawBars() {
  const decorate = (node, j) => {
    node.append(el("div", { class: "bar" }, el("i")), caption(j));
    node.style.setProperty("--on", found?.on[j] ?? 0);
    node.ariaPressed = String(j === found?.winner);
    if (found) node.ariaLabel += `, on with ${percent(found.on[j])}`;
  };
  drawTiles($("lights"), decorate, (j) => found && hold(j));
  if (found) reveal($("lights"), $("lights").children[found.winner]);
}

/** Copies the pose to the sliders of Play: one capsule's with the gate, otherwise every capsule's. */
function hold(capsule) {
  poseHistory.remember();
  const limited = found.poses.map((pose) => pose.map((v) => Math.max(-100, Math.min(100, v))));
  setPoses(state.run.gated ? { [capsule]: limited[capsule] } : { ...limited }, capsule);
  emit("go", "play");
  posesChanged();
}

let start = 0; // of the images to choose from
const fillPicker = () => showThumbnails($("picker"), `start=${start}&count=36`, showImage);

/** Reads an image file as a small PNG. */
async function readFile(file) {
  if (!file) return;
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
    const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
    const canvas = el("canvas", { width, height });
    canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
    emit("go", "recognise");
    showImage({ data: canvas.toDataURL("image/png"), fit: true });
  } catch {
    toast(`${file.name || "This"} is not an image that the browser can read`);
  }
}

export default {
  name: "recognise",
  title: "Recognise",
  lead: "Show the network an image: the capsule that explains it best switches on, and its pose says how the thing looks.",
  markup,
  history: strokes,
  clicks: {
    hold: () => hold(found.winner),
    restore: () => eraser.restore(),
    more() {
      start = Math.floor(Math.random() * Math.max(1, state.run.images - 36));
      fillPicker();
    },
    clear() {
      strokes.remember();
      pad.clear();
      recognise(null);
    },
  },
  setUp() {
    const draw = () => {
      subject = { data: pad.url(), fit: true };
      forPad = null;
      $("pad-hint").hidden = true;
      look(false);
    };
    pad = setUpPad($("pad"), strokes.remember, draw, () => look(true));
    pad.clear();
    eraser = erasable($("seen"), $("endings"), $("ends"), () => found.input);
    recognise(null);
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      readFile(event.dataTransfer.files[0]);
    });
    addEventListener("paste", (event) => readFile(event.clipboardData.files[0]));
    $("file").addEventListener("change", () => readFile($("file").files[0]).then(() => ($("file").value = "")));
    listen("recognise", showImage);
    listen("model", () => {
      $("picker-title").textContent = `Some ${state.run.kind}`;
      fillPicker();
      if (subject) look(true);
      else drawBars();
    });
  },
};
