// The network in plain JavaScript: one layer of capsules with the gate, on a convolutional code (model/network.py).

const sigmoid = (v) => 1 / (1 + Math.exp(-v));
const leaky = (v) => (v < 0 ? 0.01 * v : v); // LeakyReLU
const sumOf = (count, term) => {
  let sum = 0;
  for (let k = 0; k < count; k++) sum += term(k);
  return sum;
};

function softmax(values) {
  const largest = Math.max(...values);
  const exps = values.map((v) => Math.exp(v - largest));
  const sum = exps.reduce((a, b) => a + b);
  return exps.map((v) => v / sum);
}

/** The side of the square kernels between `pairs` pairs of channels. */
const kernelOf = (weight, pairs) => Math.round(Math.sqrt(weight.length / pairs));

/** Maps with sides `from` without their last rows and columns, so that they have sides `to`. */
function crop(maps, from, to) {
  const count = maps.length / (from[0] * from[1]);
  const row = (k) => ((Math.floor(k / to[0]) * from[0]) + (k % to[0])) * from[1];
  const rows = Array.from({ length: count * to[0] }, (_, k) => maps.subarray(row(k), row(k) + to[1]));
  const cropped = new Float32Array(count * to[0] * to[1]);
  rows.forEach((values, k) => cropped.set(values, k * to[1]));
  return cropped;
}

/** Base64 of float16 numbers as Float32Array. */
function fromHalves(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return Float32Array.from(new Uint16Array(bytes.buffer), (bits) => {
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
    return bits & 0x8000 ? -size : size;
  });
}

class Network {
  constructor(model) {
    Object.assign(this, model); // see export/web.py
    const all = fromHalves(model.weights);
    let start = 0;
    for (const [name, size] of model.sizes) this[name] = all.subarray(start, (start += size));
    this.middle = [0, 1].map((k) => model.image[k] - model.kernel + 1); // the sides after one convolution
  }

  /** A convolution without padding, or upwards its transpose. One side has sides `wide`, the other `narrow`. */
  convolve(x, weight, bias, wide, [rows, columns], stride, upwards) {
    const [large, small] = [wide[0] * wide[1], rows * columns];
    const size = upwards ? large : small;
    const y = Float32Array.from({ length: bias.length * size }, (_, k) => bias[Math.floor(k / size)]);
    const channels = x.length / (upwards ? small : large);
    const [A, B] = upwards ? [channels, bias.length] : [bias.length, channels]; // of the narrow and the wide side
    const kernel = kernelOf(weight, A * B);
    for (let a = 0, at = 0; a < A; a++)
      for (let b = 0; b < B; b++)
        for (let row = 0; row < kernel; row++)
          for (let column = 0; column < kernel; column++) {
            const w = weight[at++];
            for (let p = 0, n = a * small; p < rows; p++) {
              let l = b * large + (p * stride + row) * wide[1] + column;
              const end = n + columns;
              if (upwards) for (; n < end; n++, l += stride) y[l] += w * x[n];
              else for (; n < end; n++, l += stride) y[n] += w * x[l];
            }
          }
    return y;
  }

  /** Pixels (colours, height, width) in [0, 1] to P(on), the winner, its pose z, and its routing weights. */
  encode(pixels) {
    const { image, middle, code: [C, ...places], mu, a, d, upper: [J], neurons } = this;
    const hidden = this.convolve(pixels, this.down_1, this.down_1_bias, image, middle, 1, false).map(leaky);
    const channels = this.convolve(hidden, this.down_2, this.down_2_bias, middle, places, 2, false);
    const x = mu.map((mean, k) => sigmoid(channels[(k % C) * places[0] * places[1] + Math.floor(k / C)]) - mean);
    const routed = Array.from({ length: J }, (_, j) => this.route(x, j));
    const log = (v) => (neurons === "binary" ? Math.log1p(Math.exp(-Math.abs(v))) + Math.max(v, 0) : (v * v) / 2);
    const on = softmax(routed.map(({ z }, j) =>
      d[j] + sumOf(z.length, (n) => log(z[n])) + sumOf(x.length, (k) => a[j * x.length + k] * x[k])));
    const winner = on.indexOf(Math.max(...on));
    return { on, winner, ...routed[winner] };
  }

  /** Routing to capsule j: its pose z, and the weights r = I c. */
  route(x, j) {
    const { lower: [I, M], upper: [, N], w, b } = this;
    const u = Array.from({ length: I }, (_, i) => Array.from({ length: N }, (_, n) =>
      sumOf(M, (m) => w[((j * N + n) * I + i) * M + m] * x[i * M + m])));
    const sum = (r) => u[0].map((_, n) => sumOf(I, (i) => r[i] * u[i][n]));
    let logits = new Array(I).fill(0);
    const weights = () => softmax(logits).map((c) => I * c);
    for (let step = 1; step < this.iterations; step++) {
      const z = sum(weights());
      logits = logits.map((logit, i) => { // the cosine is 0 where a prediction is
        const size = Math.hypot(...u[i]) * Math.hypot(...z);
        return logit + (size && (this.sharpness * sumOf(N, (n) => u[i][n] * z[n])) / size);
      });
    }
    const r = weights();
    return { r, z: sum(r).map((v, n) => v + b[j * N + n]) };
  }

  /** The image of a capsule with pose z; `r` are routing weights, uniform by default. */
  decode(j, z, r = null) {
    const { lower: [I, M], upper: [, N], w, a, image, middle, code: [C, ...places] } = this;
    const h = this.neurons === "binary" ? z.map(sigmoid) : z;
    const x = new Float32Array(I * M);
    for (let k = 0; k < I * M; k++) {
      const logit = a[j * I * M + k] + sumOf(N, (n) => w[(j * N + n) * I * M + k] * h[n]) * (r ? r[Math.floor(k / M)] : 1);
      const at = (k % C) * places[0] * places[1] + Math.floor(k / C); // channels by position, not position by channels
      x[at] = sigmoid(this.logitScale * Math.max(-13.8155, Math.min(13.8155, logit)));
    }
    const reach = kernelOf(this.up_1, C * C);
    const grown = places.map((side, k) => Math.max(middle[k], 2 * (side - 1) + reach)); // an even kernel may reach further
    const hidden = crop(this.convolve(x, this.up_1, this.up_1_bias, grown, places, 2, true).map(leaky), grown, middle);
    return this.convolve(hidden, this.up_2, this.up_2_bias, image, middle, 1, true).map(sigmoid);
  }

  /** The pose z from a whitened one: 0 is the mean of the capsule's images, 1 a standard deviation. */
  fromWhite(j, white) {
    const { axes, centre, upper: [, N] } = this;
    return white.map((_, n) => centre[j * N + n] + sumOf(N, (k) => axes[(j * N + n) * N + k] * white[k]));
  }

  toWhite(j, z) {
    const { axes, centre, upper: [, N] } = this;
    const along = (k, v) => sumOf(N, (n) => axes[(j * N + n) * N + k] * v(n));
    const lengths = z.map((_, k) => along(k, (n) => axes[(j * N + n) * N + k])); // 0 along axes that do not vary
    return lengths.map((length, k) =>
      length > 1e-10 * Math.max(...lengths) ? along(k, (n) => z[n] - centre[j * N + n]) / length : 0);
  }
}
