// Sample-rate conversion of a stream: a windowed sinc, one filter for each of the phases between the two rates. Pure.
//
// Output sample k stands at input time k * from / to exactly (the filter's delay is taken off), so that times stay true. The
// filter passes speech up to 0.41 of the lower rate (6.6 kHz at 16 kHz) and stops, by 70 dB, what would fold back.

const ZERO_CROSSINGS = 24; // on each side: what that edge takes; 2.3 million multiplications for a second of sound at 48 kHz
const CUTOFF = 0.457; // of the lower rate: the middle of the edge
const KAISER_BETA = 7; // 70 dB

export class Resampler {
  /** From one rate to another, whole numbers of Hz. Throws RangeError for what is none. */
  constructor(from_hz, to_hz) {
    if (!(Number.isInteger(from_hz) && Number.isInteger(to_hz) && from_hz > 0 && to_hz > 0)) throw new RangeError(`rates ${from_hz} and ${to_hz}, expected whole numbers above 0`);
    const divisor = greatestDivisor(from_hz, to_hz);
    this.#step = from_hz / divisor;
    this.#n_phases = to_hz / divisor;
    this.#half = Math.ceil((ZERO_CROSSINGS * from_hz) / Math.min(from_hz, to_hz));
    this.#filters = from_hz === to_hz ? null : filters(this.#n_phases, this.#half, (CUTOFF * Math.min(from_hz, to_hz)) / from_hz);
    this.#waiting = new Float32Array(this.#half); // before the first sample there was silence
  }

  #step; // input samples for `n_phases` output samples
  #n_phases;
  #half; // input samples on each side of an output sample
  #filters;
  #waiting; // input that later output still needs
  #phase = 0; // of the next output sample, in 1 / n_phases of an input sample past `waiting[half]`

  /** The output that `samples` (Float32Array) complete; the newest 1.5 ms of the input (at 16 kHz) are kept for the next call. */
  push(samples) {
    if (!this.#filters) return samples;
    const input = new Float32Array(this.#waiting.length + samples.length);
    input.set(this.#waiting);
    input.set(samples, this.#waiting.length);
    const n_taps = 2 * this.#half;
    const n_ready = input.length - n_taps + 1; // positions whose whole filter is there
    const output = new Float32Array(Math.max(0, Math.ceil((n_ready * this.#n_phases - this.#phase) / this.#step)));
    let at = 0;
    for (let k = 0; k < output.length; k++) {
      const filter = this.#filters[this.#phase];
      let sum = 0;
      for (let i = 0; i < n_taps; i++) sum += filter[i] * input[at + i];
      output[k] = sum;
      this.#phase += this.#step;
      at += Math.floor(this.#phase / this.#n_phases);
      this.#phase %= this.#n_phases;
    }
    this.#waiting = input.slice(at); // a step is shorter than the filter, so `at` is never beyond the end
    return output;
  }
}

/** For each phase the weights of the input from `half - 1` before to `half` after the sample at or before the output. */
function filters(n_phases, half, cutoff) {
  return Array.from({ length: n_phases }, (_, phase) => {
    const filter = Float32Array.from({ length: 2 * half }, (_, i) => {
      const distance = i - half - phase / n_phases;
      return 2 * cutoff * sinc(2 * cutoff * distance) * kaiser(distance / half);
    });
    const sum = filter.reduce((total, weight) => total + weight, 0);
    return filter.map((weight) => weight / sum); // each phase passes a constant unchanged
  });
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function kaiser(x) {
  return Math.abs(x) >= 1 ? 0 : besselI0(KAISER_BETA * Math.sqrt(1 - x * x)) / besselI0(KAISER_BETA);
}

/** Modified Bessel function of order 0, by its power series. */
function besselI0(x) {
  let term = 1;
  let sum = 1;
  for (let k = 1; term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

function greatestDivisor(a, b) {
  return b === 0 ? a : greatestDivisor(b, a % b);
}
