// The other direction: show the network an image, see which capsule switches on.

import { get, latest, post } from "./api.js";
import { $, blank, complain, el, percent, picture, show, toast } from "./dom.js";
import { faces, nameOf, setLights } from "./gallery.js";
import { setUpPad } from "./pad.js";
import { showRouting, setUpRouting } from "./routing.js";
import { empty, thumb } from "./stage.js";
import { changed, emit, gated, listen, remember, state, writeAddress } from "./state.js";

const SIDE = 640; // a dropped image is made smaller than this before it is sent
let pad;
let found = null;
let subject = 0; // counts the images; the strokes of a drawing are all about one
let forPad = null; // an image that goes onto the pad once the server has brought it to its form
let asked = null; // the checkpoint that was asked about the image

const look = latest(async (settled) => {
  const { image } = state;
  const about = subject;
  if (!image) return;
  asked = checkpoint();
  try {
    const answer = await post("/api/recognise", { image });
    const [seen, rebuilt] = await Promise.all([picture(answer.input), picture(answer.reconstruction)]);
    if (about !== subject) return;
    found = answer;
    show($("seen"), seen);
    show($("rebuilt"), rebuilt);
    setLights(answer.on, answer.winner);
    verdict(answer);
    $("hold").disabled = false;
    $("pad-hint").hidden = true;
    if (forPad === image) pad.put(seen);
    if (settled && image === state.image) {
      // What the network saw is all that a link needs; this is the whole drawing, or it would not be settled.
      if (image.data) state.image = { data: answer.input, fit: false };
      writeAddress();
      route(state.image, answer, seen);
    } else showRouting(null);
  } catch (error) {
    if (error.status === 0) asked = null;
    complain(error);
  }
});
const checkpoint = () => state.run.revision.split(".")[0];

const route = latest(async (image, answer, seen) => {
  try {
    const routing = await post("/api/routing", { image: { data: answer.input, fit: false } });
    if (image === state.image) showRouting(routing, seen, answer.winner, faces);
  } catch (error) {
    complain(error);
  }
});

function verdict({ on, winner, label }) {
  const name = nameOf(winner);
  const count = on.filter((p) => p > 0.5).length;
  $("verdict").textContent = gated() ? `Capsule ${winner} switches on` : `${count} of ${on.length} capsules are on`;
  const parts = [gated() ? percent(on[winner]) : `capsule ${winner} most, ${percent(on[winner])}`];
  if (name) parts.push(`its images are mostly labelled ${name.label}`);
  if (label != null) parts.push(`this one is labelled ${label}`);
  $("verdict-note").textContent = parts.join(" · ");
}

export function nothing() {
  subject++;
  found = null;
  state.image = null;
  for (const id of ["seen", "rebuilt"]) blank($(id));
  setLights(null, -1);
  showRouting(null);
  $("verdict").textContent = "Waiting for an image";
  $("verdict-note").textContent = "Draw, drop or pick one.";
  $("hold").disabled = true;
  $("pad-hint").hidden = false;
  press();
  writeAddress();
}

/** Copies the numbers into the sliders and goes there. With the gate it is the winner's, otherwise everybody's. */
function hold() {
  if (!found) return;
  remember();
  state.capsule = found.winner;
  state.on = gated() ? { [found.winner]: [...found.values[found.winner]] } : Object.fromEntries(found.values.map((v, j) => [j, [...v]]));
  for (const list of Object.values(state.on)) list.forEach((v, n) => (list[n] = Math.max(-100, Math.min(100, v))));
  emit("go", "play");
  changed();
}

function press() {
  for (const node of $("picker").querySelectorAll("button")) node.setAttribute("aria-pressed", String(Number(node.dataset.index) === state.image?.index));
}

export function showImage(image) {
  subject++;
  state.image = forPad = image;
  press();
  writeAddress();
  $("pad-hint").hidden = true;
  look(true);
}

/** A file as a small PNG data URL; larger images never leave the browser. */
async function takeFile(file) {
  if (!file) return;
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
    const canvas = el("canvas", { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)) });
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    emit("go", "recognise");
    showImage({ data: canvas.toDataURL("image/png"), fit: true });
  } catch {
    toast(`${file.name || "That"} is not an image the browser can read`);
  }
}

let first = 0;
export async function loadPicker(box, choose, lane, from) {
  if (!state.run.test_images) {
    box.replaceChildren(empty(state.run.no_test_images));
    return;
  }
  try {
    const { images } = await get(`/api/images?start=${from}&count=36`, lane);
    box.replaceChildren(...images.map((one) => thumb(one, () => choose({ index: one.index }), false)));
  } catch (error) {
    if (error.status !== 409 && error.status !== 0) box.replaceChildren(empty(error.message));
  }
}

export const randomStart = () => Math.floor(Math.random() * Math.max(1, state.run.test_images - 36));

function setUpDropping() {
  let depth = 0;
  const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragenter", (event) => {
    if (!isFile(event)) return;
    depth++;
    document.body.classList.add("dropping");
    emit("go", "recognise");
  });
  addEventListener("dragleave", () => {
    depth = Math.max(0, depth - 1);
    if (!depth) document.body.classList.remove("dropping");
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    document.body.classList.remove("dropping");
    takeFile(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => takeFile([...event.clipboardData.files].find((f) => f.type.startsWith("image/"))));
}

export function setUpRecognise() {
  pad = setUpPad(
    () => {
      state.image = { data: pad.data(), fit: true };
      forPad = null;
      press();
      $("pad-hint").hidden = true;
      look(false);
    },
    () => look(true),
  );
  setUpRouting();
  setUpDropping();
  $("file").addEventListener("change", () => takeFile($("file").files[0]).then(() => ($("file").value = "")));
  $("clear").addEventListener("click", () => {
    pad.clear();
    nothing();
  });
  $("hold").addEventListener("click", hold);
  $("more-images").addEventListener("click", async () => {
    first = randomStart();
    await loadPicker($("picker"), showImage, "picker", first);
    press();
  });
  listen("recognise", (image) => {
    emit("go", "recognise");
    showImage(image);
  });
  listen("gallery", () => {
    if (found) setLights(found.on, found.winner);
    if (found) verdict(found);
    if (state.image && asked !== checkpoint()) look(true);
  });
  listen("images", () => loadPicker($("picker"), showImage, "picker", first).then(press));
}
