import assert from "node:assert/strict";
import { test } from "node:test";

import { floorOf } from "../../web/floor.js";
import { Talking } from "../../web/talking.js";
import { Utterances } from "../../web/utterances.js";
import { Clock, settle } from "./double.js";

/** A session and a microphone that note what is asked of them. */
function setting({ refusal = null, commitError = null } = {}) {
  const sent = [];
  const clock = new Clock();
  const session = {
    audio_in: { codec: "pcm16", rate_hz: 16000 },
    sendAudio: (_data, pts_ms) => sent.push(pts_ms),
    commit: async () => (commitError ? Promise.reject(commitError) : sent.push("commit")),
    clear: async () => sent.push("clear"),
    mute: async (on) => sent.push(on ? "mute" : "unmute"),
    update: async ({ turn_detection }) => sent.push(turn_detection),
  };
  const microphone = {
    state: "closed", restarts: 0, opened_at: [], gate: null,
    async open(rate_hz) {
      this.opened_at.push(rate_hz);
      if (this.gate) await this.gate;
      if (refusal) throw refusal;
      this.state = "open";
    },
    close() { this.state = "closed"; },
    restart() { this.restarts++; },
  };
  const talking = new Talking(session, microphone, clock);
  const seen = { faults: [], holds: 0, modes: [] };
  talking.onfault = (error) => seen.faults.push(error.code);
  talking.onhold = () => seen.holds++;
  talking.onchange = () => seen.modes.at(-1) !== talking.mode && seen.modes.push(talking.mode);
  return { talking, microphone, clock, sent, seen, hear: (pts_ms) => microphone.onframe({ data: new Uint8Array(640), pts_ms }) };
}

test("while held, what is heard goes out, and letting go commits it with its last sound", async () => {
  const { talking, clock, sent, seen, hear } = setting();
  await talking.press();
  hear(0);
  assert.deepEqual(sent, []); // it may be a tap
  await clock.advance(400);
  assert.equal(seen.holds, 1);
  hear(20);
  talking.release();
  hear(40); // was said before the button came up
  await clock.advance(100);
  assert.deepEqual(sent, ["push_to_talk", 0, 20, 40, "commit"]);
  hear(60);
  assert.equal(sent.at(-1), "commit");
  assert.equal(talking.mode, "off");
});

test("the device stays open for the next hold, and not for ever", async () => {
  const { talking, microphone, clock } = setting();
  for (let i = 0; i < 3; i++) {
    await talking.press();
    await clock.advance(500);
    talking.release();
    await clock.advance(15_000);
    assert.equal(microphone.state, "open");
  }
  await clock.advance(6_000);
  assert.equal(microphone.state, "closed");
});

test("a tap turns hands-free on, and another one off", async () => {
  const { talking, microphone, clock, sent, seen, hear } = setting();
  await talking.press();
  hear(0); // somebody began to speak at once
  await clock.advance(100);
  talking.release();
  assert.equal(talking.mode, "free");
  await clock.advance(60_000);
  hear(20);
  assert.deepEqual(sent, [0, 20]);
  assert.equal(seen.holds, 0);
  await talking.press();
  await clock.advance(100);
  talking.release();
  assert.deepEqual([talking.mode, microphone.state], ["off", "closed"]);
});

test("a tap that is over before the device is there still means hands-free", async () => {
  const { talking, microphone, clock } = setting();
  let allow;
  microphone.gate = new Promise((resolve) => (allow = resolve));
  const pressing = talking.press();
  await clock.advance(100);
  talking.release();
  await clock.advance(5_000);
  allow();
  await pressing;
  assert.equal(talking.mode, "free");
});

test("a hold that is over before the device is there sends nothing", async () => {
  const { talking, microphone, clock, sent, hear } = setting();
  let allow;
  microphone.gate = new Promise((resolve) => (allow = resolve));
  const pressing = talking.press();
  await clock.advance(2_000);
  talking.release();
  allow();
  await pressing;
  hear(0);
  await clock.advance(1_000);
  assert.equal(talking.mode, "off");
  assert.deepEqual(sent, []);
});

test("the server is told when the button and hands-free change, and a new session what holds", async () => {
  const { talking, clock, sent } = setting();
  for (const ms of [400, 400, 100]) {
    await talking.press();
    await clock.advance(ms);
    talking.release();
    await clock.advance(1_000);
  }
  assert.deepEqual(sent, ["push_to_talk", "commit", "commit", "auto"]);
  await talking.toggle();
  await talking.press();
  await clock.advance(400);
  talking.restart();
  assert.deepEqual(sent.slice(4), ["push_to_talk", "push_to_talk"]);
});

test("a short touch of the space bar sends nothing and changes nothing", async () => {
  const { talking, clock, sent, hear } = setting();
  await talking.press();
  hear(0);
  await clock.advance(50);
  talking.release({ canTap: false });
  assert.equal(talking.mode, "off");
  await clock.advance(1_000);
  assert.deepEqual(sent, []);
});

