"use strict";

// What `capspoe.sorting.page.page_data` describes. An image is a row of seven.
const data = JSON.parse(document.getElementById("data").textContent);
const FILE = 0, ADDRESS = 1, THUMBNAIL = 2, PERCENT = 3, COPY_OF = 4, EXACT = 5, NEW = 6;
const AT_FIRST = 40; // images of a group that are shown before a click on "show more"; fewer if there are many groups
const LEAST_AT_FIRST = 12;
const TILES = 2400; // of all groups at first, so that the slider never waits long
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
// Edits: what is renamed, merged and moved, as lines of edits.csv. `before` are those that the page was made with. The
// explorer serves the page with those of now, and writes every change. A page from the disk cannot write: it keeps them
// in the browser and offers them as a new edits.csv.
const SERVED = "now" in data;
const KEPT = `capspoe edits of ${location.pathname}`;
const before = new Map(data.edits);
const edits = new Map(SERVED ? data.now : data.edits);
const done = []; // what each change replaced, for "undo"
let kept = []; // edits that are only in this browser
try {
  if (!SERVED) kept = JSON.parse(localStorage.getItem(KEPT) || "[]").filter(([what, name]) => edits.get(what) !== name);
} catch { /* some browsers keep nothing for pages from the disk */ }
for (const [what, name] of kept) edits.set(what, name);

let visible = []; // places of the images that are shown, in order
let walked = []; // those that the arrow keys of the viewer go through: moving an image does not change them
let shownSections = [];
let current = 0;

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// The name of a group: what a person called it here, or what it was called when the page was made.
function nameOf(group) {
  const [name, , ids] = data.groups[group];
  const now = edits.get(ids[0]);
  return now === undefined || now === before.get(ids[0]) ? name : now || ids[0];
}

// The group that an image was moved to since the page was made, or null.
function movedTo(place) {
  const file = images[place][FILE];
  const now = edits.get(file);
  return now && now !== before.get(file) ? now : null;
}

// Everything that has the name of a section: groups, and images that were moved to it.
function membersOf(section) {
  const files = [...edits].filter(([what, name]) => name === section.name && !section.ids.includes(what));
  return [...section.ids, ...files.map(([what]) => what)];
}

async function edit(changes, remember = true) {
  const old = changes.map(([what]) => [what, edits.get(what) ?? ""]);
  const apply = (pairs) => { for (const [what, name] of pairs) edits.set(what, name); };
  apply(changes);
  if (remember) done.push(old);
  render();
  if (SERVED) {
    try {
      const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ edits: changes }) };
      const answer = await fetch("../api/edits", options);
      const content = await answer.json();
      if (!answer.ok) throw new Error(content.error);
      by("saved").textContent = "saved";
    } catch (error) {
      apply(old);
      if (remember) done.pop();
      render();
      by("saved").textContent = `not saved: ${error.message}`;
    }
  } else {
    try { localStorage.setItem(KEPT, JSON.stringify([...edits])); } catch { /* as above */ }
  }
}

// A small form in the head of a section: `lead` says what the field is. Escape closes it.
function ask(head, lead, field, word, accept) {
  const close = () => { form.replaceWith(...hidden); hidden.find((node) => node.matches("button"))?.focus(); };
  const cancel = element("button", { type: "button", className: "small", textContent: "cancel" });
  const form = element("form", { className: "asking" }, element("span", { textContent: lead }), field,
    element("button", { className: "small", textContent: word }), cancel);
  const hidden = [...head.children].slice(1); // all but the title
  cancel.addEventListener("click", close);
  form.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  field.addEventListener("input", () => field.setCustomValidity(""));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    accept(field.value.trim());
  });
  for (const node of hidden) node.remove();
  head.append(form);
  field.focus();
  field.select?.();
}

function rename(section, head) {
  const field = element("input", { value: section.name, maxLength: 80, required: true });
  field.ariaLabel = "a name for this group";
  ask(head, "", field, "rename", (name) => {
    if (/[\\/]|^\.|[\x00-\x1f]/.test(name)) {
      field.setCustomValidity("A name cannot have / or \\ and cannot begin with a dot.");
      field.reportValidity();
    } else change(section, name);
  });
}

// Give a whole section a name, which may be that of another one, and return the keyboard to where it now is.
function change(section, name) {
  edit(membersOf(section).map((what) => [what, name]));
  const title = [...document.querySelectorAll("#groups h2")].find(({ textContent }) => textContent === name);
  title?.parentElement.querySelector("button")?.focus();
}

