// What the page is about: the run, the capsules that are on with their numbers, the image that was shown.
// Everything that matters can be undone, and is in the address of the page.

import { debounce } from "./api.js";

export const state = {
  run: null,
  view: "play",
  capsule: 0, // the one whose numbers are on the sliders
  on: {}, // capsule -> numbers in standard deviations
  locks: {}, // capsule -> Set of numbers that stay
  image: null, // {index} or {data}, as the server takes it
  blend: { first: { index: 0 }, last: { index: 1 }, t: 0.5 },
};

const listeners = {};
export const listen = (event, listener) => (listeners[event] ??= []).push(listener);
export function emit(event, detail) {
  for (const listener of listeners[event] ?? []) listener(detail);
}

export const zeros = () => Array(state.run.numbers).fill(0);
export const locked = () => (state.locks[state.capsule] ??= new Set());
export const gated = () => state.run.gate !== "none";

// Undo

const past = [];
const future = [];
const snapshot = () => JSON.stringify({ capsule: state.capsule, on: state.on });

/** Call before a change that a person may want back. */
export function remember() {
  const now = snapshot();
  if (past.at(-1) !== now) past.push(now);
  if (past.length > 200) past.shift();
  future.length = 0;
}

function travel(from, to) {
  let target = from.pop();
  const now = snapshot();
  while (target === now) target = from.pop();
  if (!target) return;
  to.push(now);
  Object.assign(state, JSON.parse(target));
  changed();
}
export const undo = () => travel(past, future);
export const redo = () => travel(future, past);
export const canUndo = () => past.some((one) => one !== snapshot());
export const canRedo = () => future.length > 0;

/** The numbers or the choice of capsules changed in one go (not while a slider moves). */
export function changed() {
  emit("numbers");
  writeAddress();
}

// Capsules

export function choose(capsule) {
  const values = state.on[capsule] ?? zeros();
  state.on = gated() ? { [capsule]: values } : { ...state.on, [capsule]: values };
  state.capsule = capsule;
}

/** Without the gate several capsules can be on; one always is. */
export function switchOff(capsule) {
  const rest = { ...state.on };
  delete rest[capsule];
  if (!Object.keys(rest).length) return;
  state.on = rest;
  if (state.capsule === capsule) state.capsule = Number(Object.keys(rest)[0]);
}

// The address

const short = (value) => String(Math.round(value * 1000) / 1000);
const wordOf = (image) =>
  image == null ? null
  : image.index != null ? `i${image.index}`
  : image.on ? `s${wordOfOn(image.on)}`
  : `d${image.data.split(",")[1].replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
const wordOfOn = (on) => Object.entries(on).map(([j, values]) => `${j}:${values.map(short).join(",")}`).join(";");

function onOf(text) {
  const on = {};
  for (const part of text.split(";")) {
    const [j, list] = part.split(":");
    const values = (list ?? "").split(",").map(Number);
    const capsule = Number(j);
    if (!Number.isInteger(capsule) || capsule < 0 || capsule >= state.run.capsules) return null;
    if (values.length !== state.run.numbers || values.some((v) => !Number.isFinite(v) || Math.abs(v) > 100)) return null;
    on[capsule] = values;
  }
  return gated() && Object.keys(on).length !== 1 ? null : on;
}

function imageOf(text) {
  if (!text) return null;
  const rest = text.slice(1);
  if (text[0] === "i" && /^\d{1,9}$/.test(rest)) return { index: Number(rest) };
  if (text[0] === "s") {
    const on = onOf(rest);
    return on && { on };
  }
  if (text[0] === "d" && /^[\w-]+$/.test(rest))
    return { data: `data:image/png;base64,${padded(rest.replaceAll("-", "+").replaceAll("_", "/"))}`, fit: false };
  return null;
}
const padded = (text) => text + "=".repeat((4 - (text.length % 4)) % 4);

function address() {
  const words = new URLSearchParams({ view: state.view, capsule: state.capsule, on: wordOfOn(state.on) });
  if (locked().size) words.set("lock", [...locked()].join(","));
  if (state.image) words.set("image", wordOf(state.image));
  if (state.view === "blend") {
    words.set("from", wordOf(state.blend.first));
    words.set("to", wordOf(state.blend.last));
    words.set("t", state.blend.t);
  }
  return `#${words.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%3B", ";")}`;
}

let written = "";
export const writeAddress = debounce(writeAddressNow, 250);
export function writeAddressNow() {
  if (!state.run?.capsules) return; // a link that waits for the first checkpoint stays as it is
  const text = address();
  if (text === written) return;
  written = text;
  history.replaceState(null, "", text);
}

/** Restores what a link says; whatever in it makes no sense for this run is left out. Whether its numbers fit. */
export function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const view = words.get("view");
  if (["play", "recognise", "blend", "training"].includes(view)) state.view = view;
  const on = words.has("on") ? onOf(words.get("on")) : null;
  if (on) {
    state.on = on;
    const capsule = Number(words.get("capsule"));
    state.capsule = capsule in on ? capsule : Number(Object.keys(on)[0]);
    const locks = (words.get("lock") ?? "").split(",").filter(Boolean).map(Number);
    state.locks[state.capsule] = new Set(locks.filter((n) => n >= 0 && n < state.run.numbers));
  }
  state.image = imageOf(words.get("image")) ?? state.image;
  const t = Number(words.get("t"));
  state.blend = {
    first: imageOf(words.get("from")) ?? state.blend.first,
    last: imageOf(words.get("to")) ?? state.blend.last,
    t: words.has("t") && t >= 0 && t <= 1 ? t : state.blend.t,
  };
  return !words.has("on") || on !== null;
}

export const isOwnAddress = () => location.hash === written;
