// A pad to draw on with a mouse, a pen or a finger: white on black, as in MNIST.

const PEN = 22; // of 280 pixels: about as thick as the strokes of MNIST

/** Follows a pointer over a canvas: `start` gets its place in pixels, and may refuse with false; `move` gets several. */
export function onDrag(canvas, start, move, end = () => {}) {
  let dragging = false;
  const place = (event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    return [((event.clientX - left) / width) * canvas.width, ((event.clientY - top) / height) * canvas.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || start(place(event)) === false) return;
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    dragging = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (dragging) move([...event.getCoalescedEvents(), event].map(place));
  });
  for (const name of ["pointerup", "pointercancel"])
    canvas.addEventListener(name, () => {
      if (dragging) end();
      dragging = false;
    });
}

/** `before` is called before a stroke, `during` while it grows, `after` at its end. */
export function setUpPad(pad, before, during, after) {
  const context = pad.getContext("2d", { willReadFrequently: true });
  let last = null;

  function lineTo([x, y]) {
    Object.assign(context, { strokeStyle: "#fff", lineWidth: PEN, lineCap: "round" });
    context.beginPath();
    context.moveTo(...(last ?? [x, y + 0.01]));
    context.lineTo(x, y);
    context.stroke();
    last = [x, y];
  }

  const extend = (places) => {
    places.forEach(lineTo);
    during();
  };
  const start = (place) => {
    before();
    last = null;
    extend([place]);
  };
  onDrag(pad, start, extend, after);

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