function merge(section, head) {
  const others = shownSections.filter((other) => other !== section && (other.ids.length || other.made));
  const field = element("select", {}, ...others.map(({ name }) => element("option", { textContent: name })));
  field.ariaLabel = `the group that ${section.name} becomes a part of`;
  ask(head, "into", field, "merge", (name) => change(section, name));
}

function save() {
  const field = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [["group_or_file", "name"], ...edits].map((line) => line.map(field).join(","));
  const file = new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" });
  const link = element("a", { href: URL.createObjectURL(file), download: "edits.csv" });
  link.click();
  by("saved").textContent = "put edits.csv beside this page and run capspoe sort again";
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

// The end of a long name says more than its beginning, and so does its start: cut the middle.
function shortName(file) {
  const name = file.slice(file.lastIndexOf("/") + 1);
  return name.length <= 30 ? name : `${name.slice(0, 13)}…${name.slice(-15)}`;
}

const folderOf = (file) => file.slice(0, Math.max(0, file.lastIndexOf("/")));
const severalFolders = new Set(images.map((image) => folderOf(image[FILE]))).size > 1;

// The folder that most of these images come from, if it is one among several, and how many do.
function commonFolder(places) {
  const counts = new Map();
  for (const place of places) {
    const folder = folderOf(images[place][FILE]);
    counts.set(folder, (counts.get(folder) || 0) + 1);
  }
  const [folder, count] = [...counts].reduce((best, other) => (other[1] > best[1] ? other : best));
  const common = severalFolders && 2 * count > places.length;
  return common ? { folder, count } : { folder: "", count: 0 };
}

// The same in words.
function originOf(places) {
  const { folder, count } = commonFolder(places);
  if (!folder) return "";
  return `${count === places.length ? "all" : count.toLocaleString("en")} from ${folder}`;
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
    const [first, size, name] = data.odd;
    const places = Array.from({ length: size }, (_, k) => first + k);
    found.push({ name, note: "unlike all others", odd: true, places, cover: first, holds: [name], ids: [] });
  }
  return found;
}

