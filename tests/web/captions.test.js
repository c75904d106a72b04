import assert from "node:assert/strict";
import { test } from "node:test";

import { Caption } from "../../web/captions.js";
import { place, summary, verdict } from "../../web/timeline.js";

function caption() {
  const it = new Caption();
  it.addDelta({ text: "The sea is salt. It is deep. And" });
  it.addSegment({ index: 0, text: "The sea is salt. " });
  it.addSegment({ index: 1, text: "It is deep. " });
  return it;
}

test("what no segment holds yet is the tail", () => {
  assert.equal(caption().tail, "And");
  assert.equal(caption().text, "The sea is salt. It is deep. And");
});

test("segments that run ahead of the deltas leave no tail", () => {
  const it = new Caption();
  it.addDelta({ text: "The" });
  it.addSegment({ index: 0, text: "The sea." });
  assert.equal(it.tail, "");
  assert.equal(it.text, "The sea.");
});

test("a segment is lit by its share of the audio that has been heard", () => {
  const it = caption();
  it.addAudio({ index: 0, pts_ms: 0 }, 20);
  it.addAudio({ index: 0, pts_ms: 20 }, 980);
  it.endSegment({ index: 0, audio_ms: 1000, status: "ok" });
  it.addAudio({ index: 1, pts_ms: 1000 }, 500);
  it.endSegment({ index: 1, audio_ms: 500, status: "ok" });
  assert.deepEqual(it.litAt(0), [0, 0]);
  assert.deepEqual(it.litAt(250), [0.25, 0]);
  assert.deepEqual(it.litAt(1250), [1, 0.5]);
  assert.deepEqual(it.litAt(9000), [1, 1]);
});

test("while a segment's audio still arrives its length is guessed, never below what arrived", () => {
  const it = caption();
  it.addAudio({ index: 0, pts_ms: 0 }, 20);
  const guess_ms = 17 * 65;
  assert.equal(it.litAt(guess_ms / 2)[0], 0.5);
  it.addAudio({ index: 0, pts_ms: 20 }, 2 * guess_ms - 20);
  assert.equal(it.litAt(guess_ms)[0], 0.5);
});

test("a segment without a voice is lit once what stands before it is", () => {
  const it = caption();
  it.addAudio({ index: 0, pts_ms: 0 }, 100);
  it.endSegment({ index: 0, audio_ms: 100, status: "ok" });
  it.endSegment({ index: 1, audio_ms: 0, status: "no_voice" });
  assert.deepEqual(it.litAt(50), [0.5, 0]);
  assert.deepEqual(it.litAt(100), [1, 1]);
});

test("stages are placed on the strip and judged against the promise", () => {
  assert.deepEqual([-5, 0, 300, 600, 900, 5000].map((ms) => Math.round(place(ms))), [0, 0, 33, 67, 100, 100]);
  assert.deepEqual([300, 301, 600, 601].map(verdict), ["good", "fair", "fair", "late"]);
  assert.equal(summary({}), "Waiting for the first word");
  assert.equal(summary({ ttft: 52.4 }), "First word after 52 ms, within 300 ms");
  assert.equal(summary({ ttft: 52, segment: 180, audio: 290, sound: 712 }), "First sound after 712 ms, later than 600 ms");
});