test("a hold that is abandoned is not committed", async () => {
  const { talking, clock, sent, hear } = setting();
  await talking.press();
  hear(0);
  await clock.advance(2_000);
  talking.abandon();
  talking.release();
  await clock.advance(1_000);
  assert.deepEqual(sent, ["push_to_talk", 0, "clear"]);
});

test("pressed again at once, two holds are one utterance", async () => {
  const { talking, clock, sent, hear } = setting();
  await talking.press();
  await clock.advance(400);
  hear(0);
  talking.release();
  await clock.advance(30);
  await talking.press();
  await clock.advance(400);
  hear(400);
  talking.release();
  await clock.advance(1_000);
  assert.deepEqual(sent, ["push_to_talk", 0, 400, "commit"]);
});

test("a tap right after a hold commits what the hold had said", async () => {
  const { talking, clock, sent, hear } = setting();
  await talking.press();
  await clock.advance(400);
  hear(0);
  talking.release();
  await clock.advance(30);
  await talking.press();
  await clock.advance(30);
  talking.release();
  await clock.advance(1_000);
  assert.deepEqual(sent, ["push_to_talk", 0, "commit"]);
  assert.equal(talking.mode, "off");
});

test("muted, nothing goes out and the server knows; unmuted it goes on; another session is told", async () => {
  const { talking, sent, hear, microphone } = setting();
  await talking.toggle();
  hear(0);
  talking.setMuted(true);
  hear(20);
  talking.restart();
  talking.setMuted(false);
  hear(40);
  assert.deepEqual(sent, [0, "mute", "mute", "unmute", 40]);
  assert.equal(microphone.restarts, 1);
});

test("hands-free that is stopped while muted leaves nothing muted", async () => {
  const { talking, sent } = setting();
  await talking.toggle();
  talking.setMuted(true);
  await talking.toggle();
  assert.equal(talking.isMuted, false);
  assert.equal(sent.at(-1), "unmute");
});

test("a device that cannot be opened is told once, and leaves everything off", async () => {
  const { talking, clock, seen, sent } = setting({ refusal: { code: "microphone_denied" } });
  await talking.press();
  await clock.advance(400);
  talking.release();
  await clock.advance(400);
  assert.deepEqual(seen.faults, ["microphone_denied"]);
  assert.equal(talking.mode, "off");
  assert.deepEqual(sent, []);
});

test("a device that is lost ends hands-free and is told", async () => {
  const { talking, microphone, seen } = setting();
  await talking.toggle();
  microphone.onfault({ code: "microphone_lost" });
  assert.deepEqual(seen.faults, ["microphone_lost"]);
  assert.equal(talking.mode, "off");
});

test("stopped while the device is asked for, it stays off", async () => {
  const { talking, microphone } = setting();
  let allow;
  microphone.gate = new Promise((resolve) => (allow = resolve));
  const toggling = talking.toggle();
  talking.stop();
  allow();
  await toggling;
  assert.equal(talking.mode, "off");
});

test("a commit that the server refuses is told", async () => {
  const { talking, clock, seen } = setting({ commitError: { code: "input_empty" } });
  await talking.press();
  await clock.advance(400);
  talking.release();
  await clock.advance(100);
  await settle();
  assert.deepEqual(seen.faults, ["input_empty"]);
});

test("nothing goes out while the system lets no sound in", async () => {
  const { talking, microphone, hear, sent } = setting();
  await talking.toggle();
  microphone.state = "silenced";
  hear(0);
  assert.deepEqual(sent.filter(Number.isFinite), []);
});

// --- what is said ---------------------------------------------------------------------------------------------------------

const started = (utterance) => ({ type: "speech.started", utterance, at_ms: 100 * utterance });
const ended = (utterance, at_ms = 900) => ({ type: "speech.ended", utterance, at_ms });
const said = (utterance, text, fields = {}) => ({ type: "transcript", utterance, text, final: false, ...fields });

test("words are shown while they are spoken, until a turn answers them", () => {
  const utterances = new Utterances();
  utterances.take(started(1));
  assert.deepEqual([utterances.isHearing, utterances.pending], [true, ""]);
  utterances.take(said(1, "Why is"));
  assert.equal(utterances.pending, "Why is");
  utterances.take(ended(1, 900));
  utterances.take(said(1, "Why is the sky blue?", { final: true }));
  assert.deepEqual([utterances.isHearing, utterances.pending], [false, "Why is the sky blue?"]);
  const { number, text, ended_at_ms, turn } = utterances.answeredBy(3);
  assert.deepEqual({ number, text, ended_at_ms, turn }, { number: 1, text: "Why is the sky blue?", ended_at_ms: 900, turn: 3 });
  assert.equal(utterances.pending, "");
});

