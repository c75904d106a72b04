import assert from "node:assert/strict";
import { test } from "node:test";

import { Microphone } from "../../web/microphone.js";
import { settle } from "./double.js";

const RATE_HZ = 48000;

/** A device, its permission and its audio clock, all moved by the test. */
function device({ refusal = null, state = "running" } = {}) {
  const world = { now: 1000, streams: [], contexts: [], nodes: [], asked: [], devices: [{ kind: "audioinput", deviceId: "d0" }], refusal, answer: null };
  const listeners = new Map();
  world.mediaDevices = {
    addEventListener: (name, listener) => listeners.set(name, listener),
    enumerateDevices: async () => world.devices,
    async getUserMedia(wanted) {
      world.asked.push(wanted);
      if (world.answer) await world.answer;
      if (world.refusal) throw Object.assign(new Error("no"), { name: world.refusal });
      const track = { label: `microphone ${world.streams.length}`, muted: false, isStopped: false, stop() { this.isStopped = true; }, getSettings: () => ({ deviceId: `d${world.streams.length - 1}` }) };
      const stream = { getAudioTracks: () => [track], track };
      world.streams.push(stream);
      return stream;
    },
  };
  world.createContext = () => {
    const context = {
      sampleRate: RATE_HZ, currentTime: 0, state, isClosed: false,
      audioWorklet: { addModule: async () => {} },
      createMediaStreamSource: (stream) => ({ stream, connect() {}, disconnect() {} }),
      async resume() { if (state !== "suspended" || context.mayRun) this.state = "running"; },
      async close() { this.isClosed = true; },
    };
    world.contexts.push(context);
    return context;
  };
  world.createNode = () => {
    const node = { port: { posted: [], postMessage(message) { this.posted.push(message); }, onmessage: null } };
    world.nodes.push(node);
    return node;
  };
  world.audioSession = { type: "playback" };
  const mic = new Microphone({ ...world, now: () => world.now });
  const seen = { frames: [], states: [], faults: [], devices: [] };
  mic.onframe = (frame) => seen.frames.push(frame);
  mic.onstate = (name) => seen.states.push(name);
  mic.onfault = (error) => seen.faults.push(error.code);
  mic.ondevice = (label) => seen.devices.push(label);
  let at = 0;
  return {
    world, mic, seen,
    pull: (devices) => ((world.devices = devices), listeners.get("devicechange")()),
    /** The newest node hears `n` blocks; the clock goes along. */
    hear(n, { from = at } = {}) {
      at = from;
      for (let i = 0; i < n; i++, at += 960) {
        world.now += 20;
        world.nodes.at(-1).port.onmessage({ data: { samples: new Float32Array(960).fill(0.1), at } });
      }
    },
  };
}

test("it opens with echo, noise and gain handled, and hands on frames of 20 ms with their media time", async () => {
  const { world, mic, seen, hear } = device();
  await mic.open(16000);
  assert.deepEqual(world.asked[0], { audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 } });
  assert.equal(world.audioSession.type, "play-and-record");
  hear(10);
  assert.deepEqual(seen.frames.map(({ pts_ms, data }) => [pts_ms, data.length]), [0, 1, 2, 3, 4, 5, 6, 7, 8].map((i) => [20 * i, 640]));
  assert.ok(mic.level > 0);
  assert.deepEqual(seen.states, ["opening", "open"]);
});

test("closing lets go of the device and media time runs on while it is closed", async () => {
  const { world, mic, seen, hear } = device();
  await mic.open(16000);
  hear(10);
  mic.close();
  assert.equal(world.streams[0].track.isStopped, true);
  assert.equal(world.contexts[0].isClosed, true);
  assert.equal(world.audioSession.type, "playback");
  const n_before = seen.frames.length;
  world.now += 5000;
  await mic.open(16000);
  hear(3, { from: 0 });
  assert.equal(seen.frames[n_before].pts_ms, 5200);
});

test("media time never goes back, and begins anew for another session", async () => {
  const { world, mic, seen, hear } = device();
  await mic.open(16000);
  hear(50);
  world.now -= 500; // a clock that runs behind the sound
  mic.close();
  await mic.open(16000);
  hear(3, { from: 0 });
  assert.equal(seen.frames[49].pts_ms, 980);
  world.contexts[1].currentTime = 0.06;
  mic.restart();
  hear(3, { from: 2880 });
  assert.equal(seen.frames.at(-2).pts_ms, 0);
});

