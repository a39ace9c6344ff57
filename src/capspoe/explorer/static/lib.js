// Helpers: events, requests, elements, pictures, messages, undo.

const client = Math.random().toString(36).slice(2, 12);
let reachable = true;

const listeners = {};
export const listen = (event, listener) => (listeners[event] ??= []).push(listener);
export function emit(event, detail) {
  for (const listener of listeners[event] ?? []) listener(detail);
}

function setReachable(value) {
  if (value !== reachable) emit("reachable", value);
  reachable = value;
}

/** Asks the server. An error carries the status of the answer, 0 if there was none. */
async function request(path, lane, options) {
  let response, content;
  try {
    const headers = { "Content-Type": "application/json", "X-Client": client, "X-Lane": lane };
    response = await fetch(`/api/${path}`, { ...options, headers });
    content = await response.json();
  } catch {
    setReachable(false);
    throw Object.assign(new Error("the server does not answer"), { status: 0 });
  }
  setReachable(true);
  if (!response.ok) throw Object.assign(new Error(content.error), { status: response.status });
  return content;
}

/** Of two requests in one lane the server answers only the newer. */
export const get = (path, lane = "") => request(path, lane, {});
export const post = (path, body, lane = path) => request(path, lane, { method: "POST", body: JSON.stringify(body) });

/** Calls run one after another; of several that arrive during one, only the last is made. */
export function latest(run) {
  let busy = false;
  let next = null;
  return async function call(...args) {
    if (busy) return void (next = args);
    busy = true;
    try {
      await run(...args);
    } catch (error) {
      if (error.status !== 409 && error.status !== 0) toast(error.message); // replaced, or the banner says it
    }
    busy = false;
    const later = next;
    next = null;
    if (later) call(...later);
  };
}

export function debounce(run, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, milliseconds);
  };
}

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function toast(message) {
  const node = el("div", { class: "toast" }, message);
  $("toasts").replaceChildren(node);
  setTimeout(() => node.remove(), 3200);
}

export async function picture(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  return image;
}

/** Draws a picture, or one cell of a sheet, pixel by pixel. */
export function show(canvas, image, size = [image.naturalHeight, image.naturalWidth], row = 0, column = 0) {
  const [height, width] = size;
  Object.assign(canvas, { width, height });
  canvas.getContext("2d").drawImage(image, column * width, row * height, width, height, 0, 0, width, height);
}

/** Draws one cell of a sheet anywhere, also between pixels, where the browser would mix in the cells beside it. */
export function drawCell(context, image, size, row, column, x, y) {
  const cell = el("canvas");
  show(cell, image, size, row, column);
  context.drawImage(cell, x, y);
}

/** Saves what a canvas shows, enlarged without smoothing. */
export function saveCanvas(canvas, name) {
  const scale = Math.max(1, Math.floor(560 / canvas.width));
  const large = el("canvas", { width: canvas.width * scale, height: canvas.height * scale });
  const context = large.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  el("a", { href: large.toDataURL("image/png"), download: name }).click();
}

/** With one decimal, except for 0% and 100%, which are rounded as well. */
export function percent(p) {
  const text = (100 * p).toFixed(1);
  const atAnEnd = text === "0.0" || text === "100.0";
  return `${atAnEnd ? Number(text) : text}%`;
}

/** Undo and redo of whatever `read` returns and `write` restores. */
export function undoHistory(read, write, limit) {
  const past = [];
  const future = [];
  let last = {};
  const move = (from, to) => {
    const now = read();
    while (from.length && from.at(-1) === now) from.pop();
    last = {};
    if (!from.length) return;
    to.push(now);
    write(from.pop());
  };
  return {
    /** Call it before a change. Changes with the same tag in quick succession are one step. */
    remember(tag) {
      const time = performance.now();
      const continued = tag && tag === last.tag && time - last.time < 1000;
      last = { tag, time };
      if (continued) return;
      past.push(read());
      if (past.length > limit) past.shift();
      future.length = 0;
    },
    undo: () => move(past, future),
    redo: () => move(future, past),
  };
}
