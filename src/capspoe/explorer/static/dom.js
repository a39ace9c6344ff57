// Small helpers for elements, pictures and messages.

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c != null));
  return node;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export async function picture(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  return image;
}

/** Shows a whole image, or one cell of a sheet, in a canvas of exactly its pixels. */
export function show(canvas, image, cell = null) {
  const { x, y, width, height } = cell ?? { x: 0, y: 0, width: image.naturalWidth, height: image.naturalHeight };
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.getContext("2d").drawImage(image, x, y, width, height, 0, 0, width, height);
}

export function blank(canvas) {
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
}

export const cellOf = (run, column) => ({
  x: column * run.image[1],
  y: 0,
  width: run.image[1],
  height: run.image[0],
});

export function toast(message) {
  const node = el("div", { class: "toast" }, message);
  $("toasts").replaceChildren(node);
  setTimeout(() => node.remove(), 3200);
}

/** Says what went wrong, unless a newer request took this one's place or the banner says it already. */
export function complain(error) {
  if (error.status !== 409 && error.status !== 0) toast(error.message);
}

/** Downloads what a canvas shows, enlarged pixel by pixel to at least the given side. */
export function download(canvas, name, side = 560) {
  const scale = Math.max(1, Math.floor(side / Math.max(canvas.width, 1)));
  const large = el("canvas");
  large.width = canvas.width * scale;
  large.height = canvas.height * scale;
  const context = large.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  large.toBlob((blob) => {
    const url = URL.createObjectURL(blob);
    saveAs(url, name);
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }, "image/png");
}

export function saveAs(url, name) {
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

/** The theme that was chosen here before: auto, light or dark. */
export function storedTheme() {
  try {
    return localStorage.getItem("theme") ?? "auto";
  } catch {
    return "auto"; // private windows may refuse storage
  }
}

export function applyTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const percent = (p) => (p > 0.9995 ? "100 %" : p < 0.001 ? "0 %" : `${(100 * p).toFixed(1)} %`);
