// Wipe over an image to erase a part of it, and see several endings.

import { el, latest, picture, post, show } from "./lib.js";
import { onDrag } from "./pad.js";

/** `canvas` shows the image of data URL `url()`, one pixel for each of its own; the endings go to `list` in `box`. */
export function erasable(canvas, box, list, url) {
  let hidden = new Set();
  let original = null; // the picture
  let last = null; // where the pointer was

  const complete = latest(async () => {
    const [asked, image] = [hidden, original];
    if (!asked.size) return;
    const { sheet, capsules } = await post("complete", { image: { data: url(), fit: false }, hidden: [...asked] });
    const answer = await picture(sheet);
    if (asked !== hidden || image !== original) return;
    list.replaceChildren(...capsules.map((capsule, k) => {
      const one = el("canvas", { class: "picture", role: "img", "aria-label": `Ending ${k + 1}` });
      show(one, answer, [canvas.height, canvas.width], 0, k);
      return el("figure", {}, one, el("figcaption", {}, `capsule ${capsule}`));
    }));
    box.hidden = false;
  });

  function wipe([x, y]) {
    if (!original) return false;
    const radius = Math.max(canvas.width, canvas.height) / 12;
    const context = canvas.getContext("2d");
    context.fillStyle = "#8a8f98";
    for (let k = 0; k < canvas.width * canvas.height; k++) {
      const [column, row] = [k % canvas.width, Math.floor(k / canvas.width)];
      if (Math.hypot(column + 0.5 - x, row + 0.5 - y) > radius) continue;
      hidden.add(k);
      context.fillRect(column, row, 1, 1);
    }
  }

  /** Wipes along the line from the last place: a fast pointer skips pixels. */
  function wipeTo([x, y]) {
    const steps = Math.ceil(Math.hypot(x - last[0], y - last[1]));
    for (let k = 1; k <= steps; k++) wipe([last[0] + ((x - last[0]) * k) / steps, last[1] + ((y - last[1]) * k) / steps]);
    last = [x, y];
  }
  const start = (place) => {
    last = place;
    return wipe(place);
  };

  onDrag(canvas, start, (places) => places.forEach(wipeTo), complete);

  return {
    reset(image) {
      [hidden, original, box.hidden] = [new Set(), image, true];
    },
    restore() {
      show(canvas, original);
      this.reset(original);
    },
  };
}
