import assert from "node:assert/strict";
import { test } from "node:test";

import { bindPlayer } from "../../web/player.js";

/** A session that the test speaks for, bound to a player that notes what it is told. */
function bound() {
  const listeners = new Map();
  const told = [];
  const player = { reset: () => told.push("reset"), push: (turn) => told.push(`push ${turn}`), end: (turn) => told.push(`end ${turn}`), flush: (turn) => told.push(`flush ${turn}`), pause: () => told.push("pause"), resume: () => told.push("resume") };
  const session = { on: (type, listener) => (listeners.set(type, listener), () => listeners.delete(type)), reportPlayout() {} };
  const unbind = bindPlayer(session, player);
  return { told, listeners, unbind, say: (type, fields) => listeners.get(type)(fields) };
}

test("a pause holds the player and a resume goes on", () => {
  const { told, say } = bound();
  say("playout.pause", { turn: 1 });
  say("playout.resume", { turn: 1 });
  assert.deepEqual(told, ["pause", "resume"]);
});

test("words after a pause empty the player, and the next turn is heard", () => {
  const { told, say } = bound();
  say("playout.pause", { turn: 1 });
  say("interrupted", { turn: 1, reason: "speech" });
  assert.deepEqual(told, ["pause", "flush 1", "resume"]);
});

test("another turn's end does not let a held one go on", () => {
  const { told, say } = bound();
  say("playout.pause", { turn: 2 });
  say("turn.done", { turn: 1 });
  say("interrupted", { turn: 1, reason: "cancel" });
  assert.deepEqual(told, ["pause", "flush 1"]);
  say("turn.done", { turn: 2 });
  assert.equal(told.at(-1), "resume");
});

test("unbound, the player hears of nothing", () => {
  const { listeners, unbind } = bound();
  unbind();
  assert.equal(listeners.size, 0);
});
