"use strict";

// What `capspoe.sorting.page.page_data` describes. An image is a row of seven.
const data = JSON.parse(document.getElementById("data").textContent);
const FILE = 0, ADDRESS = 1, THUMBNAIL = 2, PERCENT = 3, COPY_OF = 4, EXACT = 5, NEW = 6;
const AT_FIRST = 40; // images of a group that are shown before a click on "show all"
const AT_ONCE = 400; // images that are added at once, so that the page never waits long
const images = data.images;
const leafCount = data.leaves.length;
const copies = new Map(); // from an image to those that are copies of it
images.forEach((image, place) => {
  if (image[COPY_OF] >= 0) {
    if (!copies.has(image[COPY_OF])) copies.set(image[COPY_OF], []);
    copies.get(image[COPY_OF]).push(place);
  }
});

const by = (id) => document.getElementById(id);
const isCopy = (place) => images[place][COPY_OF] >= 0 || copies.has(place);
const FILTERS = [
  ["everything", () => true],
  ["what is there twice", isCopy],
  ["what is new", (place) => images[place][NEW] === 1],
  ["doubtful ones", (place) => images[place][PERCENT] < 50],
];
// Edits: the lines of edits.csv, and what is renamed and moved here. The page cannot write to the disk, so it keeps
// them in the browser and offers them as a new edits.csv.
const edits = new Map(data.edits);
const KEPT = `capspoe edits of ${location.pathname}`;
let edited = false;
try {
  for (const [what, name] of JSON.parse(localStorage.getItem(KEPT) || "[]")) {
    edited = edited || edits.get(what) !== name;
    edits.set(what, name);
  }
} catch { /* some browsers keep nothing for pages from the disk */ }

let visible = []; // places of the images that are shown, in order: for the arrow keys of the viewer
let current = 0;

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function nameOf(group) {
  const [name, , ids] = data.groups[group];
  return (ids.length && edits.get(ids[0])) || name;
}

function edit(what, name) {
  for (const one of what) edits.set(one, name);
  edited = true;
  try { localStorage.setItem(KEPT, JSON.stringify([...edits])); } catch { /* as above */ }
  render();
}

function rename(group) {
  const name = prompt("A name for this group. Two groups with one name become one.", nameOf(group));
  if (name === null) return;
  if (/[\\/]|^\.|[\x00-\x1f]/.test(name)) alert("A name cannot have / or \\ and cannot begin with a dot.");
  else edit(data.groups[group][2], name.trim());
}