test("a turn that its transcript names is joined to it, whatever else was said", () => {
  const utterances = new Utterances();
  for (const event of [started(1), ended(1), said(1, "Hello.", { final: true, turn: 1 }), started(2), said(2, "And", {})]) utterances.take(event);
  assert.equal(utterances.answeredBy(1).number, 1);
  assert.equal(utterances.pending, "And");
});

test("what was said before the speaker went on is shown with the rest", () => {
  for (const [first, second, both] of [["Book a table", "for two.", "Book a table for two."], ["我想", "订一张桌子。", "我想订一张桌子。"]]) {
    const utterances = new Utterances();
    for (const event of [started(1), ended(1), said(1, first, { final: true, turn: 1 })]) utterances.take(event);
    const { number } = utterances.answeredBy(1);
    utterances.take(started(2));
    utterances.carry(number);
    utterances.take(said(2, second));
    assert.equal(utterances.pending, both);
    for (const event of [ended(2), said(2, second, { final: true, turn: 2 })]) utterances.take(event);
    assert.equal(utterances.answeredBy(2).text, both);
  }
});

test("a turn that nobody's words led to is joined to none", () => {
  const utterances = new Utterances();
  assert.equal(utterances.answeredBy(1), null);
  utterances.take(started(1));
  utterances.take(said(1, "Still spe"));
  assert.equal(utterances.answeredBy(2), null);
});

test("what was said into a reply that goes on is answered by no later turn", () => {
  const utterances = new Utterances();
  for (const event of [started(1), said(1, "mhm"), ended(1), said(1, "Mhm.", { final: true })]) utterances.take(event);
  utterances.dismiss();
  assert.equal(utterances.pending, "");
  assert.equal(utterances.answeredBy(4), null);
});

test("once somebody has finished, their final words are awaited; not those of a noise, nor for ever", () => {
  const utterances = new Utterances();
  utterances.take(started(1)); // at 100 ms
  assert.equal(utterances.isAwaited, false);
  utterances.take(ended(1, 250));
  assert.equal(utterances.isAwaited, false); // a noise
  utterances.take(started(2)); // at 200 ms
  utterances.take(ended(2, 900));
  assert.equal(utterances.isAwaited, true);
  utterances.take(said(2, "Hello.", { final: true }));
  assert.equal(utterances.isAwaited, false);
  utterances.take(ended(3, 2000));
  utterances.dismiss();
  assert.equal(utterances.isAwaited, false);
});

test("noise leaves nothing behind", () => {
  const utterances = new Utterances();
  for (const event of [started(1), ended(1), said(1, "", { final: true })]) utterances.take(event);
  assert.deepEqual([utterances.isHearing, utterances.pending, utterances.answeredBy(1)], [false, "", null]);
});

// --- one visible state ----------------------------------------------------------------------------------------------------

const thinking = { isSpeaking: false, hasAudio: false, hasSounded: false };
const speaking = { isSpeaking: true, hasAudio: true, hasSounded: true, voice: "Amy" };
const on = { isConnected: true, mode: "free" };

for (const [now, floor, words] of [
  [{ isConnected: true }, "user", "Your turn"],
  [{ isConnected: false }, "user", ""],
  [{ isConnected: true, mode: "opening" }, "opening", "Opening the microphone"],
  [on, "listening", "Listening"],
  [{ ...on, isHearing: true }, "hearing", "Hearing you"],
  [{ ...on, exchange: thinking }, "thinking", "Thinking"],
  [{ ...on, exchange: thinking, isHearing: true }, "hearing", "Hearing you"],
  [{ ...on, exchange: speaking }, "assistant", "Amy is speaking"],
  [{ ...on, exchange: { ...speaking, isSpeaking: false } }, "thinking", "One moment"],
  [{ ...on, exchange: speaking, isPaused: true, isHearing: true }, "paused", "Paused, hearing you"],
  [{ ...on, exchange: speaking, isPaused: true }, "paused", "Paused"],
  [{ ...on, isAwaited: true }, "thinking", "Thinking"],
  [{ isConnected: true, isAwaited: true }, "thinking", "Thinking"],
  [{ ...on, isMuted: true }, "muted", "Muted"],
  [{ ...on, isSilenced: true }, "muted", "Your device holds the microphone back"],
  [{ ...on, isConnected: false }, "user", "Waiting for the connection"],
  [{ isConnected: true, mode: "held" }, "hearing", "Hearing you. Let go to send"],
  [{ isConnected: true, exchange: { ...thinking, hasAudio: true }, isLocked: true }, "thinking", "Tap or press a key to hear the reply"],
]) {
  test(`${JSON.stringify(now)} is seen as ${floor}: ${words}`, () => assert.deepEqual(floorOf(now), { floor, words }));
}
