// The capsules as tiles, and images of the data set as thumbnails.

import { el, get, percent, picture, show } from "./lib.js";
import { state } from "./state.js";

let gallery = { names: [], surveyed: 0, use: [] };
let faces = null; // a row of images: what each capsule decodes to at its mean

export async function loadGallery() {
  gallery = await get("gallery");
  faces = await picture(gallery.sheet);
}

export const nameOf = (j) => gallery.names[j];
/** How many of a capsule's images have its label, and how many images were looked at to find out. */
export function shareOf(j) {
  const percentage = `${Math.round(100 * nameOf(j).share)}%`;
  if (!gallery.surveyed) return `${percentage} of its ${state.run.kind}`;
  return `${percentage} of its images among ${gallery.surveyed.toLocaleString("en")} ${state.run.kind}`;
}
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

/** Scrolls a box until one of its tiles is in sight: in the middle, if it was not. */
export function reveal(box, tile) {
  const [left, top] = [tile.offsetLeft - box.offsetLeft, tile.offsetTop - box.offsetTop];
  box.scrollLeft = left - (box.clientWidth - tile.offsetWidth) / 2;
  const hidden = top < box.scrollTop || top + tile.offsetHeight > box.scrollTop + box.clientHeight;
  if (hidden) box.scrollTop = top - (box.clientHeight - tile.offsetHeight) / 2;
}

/** The name of a capsule in its tile: its most common label, or its number. */
export const caption = (j) => el("b", { class: "caption" }, nameOf(j)?.label ?? String(j));

/** Fills a box with images of the data set; `query` says which, `choose` is called with an image. Returns whether there are more. */
export async function showThumbnails(box, query, choose, none = "") {
  const say = (words) => box.replaceChildren(el("div", { class: "note" }, words));
  if (!state.run.images) return say(state.run.no_images ?? "Opening the images …");
  try {
    const { images, more } = await get(`images?${query}`, box.id);
    if (!images.length) return say(none);
    box.replaceChildren(...images.map(({ index, label, file, image }) => {
      const canvas = el("canvas", { "aria-hidden": "true" });
      picture(image).then((decoded) => show(canvas, decoded));
      const title = `${file ?? `Image ${index}`}${label == null ? "" : `, labelled ${label}`}`;
      const node = el("button", { "data-index": index, "aria-label": title, title }, canvas);
      node.addEventListener("click", () => choose({ index }));
      return node;
    }));
    return more;
  } catch (error) {
    if (error.status !== 409 && error.status !== 0) say(error.message);
  }
}
