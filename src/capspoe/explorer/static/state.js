// What the page is about: the run, the poses, the image. All of it is in the address, so that a link restores it.

import { debounce, emit, undoHistory } from "./lib.js";

export const state = {
  run: null, // the answer of /api/run
  view: "", // until the run says which view suits its images
  capsule: 0, // the one whose pose is on the sliders
  on: [], // the capsules that are on
  poses: {}, // capsule -> pose in standard deviations; capsules that are off keep theirs
  image: null, // the image that was recognised, as the server takes it: {index} or {data, fit}
  two: null, // the image with two objects
};

export const zeros = () => Array(state.run.dimensions).fill(0);
export const pose = (capsule = state.capsule) => (state.poses[capsule] ??= zeros());
export const posesOn = () => Object.fromEntries(state.on.map((j) => [j, pose(j)]));

/** The poses or the choice of capsules changed at once, not by dragging a slider. */
export function posesChanged() {
  emit("poses");
  writeAddress();
}

/** Takes over poses, {capsule: pose}, and switches all other capsules off. */
export function setPoses(poses, capsule) {
  Object.assign(state.poses, poses);
  state.on = Object.keys(poses).map(Number);
  state.capsule = state.on.includes(capsule) ? capsule : state.on[0];
}

const snapshot = () => JSON.stringify({ capsule: state.capsule, on: state.on, poses: state.poses });
function restore(text) {
  Object.assign(state, JSON.parse(text));
  posesChanged();
}
export const poseHistory = undoHistory(snapshot, restore, 200);

// The address

const textOfPoses = () =>
  Object.entries(posesOn()).map(([j, pose]) => `${j}:${pose.map((v) => Math.round(v * 1000) / 1000)}`).join(";");

function textOfImage(image) {
  if (image.index != null) return `i${image.index}`;
  return `d${image.data.split(",")[1].replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

function readPoses(text) {
  const poses = {};
  for (const part of text.split(";")) {
    const [j, list = ""] = part.split(":");
    const pose = list.split(",").map(Number);
    if (!/^\d{1,4}$/.test(j) || Number(j) >= state.run.capsules || pose.length !== state.run.dimensions) return null;
    if (!pose.every((v) => Math.abs(v) <= 100)) return null;
    poses[Number(j)] = pose;
  }
  return state.run.gated && Object.keys(poses).length !== 1 ? null : poses;
}

function readImage(text) {
  if (/^i\d{1,9}$/.test(text)) return { index: Number(text.slice(1)) };
  if (!/^d[\w-]+$/.test(text)) return null;
  const base64 = text.slice(1).replaceAll("-", "+").replaceAll("_", "/");
  return { data: `data:image/png;base64,${base64.padEnd(Math.ceil(base64.length / 4) * 4, "=")}`, fit: false };
}

function address() {
  const fields = new URLSearchParams({ run: state.run.name, view: state.view, capsule: state.capsule, on: textOfPoses() });
  if (state.image) fields.set("image", textOfImage(state.image));
  if (state.view === "two" && state.two) fields.set("two", textOfImage(state.two));
  return `#${fields.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%3B", ";")}`;
}

/** `add` makes an entry in the browser's history, so that Back returns to the view before. */
export function writeAddressNow(add = false) {
  if (!state.on.length) return; // a link that waits for the first checkpoint stays as it is
  history[add ? "pushState" : "replaceState"]({ view: state.view }, "", address());
}
export const writeAddress = debounce(writeAddressNow, 250);

/** Restores what a link says and fits this run. Returns the image to recognise, and whether the poses fit. */
export function readAddress(views) {
  const fields = new URLSearchParams(location.hash.slice(1));
  state.view = views.includes(fields.get("view")) ? fields.get("view") : state.view || state.run.view;
  const poses = fields.has("on") ? readPoses(fields.get("on")) : null;
  if (poses) setPoses(poses, Number(fields.get("capsule")));
  state.two = readImage(fields.get("two"));
  const own = (fields.get("run") ?? state.run.name) === state.run.name;
  return { image: readImage(fields.get("image")), fits: own && (!fields.has("on") || poses !== null) };
}
