// Wipe over an image to erase a part of it, and see several endings.

import { el, latest, picture, post, show } from "./lib.js";

/** `canvas` shows the image of data URL `url()`, one pixel for each of its own; the endings go to `list` in `box`. */
export function erasable(canvas, box, list, url) {
  let hidden = new Set();
  let original = null; // the picture
  let wiping = false;

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

  function wipe(event) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const [x, y] = [((event.clientX - left) / width) * canvas.width, ((event.clientY - top) / height) * canvas.height];
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

  canvas.style.touchAction = "none";
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !original) return;
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    wiping = true;
    wipe(event);
  });
  canvas.addEventListener("pointermove", (event) => wiping && wipe(event));
  for (const end of ["pointerup", "pointercancel"])
    canvas.addEventListener(end, () => {
      if (wiping) complete();
      wiping = false;
    });

  return {
    reset(image) {
      [hidden, original, wiping, box.hidden] = [new Set(), image, false, true];
    },
    restore() {
      show(canvas, original);
      this.reset(original);
    },
  };
}