function save() {
  const field = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [["group_or_file", "name"], ...edits].map((line) => line.map(field).join(","));
  const file = new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" });
  const link = element("a", { href: URL.createObjectURL(file), download: "edits.csv" });
  link.click();
  alert("Put edits.csv beside this page in place of the old one, and run capspoe sort again.");
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

// The end of a long name says more than its beginning, and so does its start: cut the middle.
function shortName(file) {
  const name = file.slice(file.lastIndexOf("/") + 1);
  return name.length <= 30 ? name : `${name.slice(0, 13)}…${name.slice(-15)}`;
}

// The groups at a level of the slider: stretches of leaves between the boundaries that are left.
function stretches(count) {
  const removed = new Set(data.merges.slice(0, leafCount - count));
  const found = [];
  let first = 0;
  for (let leaf = 0; leaf < leafCount; leaf++) {
    if (leaf === leafCount - 1 || !removed.has(leaf)) {
      found.push(stretch(first, leaf));
      first = leaf + 1;
    }
  }
  nameParts(found);
  if (data.odd[1] > 0) {
    const [start, size, name] = data.odd;
    found.push({ name, note: "unlike all others", first: start, last: start + size - 1, cover: start });
  }
  return found;
}

function stretch(firstLeaf, lastLeaf) {
  const leaves = data.leaves.slice(firstLeaf, lastLeaf + 1);
  const sizes = new Map(); // of the groups in it
  for (const [, size, group] of leaves) sizes.set(group, (sizes.get(group) || 0) + size);
  const [largest] = [...sizes].sort((a, b) => b[1] - a[1])[0];
  const whole = data.leaves.filter((leaf) => leaf[2] === largest).length <= leaves.length;
  const biggestLeaf = leaves.reduce((best, leaf) => (leaf[1] > best[1] ? leaf : best));
  const [last, lastSize] = leaves[leaves.length - 1];
  const others = sizes.size - 1;
  return {
    name: nameOf(largest) + (others > 0 ? ` and ${plural(others, "more group")}` : ""),
    part: !whole,
    alone: whole && others === 0,
    group: largest,
    first: leaves[0][0],
    last: last + lastSize - 1,
    cover: whole ? data.groups[largest][1] : biggestLeaf[3],
  };
}

function nameParts(found) {
  const seen = new Map();
  for (const group of found) {
    if (group.part) {
      seen.set(group.group, (seen.get(group.group) || 0) + 1);
      group.name += `, part ${seen.get(group.group)}`;
    }
  }
}

function tile(place) {
  const image = images[place];
  const picture = element("img", { src: image[THUMBNAIL], loading: "lazy", decoding: "async", alt: "" });
  const link = element("a", { className: "tile", href: image[ADDRESS], title: image[FILE] }, picture);
  link.dataset.place = place;
  let badge = "";
  if (image[COPY_OF] >= 0) badge = image[EXACT] ? "copy" : "near copy";
  else if (image[NEW]) badge = "new";
  if (badge) link.append(element("i", { textContent: badge }));
  link.append(element("span", { textContent: shortName(image[FILE]) }));
  return link;
}

function fill(grid, places, from, count) {
  const until = Math.min(places.length, from + count);
  const piece = document.createDocumentFragment();
  for (let k = from; k < until; k++) piece.append(tile(places[k]));
  grid.append(piece);
  return until;
}

function section(group, places, number) {
  const grid = element("div", { className: "grid" });
  let shown = fill(grid, places, 0, AT_FIRST);
  const title = element("h2", { textContent: group.name });
  const twice = places.filter((place) => images[place][COPY_OF] >= 0).length;
  const fresh = places.filter((place) => images[place][NEW] === 1).length;
  const notes = [plural(places.length, "image"), group.note];
  if (twice) notes.push(`${twice} there twice`);
  if (fresh) notes.push(`${fresh} new`);
  const note = element("span", { textContent: notes.filter(Boolean).join(", ") });
  const head = element("header", {}, title, note);
  if (group.alone && data.groups[group.group][2].length) {
    const button = element("button", { type: "button", className: "small", textContent: "rename" });
    button.addEventListener("click", () => rename(group.group));
    head.append(button);
  }
  const box = element("section", { id: `g${number}` }, head, grid);
  if (shown < places.length) {
    const more = element("button", { className: "more", type: "button" });
    const label = () => { more.textContent = `show ${Math.min(AT_ONCE, places.length - shown).toLocaleString("en")} more`; };
    more.addEventListener("click", () => {
      const focus = grid.children.length;
      shown = fill(grid, places, shown, AT_ONCE);
      grid.children[focus].focus();
      label();
      if (shown === places.length) more.remove();
    });
    label();
    box.append(more);
  }
  return box;
}

function cover(group, places, number) {
  const picture = element("img", { src: images[group.cover][THUMBNAIL], loading: "lazy", alt: "" });
  const count = element("small", { textContent: places.length.toLocaleString("en") });
  return element("a", { href: `#g${number}` }, picture, element("b", { textContent: group.name }), count);
}

function render() {
  const count = Number(by("level").value);
  const chosen = FILTERS[Number(by("filter").value)][1];
  const words = by("search").value.trim().toLowerCase();
  const matches = (place) => chosen(place) && (!words || images[place][FILE].toLowerCase().includes(words));
  const groups = document.createDocumentFragment();
  const covers = document.createDocumentFragment();
  visible = [];
  stretches(count).forEach((group, number) => {
    const places = [];
    for (let place = group.first; place <= group.last; place++) if (matches(place)) places.push(place);
    if (!places.length) return;
    visible.push(...places);
    groups.append(section(group, places, number));
    covers.append(cover(group, places, number));
  });
  if (!visible.length) groups.append(element("p", { className: "nothing", textContent: "No image is like this." }));
  by("groups").replaceChildren(groups);
  by("covers").replaceChildren(covers);
  by("number").textContent = plural(count, "group");
  by("usual").hidden = count === data.groups.length;
  by("save").hidden = !edited;
}

// One image, large.
function show(place) {
  current = place;
  const image = images[place];
  const picture = by("shown");
  // A browser may not know the format of the file.
  picture.onerror = () => { picture.onerror = null; picture.src = image[THUMBNAIL]; };
  picture.src = image[ADDRESS];
  picture.alt = image[FILE];
  by("file").textContent = image[FILE];
  by("original").href = image[ADDRESS];
  const facts = [`${image[PERCENT]}% of its neighbourhood is in its group`];
  if (image[COPY_OF] >= 0) facts.push(`${image[EXACT] ? "the same file as" : "nearly the same as"} ${images[image[COPY_OF]][FILE]}`);
  for (const copy of copies.get(place) || []) facts.push(`also there as ${images[copy][FILE]}`);
  by("facts").textContent = facts.join("; ");
  showGroups(place);
  if (!by("viewer").open) by("viewer").showModal();
}

// The groups that an image can be moved to; the first choice is where it is.
function showGroups(place) {
  const leaf = data.leaves.find(([first, count]) => first <= place && place < first + count);
  const own = leaf ? nameOf(leaf[2]) : data.odd[2];
  const moved = edits.get(images[place][FILE]);
  const names = [...new Set([own, ...data.groups.map((_, group) => nameOf(group))])];
  if (moved && !names.includes(moved)) names.push(moved);
  by("move").replaceChildren(...names.map((name) => element("option", { textContent: name })));
  by("move").value = moved || own;
}

function step(distance) {
  const place = visible[visible.indexOf(current) + distance];
  if (place !== undefined) show(place);
}

// Arrow keys walk over the tiles as they lie on the screen.
function walk(event) {
  const tiles = [...event.target.closest(".grid").children];
  const columns = tiles.filter((other) => other.offsetTop === tiles[0].offsetTop).length;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const next = tiles[tiles.indexOf(event.target) + steps[event.key]];
  if (steps[event.key] && next) {
    event.preventDefault();
    next.focus();
  }
}

function setUp() {
  const level = by("level");
  level.min = Math.min(leafCount, 2);
  level.max = leafCount;
  level.value = data.groups.length;
  level.disabled = leafCount < 3;
  FILTERS.forEach(([title, matches], number) => {
    const count = images.reduce((sum, _, place) => sum + matches(place), 0);
    if (number === 0 || count) {
      by("filter").append(element("option", { value: number, textContent: `${title} (${count.toLocaleString("en")})` }));
    }
  });
  level.addEventListener("input", render);
  by("filter").addEventListener("change", render);
  by("search").addEventListener("input", render);
  by("usual").addEventListener("click", () => { level.value = data.groups.length; render(); });
  by("groups").addEventListener("click", (event) => {
    const link = event.target.closest(".tile");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(Number(link.dataset.place));
  });
  by("groups").addEventListener("keydown", (event) => { if (event.target.matches(".tile")) walk(event); });
  by("save").addEventListener("click", save);
  by("move").addEventListener("change", () => edit([images[current][FILE]], by("move").value));
  by("close").addEventListener("click", () => by("viewer").close());
  by("previous").addEventListener("click", () => step(-1));
  by("next").addEventListener("click", () => step(1));
  by("viewer").addEventListener("click", (event) => { if (event.target === by("viewer")) by("viewer").close(); });
  by("viewer").addEventListener("keydown", (event) => {
    if (event.target === by("move")) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  render();
}

setUp();
