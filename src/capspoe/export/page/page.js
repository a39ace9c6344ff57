// The page: pick a capsule or draw something, and move the pose.

const network = new Network(MODEL);
const $ = (id) => document.getElementById(id);
const [J, N] = network.upper;
const [HEIGHT, WIDTH, COLOURS] = network.image;
const [FEW, EDGE] = [6, 3]; // sliders shown at first; standard deviations to either side
const name = (j) => (network.labels[j] ? `mostly ${network.labels[j][0]}` : `capsule ${j}`);
const zeros = () => new Array(N).fill(0);
const decoded = (j, white, r = null) => network.decode(j, network.fromWhite(j, white), r);
let [capsule, pose, weights, shown] = [0, zeros(), null, FEW];
let ends = []; // the pictures at the ends of the sliders: a canvas, the dimension k of its slider, and where pose[k] is there
let stale = []; // those that show an earlier pose, in the order in which they are redrawn
let frame = 0; // the animation frame in which the next one is

function show(canvas, pixels) {
  const image = new ImageData(WIDTH, HEIGHT);
  image.data.forEach((_, k, data) => {
    data[k] = k % 4 === 3 ? 255 : 255 * pixels[Math.min(k % 4, COLOURS - 1) * WIDTH * HEIGHT + (k >> 2)];
  });
  Object.assign(canvas, { width: WIDTH, height: HEIGHT });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const draw = () => show($("picture"), decoded(capsule, pose, weights));

/** Switches a capsule on. `r` are the routing weights of a drawing, which stay until another capsule is chosen. */
function choose(j, white = zeros(), r = null) {
  [capsule, pose, weights] = [j, white, r];
  [...$("tiles").children].forEach((tile, k) => tile.setAttribute("aria-pressed", k === j));
  const [label, share] = network.labels[j] ?? [];
  $("title").textContent = label ? `Mostly ${label}` : `Capsule ${j}`;
  $("note").textContent = label ? `Capsule ${j}: ${Math.round(100 * share)}% of its test images are labelled ${label}. It never saw a label.` : "";
  draw();
  drawSliders();
}

const drawEnd = ({ canvas, k, at }) => show(canvas, decoded(capsule, pose.with(k, at), weights));

/** Redraws one end picture in each animation frame: to decode all of them would take several frames. */
function drawStale() {
  drawEnd(stale.shift());
  if (stale.length) frame = requestAnimationFrame(drawStale);
}

/** Lets the end pictures follow after slider k moved. Its own do not depend on where it is. */
function redrawEnds(k) {
  const waiting = stale.length > 0;
  stale.push(...ends.filter((end) => end.k !== k && !stale.includes(end)));
  if (!waiting && stale.length) frame = requestAnimationFrame(drawStale);
}

function drawSliders() {
  cancelAnimationFrame(frame);
  stale = [];
  ends = [];
  $("sliders").replaceChildren(...network.sliders[capsule].slice(0, shown).map(([k, label]) => {
    const row = $("slider").content.cloneNode(true);
    const [low, high] = label?.split(" ↔ ") ?? [`dimension ${k}`, ""];
    const input = row.querySelector("input");
    Object.assign(input, { min: -EDGE, max: EDGE, value: pose[k], ariaLabel: label ?? low });
    row.querySelectorAll("span").forEach((end, side) => (end.textContent = [low, high][side]));
    row.querySelectorAll("canvas").forEach((canvas, side) => ends.push({ canvas, k, at: side ? EDGE : -EDGE }));
    input.addEventListener("input", () => {
      pose[k] = Number(input.value);
      draw();
      redrawEnds(k);
    });
    return row;
  }));
  ends.forEach(drawEnd);
  $("more").textContent = shown < N ? `Show all ${N} dimensions` : `Show the ${FEW} strongest`;
}

/** The drawing, scaled to the size of the training images' objects, with its centre of mass in the middle. */
function fromPad() {
  const side = $("pad").width;
  const { data } = $("pad").getContext("2d").getImageData(0, 0, side, side);
  const light = (x, y) => data[4 * (y * side + x)];
  const all = Array.from({ length: side }, (_, k) => k);
  const columns = all.filter((x) => all.some((y) => light(x, y) > 50));
  const rows = all.filter((y) => all.some((x) => light(x, y) > 50));
  if (!rows.length) return null;
  const [left, top] = [columns[0], rows[0]];
  const [wide, tall] = [columns.at(-1) - left + 1, rows.at(-1) - top + 1];
  const scale = (network.objectSize * Math.max(WIDTH, HEIGHT)) / Math.max(wide, tall);
  const [w, h] = [[wide, WIDTH], [tall, HEIGHT]].map(([s, most]) => Math.min(most, Math.max(1, Math.round(s * scale))));
  const small = new Float32Array(w * h).map((_, k) => { // the mean of the pixels of the pad below each pixel
    const [x0, x1] = [0, 1].map((d) => left + Math.round((((k % w) + d) * wide) / w));
    const [y0, y1] = [0, 1].map((d) => top + Math.round(((Math.floor(k / w) + d) * tall) / h));
    return sumOf(y1 - y0, (y) => sumOf(x1 - x0, (x) => light(x0 + x, y0 + y))) / Math.max(1, (x1 - x0) * (y1 - y0));
  });
  const mass = small.reduce((a, b) => a + b);
  const start = (at, inner, full) =>
    Math.max(0, Math.min(full - inner, Math.round(full / 2 - sumOf(w * h, (k) => small[k] * (at(k) + 0.5)) / mass)));
  const [dx, dy] = [start((k) => k % w, w, WIDTH), start((k) => Math.floor(k / w), h, HEIGHT)];
  const [pixels, most] = [new Float32Array(WIDTH * HEIGHT), Math.max(...small)];
  small.forEach((v, k) => (pixels[(dy + Math.floor(k / w)) * WIDTH + dx + (k % w)] = v / most));
  return network.dark ? pixels.map((v) => 1 - v) : pixels;
}

function recognise() {
  const pixels = fromPad();
  if (!pixels) return;
  const { on, winner, z, r } = network.encode(pixels);
  const back = network.decode(winner, z, r);
  const error = sumOf(pixels.length, (k) => (back[k] - pixels[k]) ** 2) / pixels.length;
  const odd = network.error !== null && error > network.error;
  $("verdict").className = odd ? "odd" : "note";
  $("verdict").textContent = odd ? `Unlike anything it was trained on. The nearest is ${name(winner)}.`
    : `Capsule ${winner} is on (${Math.round(100 * on[winner])}%)${network.labels[winner] ? `: ${name(winner)}` : ""}. Its pose is on the sliders now.`;
  choose(winner, network.toWhite(winner, z), r);
}

function clear(pad) {
  pad.clear();
  $("verdict").textContent = "";
  $("hint").hidden = false;
}

$("about").textContent = `These ${J} learned from the images of ${network.name} alone: nobody told them what the images show.`;
for (let j = 0; j < J; j++) {
  const tile = Object.assign(document.createElement("button"), { title: `Capsule ${j}`, ariaLabel: `Capsule ${j}, ${name(j)}` });
  tile.append(document.createElement("canvas"), network.labels[j]?.[0] ?? String(j));
  tile.addEventListener("click", () => choose(j));
  show(tile.firstChild, decoded(j, zeros()));
  $("tiles").append(tile);
}
const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
$("random").addEventListener("click", () => choose(capsule, zeros().map(normal)));
$("mean").addEventListener("click", () => choose(capsule));
$("more").addEventListener("click", () => {
  shown = shown < N ? N : FEW;
  drawSliders();
});
if (network.objectSize && COLOURS === 1) {
  const pad = setUpPad($("pad"), () => ($("hint").hidden = true), () => {}, recognise);
  $("clear").addEventListener("click", () => clear(pad));
  clear(pad);
} else $("drawing").remove();
choose(0);
