// The page: pick a capsule or draw something, and move the pose.

const network = new Network(MODEL);
const $ = (id) => document.getElementById(id);
const [J, N] = network.upper;
const [HEIGHT, WIDTH, COLOURS] = network.image;
const FEW = 6; // sliders shown at first
const EDGE = 3; // standard deviations
const name = (j) => (network.labels[j] ? `mostly ${network.labels[j][0]}` : `capsule ${j}`);
const zeros = () => new Array(N).fill(0);
let [capsule, pose, weights, shown] = [0, zeros(), null, FEW];

function show(canvas, pixels) {
  const image = new ImageData(WIDTH, HEIGHT);
  image.data.forEach((_, k, data) => {
    const [place, colour] = [k >> 2, k & 3];
    data[k] = colour === 3 ? 255 : 255 * pixels[Math.min(colour, COLOURS - 1) * WIDTH * HEIGHT + place];
  });
  Object.assign(canvas, { width: WIDTH, height: HEIGHT });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const decoded = (j, white, r = null) => network.decode(j, network.fromWhite(j, white), r);

function draw() {
  show($("picture"), decoded(capsule, pose, weights));
}

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

function drawSliders() {
  $("sliders").replaceChildren(...network.sliders[capsule].slice(0, shown).map(([k, label]) => {
    const [low, high] = label ? label.split(" ↔ ") : [`dimension ${k}`, ""];
    const row = document.createElement("div");
    row.className = "slider";
    row.innerHTML = `<canvas></canvas><input type="range" min="${-EDGE}" max="${EDGE}" step="0.05" value="${pose[k]}">
      <canvas></canvas><div class="ends"><span></span><span></span></div>`;
    const [left, input, right, ends] = row.children;
    [ends.children[0].textContent, ends.children[1].textContent] = [low, high];
    input.ariaLabel = label ?? low;
    input.addEventListener("input", () => {
      pose[k] = Number(input.value);
      draw();
    });
    for (const [canvas, at] of [[left, -EDGE], [right, EDGE]])
      show(canvas, decoded(capsule, pose.with(k, at), weights));
    row.append(ends, right);
    return row;
  }));
  $("more").textContent = shown < N ? `Show all ${N} dimensions` : `Show the ${FEW} strongest`;
}

// A drawing: scaled to the size of the training images' objects, with its centre of mass in the middle.

function fromPad() {
  const { data, width, height } = $("pad").getContext("2d").getImageData(0, 0, 280, 280);
  const light = (x, y) => data[4 * (y * width + x)];
  const inked = { x: [], y: [] };
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) if (light(x, y) > 50) inked.x.push(x), inked.y.push(y);
  if (!inked.x.length) return null;
  const range = (list) => list.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
  const [[left, right], [top, bottom]] = [range(inked.x), range(inked.y)];
  const [wide, tall] = [right - left + 1, bottom - top + 1];
  const scale = (network.objectSize * Math.max(WIDTH, HEIGHT)) / Math.max(wide, tall);
  const [w, h] = [[wide, WIDTH], [tall, HEIGHT]].map(([side, most]) => Math.min(most, Math.max(1, Math.round(side * scale))));
  const small = new Float32Array(w * h).map((_, k) => { // the mean over the pixels of the pad below each pixel
    const [x0, x1] = [k % w, (k % w) + 1].map((x) => left + Math.round((x * wide) / w));
    const [y0, y1] = [Math.floor(k / w), Math.floor(k / w) + 1].map((y) => top + Math.round((y * tall) / h));
    let sum = 0;
    for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) sum += light(x, y);
    return sum / Math.max(1, (x1 - x0) * (y1 - y0)) / 255;
  });
  const [mass, most] = [small.reduce((a, b) => a + b), small.reduce((a, b) => Math.max(a, b))];
  const start = (at, side, full) => Math.max(0, Math.min(full - side, Math.round(full / 2 - at / mass)));
  const dx = start(small.reduce((sum, v, k) => sum + v * ((k % w) + 0.5), 0), w, WIDTH);
  const dy = start(small.reduce((sum, v, k) => sum + v * (Math.floor(k / w) + 0.5), 0), h, HEIGHT);
  const pixels = new Float32Array(COLOURS * WIDTH * HEIGHT);
  small.forEach((v, k) => (pixels[(dy + Math.floor(k / w)) * WIDTH + dx + (k % w)] = v / most));
  return pixels;
}

function recognise() {
  const pixels = fromPad();
  if (!pixels) return;
  const { on, winner, z, weights: r } = network.encode(pixels);
  const back = network.decode(winner, z, r);
  const error = back.reduce((sum, v, k) => sum + (v - pixels[k]) ** 2, 0) / pixels.length;
  const odd = network.error !== null && error > network.error;
  $("verdict").className = odd ? "odd" : "note";
  $("verdict").textContent = odd ? `Unlike anything it was trained on. The nearest is ${name(winner)}.`
    : `Looks like ${name(winner)} (${Math.round(100 * on[winner])}%). Its pose is on the sliders now.`;
  choose(winner, network.toWhite(winner, z), r);
}

$("about").textContent = `These ${J} learned from the images of ${network.name} alone: nobody told them what the images show.`;
for (let j = 0; j < J; j++) {
  const tile = document.createElement("button");
  tile.title = `Capsule ${j}`;
  tile.append(document.createElement("canvas"), network.labels[j]?.[0] ?? String(j));
  tile.ariaLabel = `Capsule ${j}, ${name(j)}`;
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
  const clear = () => {
    pad.clear();
    $("verdict").textContent = "";
    $("hint").hidden = false;
  };
  $("clear").addEventListener("click", clear);
  clear();
} else $("drawing").remove();
choose(0);
