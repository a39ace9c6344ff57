// A place to draw with the mouse, a pen or a finger: white on black, as the network's images are.

import { $ } from "./dom.js";

const PEN = 22; // of 280: about as thick as the strokes of MNIST

export function setUpPad(onChange, onEnd) {
  const pad = $("pad");
  const context = pad.getContext("2d");
  let last = null;

  function clear() {
    context.fillStyle = "#000";
    context.fillRect(0, 0, pad.width, pad.height);
  }

  const at = (event) => {
    const box = pad.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * pad.width, ((event.clientY - box.top) / box.height) * pad.height];
  };

  function line(from, to) {
    context.strokeStyle = "#fff";
    context.lineWidth = PEN;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(to[0], to[1] + (from[0] === to[0] && from[1] === to[1] ? 0.01 : 0));
    context.stroke();
  }

  pad.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    pad.setPointerCapture(event.pointerId);
    last = at(event);
    line(last, last);
    onChange();
  });
  pad.addEventListener("pointermove", (event) => {
    if (!last) return;
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const one of passed.length ? passed : [event]) {
      const here = at(one);
      line(last, here);
      last = here;
    }
    onChange();
  });
  const end = () => {
    if (!last) return;
    last = null;
    onEnd();
  };
  pad.addEventListener("pointerup", end);
  pad.addEventListener("pointercancel", end);
  clear();

  return {
    clear,
    data: () => pad.toDataURL("image/png"),
    /** Puts an image onto the pad, so that one can draw on. */
    put(image) {
      clear();
      context.imageSmoothingEnabled = false;
      context.drawImage(image, 0, 0, pad.width, pad.height);
    },
  };
}
