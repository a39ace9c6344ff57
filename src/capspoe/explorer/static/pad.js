// A pad to draw on with a mouse, a pen or a finger: white on black, as in MNIST.

const PEN = 22; // of 280 pixels: about as thick as the strokes of MNIST

/** `before` is called before a stroke, `during` while it grows, `after` at its end. */
export function setUpPad(pad, before, during, after) {
  const context = pad.getContext("2d", { willReadFrequently: true });
  let last = null;

  function lineTo(event) {
    const box = pad.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * pad.width;
    const y = ((event.clientY - box.top) / box.height) * pad.height;
    Object.assign(context, { strokeStyle: "#fff", lineWidth: PEN, lineCap: "round" });
    context.beginPath();
    context.moveTo(...(last ?? [x, y + 0.01]));
    context.lineTo(x, y);
    context.stroke();
    last = [x, y];
  }

  pad.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    pad.setPointerCapture(event.pointerId);
    before();
    lineTo(event);
    during();
  });
  pad.addEventListener("pointermove", (event) => {
    if (!last) return;
    for (const one of [...event.getCoalescedEvents(), event]) lineTo(one);
    during();
  });
  for (const end of ["pointerup", "pointercancel"])
    pad.addEventListener(end, () => {
      if (last) after();
      last = null;
    });

  return {
    clear: () => context.fillRect(0, 0, pad.width, pad.height),
    url: () => pad.toDataURL("image/png"),
    read: () => context.getImageData(0, 0, pad.width, pad.height),
    write: (pixels) => context.putImageData(pixels, 0, 0),
    /** Puts an image onto the pad, to draw on. */
    put(image) {
      context.imageSmoothingEnabled = false;
      context.drawImage(image, 0, 0, pad.width, pad.height);
    },
  };
}