// The sections of the page: groups of one name are one section, and images are where a person has moved them.
function sections(count) {
  const found = [];
  for (const group of stretches(count)) {
    const same = group.alone && found.find((other) => other.alone && other.name === group.name);
    if (same) {
      same.places = same.places.concat(group.places);
      same.ids = same.ids.concat(group.ids);
    } else found.push(group);
  }
  const moved = images.map((_, place) => place).filter(movedTo);
  for (const place of moved) {
    const name = movedTo(place);
    let target = found.find((section) => section.holds.includes(name));
    if (!target) {
      target = { name, places: [], cover: place, holds: [name], ids: [], alone: true, made: true };
      found.push(target);
    }
    for (const section of found) {
      if (section !== target && section.places.includes(place)) section.places = section.places.filter((other) => other !== place);
    }
    if (!target.places.includes(place)) target.places.push(place);
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
    holds: [...sizes.keys()].map(nameOf),
    ids: whole && others === 0 ? data.groups[largest][2] : [],
    places: Array.from({ length: last + lastSize - leaves[0][0] }, (_, k) => leaves[0][0] + k),
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
  const share = Math.round(TILES / shownSections.length);
  let shown = fill(grid, places, 0, Math.min(AT_FIRST, Math.max(LEAST_AT_FIRST, share)));
  const title = element("h2", { textContent: group.name });
  const twice = places.filter((place) => images[place][COPY_OF] >= 0).length;
  const fresh = places.filter((place) => images[place][NEW] === 1).length;
  const notes = [plural(places.length, "image"), group.note, originOf(places)];
  if (twice) notes.push(`${twice} there twice`);
  if (fresh) notes.push(`${fresh} new`);
  const note = element("span", { textContent: notes.filter(Boolean).join(", ") });
  const head = element("header", {}, title, note);
  if (group.ids.length || group.made) {
    for (const [word, action] of [["rename", rename], ["merge", merge]]) {
      const button = element("button", { type: "button", className: "small", textContent: word });
      button.ariaLabel = `${word} ${group.name}`;
      button.addEventListener("click", () => action(group, head));
      head.append(button);
    }
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
  // Where images are looked for, one of them.
  const best = places.includes(group.cover) ? group.cover : places[0];
  const picture = element("img", { src: images[best][THUMBNAIL], loading: "lazy", alt: "" });
  // A group that nobody has named shows the folder that most of its images come from.
  const unnamed = group.ids.includes(group.name);
  const origin = unnamed ? commonFolder(places).folder.split("/").pop() : "";
  const words = [places.length.toLocaleString("en"), origin].filter(Boolean).join(" · ");
  const note = element("small", { textContent: words });
  return element("a", { href: `#g${number}` }, picture, element("b", { textContent: group.name }), note);
}

function render() {
  const count = Number(by("level").value);
  const chosen = FILTERS[Number(by("filter").value)][1];
  const words = by("search").value.trim().toLowerCase();
  const matches = (place) => chosen(place) && (!words || images[place][FILE].toLowerCase().includes(words));
  const groups = document.createDocumentFragment();
  const covers = document.createDocumentFragment();
  visible = [];
  let groupsShown = 0;
  shownSections = sections(count);
  shownSections.forEach((group, number) => {
    const places = group.places.filter(matches);
    if (!places.length) return;
    visible.push(...places);
    if (!group.odd) groupsShown++;
    groups.append(section(group, places, number));
    covers.append(cover(group, places, number));
  });
  if (!visible.length) {
    const reason = words ? `No file name here contains “${words}”.` : "There are no such images.";
    groups.append(element("p", { className: "nothing", textContent: reason }));
  }
  by("groups").replaceChildren(groups);
  by("covers").replaceChildren(covers);
  const groupsInAll = shownSections.filter(({ odd }) => !odd).length;
  const some = groupsShown < groupsInAll ? `${groupsShown} of ` : "";
  by("number").textContent = some + plural(groupsInAll, "group");
  // Its place stays free, or the page would move under the slider.
  by("usual").style.visibility = count === data.groups.length ? "hidden" : "visible";
  by("undo").hidden = !done.length;
  by("save").hidden = SERVED || !(done.length || kept.length);
}

// One image, large.
function show(place) {
  current = place;
  const image = images[place];
  const picture = by("shown");
  // A browser may not know the format of the file.
  picture.onload = () => picture.style.setProperty("--ratio", picture.naturalWidth / picture.naturalHeight || 1);
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
  if (!by("viewer").open) {
    walked = visible;
    by("viewer").showModal();
  }
}

// The groups that an image can be moved to; the first choice is where it is.
function showGroups(place) {
  const leaf = data.leaves.find(([first, count]) => first <= place && place < first + count);
  const own = leaf ? nameOf(leaf[2]) : data.odd[2];
  const moved = movedTo(place);
  const names = [...new Set([own, ...data.groups.map((_, group) => nameOf(group)), data.odd[2]])];
  if (moved && !names.includes(moved)) names.push(moved);
  by("move").replaceChildren(...names.map((name) => element("option", { textContent: name })));
  by("move").value = moved || own;
}

function step(distance) {
  const place = walked[walked.indexOf(current) + distance];
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
  // A group that is jumped to begins below the bar, which has one line or several.
  const bar = by("tools");
  const clearBar = () => { document.documentElement.style.scrollPaddingTop = `${bar.offsetHeight + 8}px`; };
  new ResizeObserver(clearBar).observe(bar);
  by("covers").addEventListener("click", clearBar); // the observer may not have run yet
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
  by("usual").addEventListener("click", () => { level.value = data.groups.length; render(); level.focus(); });
  by("groups").addEventListener("click", (event) => {
    const link = event.target.closest(".tile");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(Number(link.dataset.place));
  });
  by("groups").addEventListener("keydown", (event) => { if (event.target.matches(".tile")) walk(event); });
  by("tools").addEventListener("submit", (event) => event.preventDefault());
  by("save").addEventListener("click", save);
  by("undo").addEventListener("click", () => { const old = done.pop(); edit(old, false); });
  by("move").addEventListener("change", () => edit([[images[current][FILE], by("move").value]]));
  by("close").addEventListener("click", () => by("viewer").close());
  by("previous").addEventListener("click", () => step(-1));
  by("next").addEventListener("click", () => step(1));
  // The tile that had the focus may be gone, or another image may be shown by now.
  by("viewer").addEventListener("close", () => document.querySelector(`.tile[data-place="${current}"]`)?.focus());
  by("viewer").addEventListener("click", (event) => { if (event.target === by("viewer")) by("viewer").close(); });
  by("viewer").addEventListener("keydown", (event) => {
    if (event.target === by("move")) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  render();
}

setUp();
