import assert from "node:assert/strict";
import { test } from "node:test";

import { Framer } from "../../web/framing.js";
import { Resampler } from "../../web/resampling.js";

const QUANTUM = 128; // samples that a browser hands over at once
let Capture;
globalThis.currentFrame = 0;
globalThis.sampleRate = 48000;
globalThis.registerProcessor = (_name, kind) => (Capture = kind);
globalThis.AudioWorkletProcessor = class {
  constructor() {
    this.port = { posted: [], postMessage: (message) => this.port.posted.push(structuredClone(message)), onmessage: null };
  }
};
await import("../../web/worklets/capture.js");

/** A worklet that hears `wave(n)`, n samples after the context's start, quantum by quantum. */
function worklet(rate_hz, at = 0) {
  globalThis.sampleRate = rate_hz;
  globalThis.currentFrame = at;
  const node = new Capture();
  return {
    posted: node.port.posted,
    hear(n_quanta, wave = (n) => n) {
      for (let i = 0; i < n_quanta; i++) {
        assert.equal(node.process([[Float32Array.from({ length: QUANTUM }, (_, k) => wave(globalThis.currentFrame + k))]]), true);
        globalThis.currentFrame += QUANTUM;
      }
    },
    hearNothing(n_quanta) {
      for (let i = 0; i < n_quanta; i++) node.process([[]]);
      globalThis.currentFrame += n_quanta * QUANTUM;
    },
    close() {
      node.port.onmessage({ data: { close: true } });
      return node.process([[new Float32Array(QUANTUM)]]);
    },
  };
}

const tone = (hz, rate_hz, loudness = 0.5) => (n) => loudness * Math.sin((2 * Math.PI * hz * n) / rate_hz);
const samplesOf = (frame) => new Int16Array(frame.data.buffer);

/** Frames at 16 kHz of `n_ms` of a wave at `from_hz`. */
function frames(from_hz, n_ms, wave, start_ms = 0) {
  const heard = worklet(from_hz);
  heard.hear(Math.ceil((n_ms * from_hz) / 1000 / QUANTUM), wave);
  const framer = new Framer({ from_hz, to_hz: 16000, start_ms });
  return heard.posted.flatMap((block) => framer.push(block));
}

for (const [rate_hz, n_samples] of [[48000, 960], [44100, 882], [16000, 320], [11025, 221]]) {
  test(`at ${rate_hz} Hz blocks of 20 ms follow each other without a gap, each with the place of its first sample`, () => {
    const heard = worklet(rate_hz, 5 * QUANTUM);
    heard.hear(40);
    assert.equal(heard.posted.length, Math.floor((40 * QUANTUM) / n_samples));
    heard.posted.forEach(({ samples, at }, i) => {
      assert.equal(samples.length, n_samples);
      assert.equal(at, 5 * QUANTUM + i * n_samples);
      assert.deepEqual([samples[0], samples.at(-1)], [at, at + n_samples - 1]);
    });
  });
}

test("what stood before a gap is not joined to what comes after it", () => {
  const heard = worklet(16000);
  heard.hear(2);
  heard.hearNothing(3);
  heard.hear(3);
  assert.deepEqual(heard.posted.map(({ samples, at }) => [samples[0], at]), [[640, 640]]);
});

test("a closed worklet lets the browser drop it", () => {
  assert.equal(worklet(48000).close(), false);
});

for (const from_hz of [48000, 44100, 96000, 32000, 22050, 16000, 8000]) {
  test(`speech at ${from_hz} Hz arrives at 16 kHz: as long, as loud, at its time`, () => {
    const hz = 440;
    const made = frames(from_hz, 1000, tone(hz, from_hz));
    assert.ok(made.length >= 48 && made.length <= 50, `${made.length} frames`);
    const want = tone(hz, 16000);
    let worst = 0;
    made.forEach((frame, i) => {
      assert.equal(frame.data.length, 640);
      assert.equal(frame.pts_ms, 20 * i);
      samplesOf(frame).forEach((sample, k) => {
        if (i > 0) worst = Math.max(worst, Math.abs(sample / 32768 - want(320 * i + k)));
      });
    });
    assert.ok(worst < 0.001, `off by ${worst}`);
  });
}

test("what 16 kHz cannot hold is stopped, and does not fold back", () => {
  for (const hz of [8100, 9000, 12000, 15900]) {
    const loudest = Math.max(...frames(48000, 500, tone(hz, 48000)).slice(1).flatMap((frame) => [...samplesOf(frame)].map(Math.abs)));
    assert.ok(loudest < 32768 * 0.5 * 0.001, `${hz} Hz left ${loudest}`);
  }
});

test("the pieces in which sound comes do not change it", () => {
  const wave = Float32Array.from({ length: 5000 }, (_, n) => Math.sin(n * n * 1e-4));
  const whole = new Resampler(44100, 16000).push(wave);
  const inPieces = new Resampler(44100, 16000);
  const pieces = [];
  for (let at = 0, length = 1; at < wave.length; at += length, length = (length * 7) % 41 || 1) pieces.push(...inPieces.push(wave.slice(at, at + length)));
  assert.deepEqual(pieces, [...whole]);
});

test("after a gap the media time jumps with the sound", () => {
  const framer = new Framer({ from_hz: 16000, to_hz: 16000, start_ms: 500 });
  const block = (at) => framer.push({ samples: new Float32Array(320), at });
  assert.deepEqual([block(320), block(640), block(16000), block(16320)].flat().map(({ pts_ms }) => pts_ms), [520, 540, 1500, 1520]);
});

test("samples beyond full scale are clipped, not wrapped", () => {
  const framer = new Framer({ from_hz: 16000, to_hz: 16000, start_ms: 0 });
  const [frame] = framer.push({ samples: Float32Array.from({ length: 320 }, (_, n) => (n % 2 ? 1.5 : -1.5)), at: 0 });
  assert.deepEqual([...samplesOf(frame).slice(0, 2)], [-32768, 32767]);
});

test("the level is 0 in silence, rises with loudness, and never passes 1", () => {
  const levels = [0, 0.01, 0.1, 1].map((loudness) => frames(16000, 100, tone(300, 16000, loudness)).at(-1).level);
  assert.equal(levels[0], 0);
  assert.ok(levels[0] < levels[1] && levels[1] < levels[2] && levels[2] < levels[3]);
  assert.equal(levels[3], 1);
});

test("rates that are none are refused", () => {
  for (const [from_hz, to_hz] of [[0, 16000], [44100, 0], [44100.5, 16000], [NaN, 16000]]) assert.throws(() => new Resampler(from_hz, to_hz), RangeError);
});