test("a moment of media time is told on the page's clock", async () => {
  const { mic, hear } = device();
  await mic.open(16000);
  hear(10); // handed on: 9 frames, 180 ms of sound, the last at 1200
  assert.equal(mic.momentOf(180), 1200);
  assert.equal(mic.momentOf(80), 1100);
});

for (const [name, code] of [["NotAllowedError", "microphone_denied"], ["NotFoundError", "no_microphone"], ["NotReadableError", "microphone_busy"], ["TypeError", "no_capture"]]) {
  test(`${name} is told as ${code}, and the microphone can be opened again`, async () => {
    const { world, mic, seen } = device({ refusal: name });
    await assert.rejects(mic.open(16000), { code });
    assert.deepEqual(seen.states, ["opening", "closed"]);
    world.refusal = null;
    await mic.open(16000);
    assert.equal(mic.state, "open");
  });
}

test("a page without TLS is told that it gets no microphone", async () => {
  const mic = new Microphone({ mediaDevices: undefined, now: () => 0 });
  await assert.rejects(mic.open(16000), { code: "microphone_insecure" });
  assert.equal(mic.state, "closed");
});

test("closed while the person is still asked, the device is let go when it comes", async () => {
  const { world, mic } = device();
  let allow;
  world.answer = new Promise((resolve) => (allow = resolve));
  const opening = mic.open(16000);
  mic.close();
  allow();
  await assert.rejects(opening, { code: "microphone_lost" });
  assert.equal(world.streams[0].track.isStopped, true);
  assert.equal(mic.state, "closed");
});

test("two openings at once ask once", async () => {
  const { world, mic } = device();
  await Promise.all([mic.open(16000), mic.open(16000)]);
  assert.equal(world.asked.length, 1);
});

test("a device that is pulled out is followed by another one", async () => {
  const { world, mic, seen, hear } = device();
  await mic.open(16000);
  hear(3);
  world.streams[0].track.onended();
  await settle();
  await settle();
  assert.deepEqual(seen.devices, ["microphone 1"]);
  assert.equal(mic.state, "open");
  assert.deepEqual(seen.faults, []);
});

test("a device that is gone from the list counts as pulled out even if its track goes on", async () => {
  const { mic, seen, pull } = device();
  await mic.open(16000);
  await pull([{ kind: "audioinput", deviceId: "d0" }, { kind: "audioinput", deviceId: "d9" }]);
  assert.deepEqual(seen.devices, []);
  await pull([{ kind: "audiooutput", deviceId: "d0" }]);
  await settle();
  await settle();
  assert.deepEqual(seen.devices, ["microphone 1"]);
});

test("when no other device is there, the loss is told", async () => {
  const { world, mic, seen } = device();
  await mic.open(16000);
  world.refusal = "NotFoundError";
  world.streams[0].track.onended();
  await settle();
  assert.deepEqual(seen.faults, ["microphone_lost"]);
  assert.equal(mic.state, "closed");
});

test("a loss that the person closes over is not told", async () => {
  const { world, mic, seen } = device();
  await mic.open(16000);
  world.refusal = "NotFoundError";
  world.streams[0].track.onended();
  mic.close();
  await settle();
  assert.deepEqual(seen.faults, []);
});

test("a context that the browser holds back is seen, and a gesture wakes it", async () => {
  const { world, mic, seen } = device({ state: "suspended" });
  await mic.open(16000);
  assert.equal(mic.state, "silenced");
  world.contexts[0].mayRun = true;
  await mic.wake();
  world.contexts[0].onstatechange();
  assert.deepEqual(seen.states, ["opening", "silenced", "open"]);
});

test("a system that mutes the device is seen", async () => {
  const { world, mic, hear } = device();
  await mic.open(16000);
  hear(5);
  const { track } = world.streams[0];
  track.muted = true;
  track.onmute();
  assert.deepEqual([mic.state, mic.level], ["silenced", 0]);
  track.muted = false;
  track.onunmute();
  assert.equal(mic.state, "open");
});
