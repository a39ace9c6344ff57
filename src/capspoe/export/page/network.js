// The network in plain JavaScript: one gated layer of capsules on a convolutional code (core/network.py).

const sigmoid = (v) => 1 / (1 + Math.exp(-v));
const leaky = (v) => (v < 0 ? 0.01 * v : v); // LeakyReLU

function softmax(values) {
  const largest = Math.max(...values);
  const exps = values.map((v) => Math.exp(v - largest));
  const sum = exps.reduce((a, b) => a + b);
  return exps.map((v) => v / sum);
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
    const [[height, width], k] = [model.image, model.kernel - 1];
    this.middle = [height - k, width - k]; // the sides after one convolution
  }

  /** A convolution without padding, or upwards its transpose. The wide side has sides `wide`, the other `narrow`. */
  convolve(x, weight, bias, wide, narrow, stride, upwards) {
    const { kernel } = this;
    const [rows, columns] = narrow;
    const [large, small] = [wide[0] * wide[1], rows * columns];
    const channels = x.length / (upwards ? small : large);
    const size = upwards ? large : small;
    const y = Float32Array.from({ length: bias.length * size }, (_, k) => bias[Math.floor(k / size)]);
    const [A, B] = upwards ? [channels, bias.length] : [bias.length, channels]; // of the narrow and the wide side
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

  /** Between channels by position (c, h, w) and capsules of neighbouring channels (h, w, c). */
  rearrange(values, toCapsules) {
    const [C, places] = [this.code[0], this.code[1] * this.code[2]];
    return values.map((_, k) => values[toCapsules ? (k % C) * places + Math.floor(k / C) : (k % places) * C + Math.floor(k / places)]);
  }

  /** Pixels (colours, height, width) in [0, 1] to P(on), the winner, its pose z, and its routing weights. */
  encode(pixels) {
    const { image, middle, code, lower: [I, M], upper: [J, N], w, mu, a, b, d } = this;
    const hidden = this.convolve(pixels, this.down_1, this.down_1_bias, image, middle, 1, false).map(leaky);
    const channels = this.convolve(hidden, this.down_2, this.down_2_bias, middle, code.slice(1), 2, false);
    const x = this.rearrange(channels.map(sigmoid), true).map((v, k) => v - mu[k]);
    const c = this.route(x);
    const z = Array.from({ length: J }, (_, j) => Float64Array.from({ length: N }, (_, n) => {
      let sum = b[j * N + n];
      for (let i = 0, k = 0; i < I; i++) for (let m = 0; m < M; m++, k++) sum += c[j][i] * w[(j * N + n) * I * M + k] * x[k];
      return sum;
    }));
    const log = (v) => (this.neurons === "binary" ? Math.log1p(Math.exp(-Math.abs(v))) + Math.max(v, 0) : (v * v) / 2);
    const logits = z.map((row, j) => {
      let sum = d[j] + row.reduce((total, v) => total + log(v), 0);
      for (let k = 0; k < x.length; k++) sum += a[j * x.length + k] * x[k];
      return sum;
    });
    const on = softmax(logits);
    const winner = on.indexOf(Math.max(...on));
    return { on, winner, z: z[winner], weights: c[winner] };
  }

  /** Routing weights r = fan c of every upper capsule. */
  route(x) {
    const { lower: [I, M], upper: [J, N], w, iterations, sharpness, overLower } = this;
    const logits = Array.from({ length: J }, () => new Array(I).fill(0));
    const weights = () => {
      if (overLower) return logits.map((row) => softmax(row).map((v) => v * I));
      const columns = logits[0].map((_, i) => softmax(logits.map((row) => row[i])));
      return logits.map((row, j) => row.map((_, i) => columns[i][j] * J));
    };
    if (iterations === 1) return weights();
    const u = new Float64Array(J * I * N); // predictions
    for (let j = 0; j < J; j++)
      for (let i = 0; i < I; i++)
        for (let n = 0; n < N; n++)
          for (let m = 0; m < M; m++) u[(j * I + i) * N + n] += w[(j * N + n) * I * M + i * M + m] * x[i * M + m];
    for (let step = 1; step < iterations; step++) {
      const r = weights();
      for (let j = 0; j < J; j++) {
        const z = new Float64Array(N);
        for (let i = 0; i < I; i++) for (let n = 0; n < N; n++) z[n] += r[j][i] * u[(j * I + i) * N + n];
        const length = Math.hypot(...z);
        for (let i = 0; i < I; i++) {
          const one = u.subarray((j * I + i) * N, (j * I + i + 1) * N);
          const size = Math.hypot(...one) * length;
          if (size > 0) logits[j][i] += (sharpness * one.reduce((sum, v, n) => sum + v * z[n], 0)) / size;
        }
      }
    }
    return weights();
  }

  /** The image of a capsule with pose z; `r` are routing weights, uniform by default. */
  decode(capsule, z, r = null) {
    const { lower: [I, M], upper: [, N], w, a, image, middle, code } = this;
    const h = this.neurons === "binary" ? z.map(sigmoid) : z;
    const x = new Float32Array(I * M).map((_, k) => {
      let logit = 0;
      for (let n = 0; n < N; n++) logit += w[(capsule * N + n) * I * M + k] * h[n];
      logit = a[capsule * I * M + k] + logit * (r ? r[Math.floor(k / M)] : 1);
      return sigmoid(this.logitScale * Math.max(-13.8155, Math.min(13.8155, logit)));
    });
    const hidden = this.convolve(this.rearrange(x, false), this.up_1, this.up_1_bias, middle, code.slice(1), 2, true).map(leaky);
    return this.convolve(hidden, this.up_2, this.up_2_bias, image, middle, 1, true).map(sigmoid);
  }

  /** The pose z from a whitened one: 0 is the capsule's mean, 1 a standard deviation of its own images. */
  fromWhite(j, pose) {
    const N = this.upper[1];
    return pose.map((_, n) => pose.reduce((sum, v, k) => sum + this.axes[(j * N + n) * N + k] * v, this.centre[j * N + n]));
  }

  toWhite(j, z) {
    const N = this.upper[1];
    const axis = (k) => Array.from({ length: N }, (_, n) => this.axes[(j * N + n) * N + k]);
    const lengths = Array.from({ length: N }, (_, k) => axis(k).reduce((sum, v) => sum + v * v, 0));
    return lengths.map((length, k) => length <= 1e-10 * Math.max(...lengths) ? 0
      : axis(k).reduce((sum, v, n) => sum + v * (z[n] - this.centre[j * N + n]), 0) / length);
  }
}
