// What the capture worklet hands over becomes frames of the protocol: 20 ms, pcm16 (s16le), each with its media time. Pure.

import { Resampler } from "./resampling.js";

export const FRAME_MS = 20;

export class Framer {
  /** For blocks at `from_hz`, frames at `to_hz`; `start_ms` is the media time of the context's frame number 0. */
  constructor({ from_hz, to_hz, start_ms }) {
    Object.assign(this, { from_hz, to_hz, start_ms });
    this.#samples = new Float32Array(Math.round((to_hz * FRAME_MS) / 1000));
  }

  #samples; // the frame that is being filled
  #count = 0;
  #resampler = null;
  #next_at = null; // frame number that continues what came before
  #begin_ms = 0; // media time at which the unbroken run began
  #n_frames = 0; // of that run

  /** The frames {data: Uint8Array, pts_ms, level} that a block completes. After a gap a new run begins at its own time. */
  push({ samples, at }) {
    if (at !== this.#next_at) this.#begin(at);
    this.#next_at = at + samples.length;
    const frames = [];
    for (const sample of this.#resampler.push(samples)) {
      this.#samples[this.#count++] = sample;
      if (this.#count < this.#samples.length) continue;
      frames.push({ data: toPcm(this.#samples), pts_ms: this.#begin_ms + this.#toMs(this.#n_frames++), level: loudness(this.#samples) });
      this.#count = 0;
    }
    return frames;
  }

  #toMs(n_frames) {
    return (1000 * n_frames * this.#samples.length) / this.to_hz;
  }

  #begin(at) {
    this.#resampler = new Resampler(this.from_hz, this.to_hz);
    this.#begin_ms = this.start_ms + (1000 * at) / this.from_hz;
    this.#count = this.#n_frames = 0;
  }
}

/** Root mean square, drawn out so that speech at arm's length fills half of a meter: 0 to 1. */
function loudness(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return Math.min(1, Math.sqrt(sum / samples.length) * 6);
}

function toPcm(samples) {
  const data = new Uint8Array(2 * samples.length);
  const view = new DataView(data.buffer);
  for (let i = 0; i < samples.length; i++) view.setInt16(2 * i, Math.max(-32768, Math.min(32767, Math.round(samples[i] * 32768))), true);
  return data;
}
