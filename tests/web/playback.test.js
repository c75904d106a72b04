import assert from "node:assert/strict";
import { test } from "node:test";

const QUANTUM = 128; // samples that a browser asks for at once
let Playback;
globalThis.sampleRate = 24000;
globalThis.currentFrame = 0;
globalThis.currentTime = 0;
globalThis.registerProcessor = (_name, kind) => (Playback = kind);
globalThis.AudioWorkletProcessor = class {
  constructor() {
    this.port = { posted: [], postMessage: (message) => this.port.posted.push(message), onmessage: null };
  }
};
await import("../../web/worklets/playback.js");

function player() {
  const node = new Playback();
  const send = (data) => node.port.onmessage({ data });
  return {
    send,
    take: (turn, n, value = 0.5) => send({ take: { turn, samples: new Float32Array(n).fill(value) } }),
    end: (turn) => send({ end: turn }),
    play(n_quanta = 1) {
      const heard = [];
      for (let i = 0; i < n_quanta; i++) {
        const out = new Float32Array(QUANTUM);
        assert.equal(node.process([], [[out]]), true);
        heard.push(...out);
        globalThis.currentFrame += QUANTUM;
        globalThis.currentTime = globalThis.currentFrame / 24000;
      }
      return heard;
    },
    report() {
      send({ report: true });
      return node.port.posted.at(-1);
    },
    samplesOf(turn) {
      return this.report().turns.find((entry) => entry.turn === turn)?.samples;
    },
  };
}

const silence = (n) => Array(n).fill(0);

test("frames follow each other without a gap and are counted for their turn", () => {
  const p = player();
  const ramp = Float32Array.from({ length: 300 }, (_, i) => i / 300);
  p.send({ take: { turn: 1, samples: ramp.slice(0, 100) } });
  p.send({ take: { turn: 1, samples: ramp.slice(100) } });
  p.end(1);
  assert.deepEqual(p.play(3).slice(0, 300), [...ramp]);
  const { frames_played, underruns, queued } = p.report();
  assert.deepEqual({ frames_played, underruns, queued }, { frames_played: 2, underruns: 0, queued: 0 });
  assert.equal(p.samplesOf(1), 300);
});

test("the first sample's time is the audio clock's", () => {
  const p = player();
  p.play(10);
  const start = globalThis.currentFrame;
  p.take(3, 256);
  p.end(3);
  p.play(2);
  const [turn] = p.report().turns;
  assert.equal(turn.first_at, start / 24000);
  assert.equal(turn.last_at, (start + 256) / 24000);
});

test("a new turn in the middle of a quantum has counts of its own", () => {
  const p = player();
  p.take(1, 100, 0.1);
  p.take(2, 100, 0.2);
  p.end(2);
  const heard = p.play(2);
  assert.equal(heard[99].toFixed(1), "0.1");
  assert.equal(heard[100].toFixed(1), "0.2");
  assert.equal(p.samplesOf(1), 100);
  assert.equal(p.samplesOf(2), 100);
  assert.equal(p.report().underruns, 0);
});

test("a flush fades out within 12 ms, drops the turn, and counts only what sounded", () => {
  const p = player();
  p.take(1, 24000);
  p.play(2);
  p.send({ flush: 1, isRunning: true });
  const heard = p.play(4);
  const n_fading = heard.findIndex((sample) => sample === 0);
  assert.ok(n_fading > 200 && n_fading <= 288, `faded for ${n_fading} samples`);
  for (let i = 1; i < n_fading; i++) assert.ok(heard[i] < heard[i - 1]);
  assert.deepEqual(heard.slice(n_fading), silence(heard.length - n_fading));
  const { flushed, queued, frames_dropped } = p.report();
  assert.deepEqual({ flushed, queued, frames_dropped }, { flushed: 1, queued: 0, frames_dropped: 1 });
  assert.equal(p.samplesOf(1), 256 + n_fading);
});

test("late frames of a flushed turn are dropped and the next turn plays at full loudness", () => {
  const p = player();
  p.take(1, 24000);
  p.play(1);
  p.send({ flush: 1, isRunning: true });
  p.take(1, 1000);
  p.take(2, 2000, 0.75); // louder than anything that fades
  const heard = p.play(8);
  assert.ok(p.samplesOf(2) > 700);
  assert.equal(p.samplesOf(2), heard.filter((sample) => sample === 0.75).length);
});

test("a flush while no sound comes out takes effect at once", () => {
  const p = player();
  p.take(1, 5000);
  p.send({ flush: 1, isRunning: false });
  assert.equal(p.report().queued, 0);
  assert.equal(p.report().flushed, 1);
});

test("a pause fades, holds its place, and a resume goes on from there", () => {
  const p = player();
  const ramp = Float32Array.from({ length: 4800 }, (_, i) => (i + 1) / 4800);
  p.send({ take: { turn: 1, samples: ramp } });
  p.play(2);
  p.send({ pause: true });
  p.play(4);
  const held = p.samplesOf(1);
  assert.deepEqual(p.play(10), silence(1280));
  assert.equal(p.samplesOf(1), held);
  p.send({ resume: true });
  const heard = p.play(4);
  assert.equal(heard.at(-1), ramp[held + 512 - 1]);
  assert.equal(p.report().underruns, 0);
});

test("silence in the middle of a turn is an underrun, and play goes on once 60 ms wait", () => {
  const p = player();
  p.take(1, 12 * 128);
  p.play(14);
  assert.equal(p.report().underruns, 0); // it may have been the end
  p.take(1, 480);
  assert.deepEqual(p.play(1), silence(128));
  p.take(1, 960);
  assert.equal(p.play(1)[0], 0.5);
  const { underruns, underrun_samples } = p.report();
  assert.deepEqual({ underruns, underrun_samples }, { underruns: 1, underrun_samples: 3 * 128 });
});

test("after a gap a lone frame is held back for at most 100 ms", () => {
  const p = player();
  p.take(1, 12 * 128);
  p.play(14);
  p.take(1, 480);
  const heard = p.play(25);
  assert.equal(heard.findIndex((sample) => sample !== 0), 19 * 128); // 101 ms
});

test("a turn starts once 60 ms wait, or 30 ms after its first frame", () => {
  const p = player();
  p.take(1, 480);
  assert.deepEqual(p.play(2), silence(256));
  p.take(1, 2400);
  assert.equal(p.play(1)[0], 0.5);
  const late = player();
  late.take(1, 480);
  assert.equal(late.play(10).findIndex((sample) => sample !== 0), 6 * 128); // 32 ms
});

test("a short last frame is not held back once the turn's end is known", () => {
  const p = player();
  p.take(1, 1536);
  p.play(13);
  p.take(1, 100);
  p.end(1);
  assert.equal(p.play(1)[0], 0.5);
});

test("silence between two turns is no underrun", () => {
  const p = player();
  p.take(1, 1536);
  p.play(20);
  p.take(2, 1536);
  p.play(20);
  assert.equal(p.report().underruns, 0);
});

test("a reset forgets turns and their numbers", () => {
  const p = player();
  p.take(5, 2000);
  p.play(1);
  p.send({ flush: 5, isRunning: true });
  p.play(5);
  p.send({ reset: true });
  assert.deepEqual(p.report().turns, []);
  p.take(1, 2000);
  assert.equal(p.play(1)[0], 0.5);
});

test("a full queue drops what comes and says so", () => {
  const p = player();
  for (let i = 0; i < 4100; i++) p.take(1, 1);
  assert.equal(p.report().frames_dropped, 4);
  assert.equal(p.report().queued, 4096);
});
