// The capsules as tiles and the test images as thumbnails, which more than one view shows.

import { el, get, percent, picture, show } from "./lib.js";
import { state } from "./state.js";

let gallery = { names: [], use: [] };
let faces = null; // a row of images: what each capsule decodes to at its mean

export async function loadGallery() {
  gallery = await get("gallery");
  faces = await picture(gallery.sheet);
}

export const nameOf = (j) => gallery.names[j];
export const useOf = (j) => gallery.use[j];
export const mostly = (j) => (nameOf(j) ? `mostly ${nameOf(j).label}` : "");

/** Fills a box with a tile for each capsule; `decorate` adds to it, `choose` is called with the capsule. */
export function drawTiles(box, decorate, choose) {
  const tiles = Array.from({ length: state.run.capsules }, (_, j) => {
    const canvas = el("canvas", { "aria-hidden": "true" });
    if (faces) show(canvas, faces, state.run.image, 0, j);
    const label = [`Capsule ${j}`, mostly(j), useOf(j) == null ? "" : `use ${percent(useOf(j))}`].filter(Boolean).join(", ");
    const node = el("button", { class: "tile", "data-capsule": j, "aria-label": label, title: label }, canvas);
    decorate(node, j);
    node.addEventListener("click", () => choose(j));
    return node;
  });
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.capsule : null;
  box.replaceChildren(...tiles);
  if (focused) tiles[focused].focus();
}

/** The name of a capsule in its tile: its commonest label, or its number. */
export const caption = (j) => el("b", { class: "caption" }, nameOf(j)?.label ?? String(j));

/** Tiles with bars for the probability that each capsule is on. */
export function drawBars(box, on, chosen, choose) {
  const decorate = (node, j) => {
    node.append(el("div", { class: "bar" }, el("i")), caption(j));
    node.style.setProperty("--on", on?.[j] ?? 0);
    node.ariaPressed = String(j === chosen);
    if (on) node.ariaLabel += `, on with ${percent(on[j])}`;
  };
  drawTiles(box, decorate, choose);
}

/** Fills a box with test images; `query` says which, `choose` is called with an image. Returns whether there are more. */
export async function showThumbnails(box, query, choose, none = "") {
  const say = (words) => box.replaceChildren(el("div", { class: "note" }, words));
  if (!state.run.test_images) return say(state.run.no_test_images);
  try {
    const { images, more } = await get(`images?${query}`, box.id);
    if (!images.length) return say(none);
    box.replaceChildren(...images.map(({ index, label, file, image }) => {
      const canvas = el("canvas", { "aria-hidden": "true" });
      picture(image).then((decoded) => show(canvas, decoded));
      const title = `${file ?? `Test image ${index}`}${label == null ? "" : `, labelled ${label}`}`;
      const node = el("button", { "data-index": index, "aria-label": title, title }, canvas);
      node.addEventListener("click", () => choose({ index }));
      return node;
    }));
    return more;
  } catch (error) {
    if (error.status !== 409 && error.status !== 0) say(error.message);
  }
}

/** A box of test images to choose from, and a button for other ones. Returns a function that fills the box. */
export function setUpPicker(box, button, choose) {
  let start = 0;
  const fill = () => showThumbnails(box, `start=${start}&count=36`, choose);
  button.addEventListener("click", () => {
    start = Math.floor(Math.random() * Math.max(1, state.run.test_images - 36));
    fill();
  });
  return fill;
}
