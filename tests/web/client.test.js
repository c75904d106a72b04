import assert from "node:assert/strict";
import { test } from "node:test";

import { Session, connect } from "../../web/client.js";
import { ticketsFor } from "../../web/entering.js";
import { Clock, server, settle } from "./double.js";

const SEGMENTS = ["The sea is salt. ", "It is deep."];

function reply(turn, ref, seq) {
  return [
    { type: "turn.started", turn, ref, item_id: "i1", seq },
    { type: "text.delta", turn, text: SEGMENTS.join(""), tokens: 8, seq: seq + 1 },
    { type: "segment", turn, index: 0, text: SEGMENTS[0], cut: "stop", seq: seq + 2 },
    { type: "audio", turn, index: 0, pts_ms: 0, data: new Uint8Array([1, 0]), seq: seq + 3 },
    { type: "segment", turn, index: 1, text: SEGMENTS[1], cut: "end", seq: seq + 4 },
    { type: "audio", turn, index: 1, pts_ms: 20, data: new Uint8Array([2, 0]), seq: seq + 5 },
    { type: "turn.done", turn, status: "completed", timeline: { ttft_ms: 35 }, seq: seq + 6 },
  ];
}

async function open(options = {}) {
  const peer = server();
  const clock = new Clock();
  const session = new Session("ws://host/v1/voice", { WebSocket: peer.WebSocket, clock, fetch: null, random: () => 0.5, ...options });
  const states = [];
  session.on("state", (state) => states.push(state));
  const started = session.start();
  started.catch(() => {});
  return { peer, clock, session, states, started };
}

async function openReady(options) {
  const all = await open(options);
  all.peer.last.ready();
  await all.started;
  return all;
}

const collect = async (iterable) => {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
};

test("connect offers the subprotocol and the key beside it, and starts the session", async () => {
  const peer = server();
  const connecting = connect("ws://host/v1/voice", { WebSocket: peer.WebSocket, clock: new Clock(), key: "K", start: { voice: "amy" } });
  assert.deepEqual(peer.last.protocols, ["stretto.msgpack.v1", "stretto-key.K"]);
  assert.equal(peer.last.url, "ws://host/v1/voice");
  peer.last.ready();
  const session = await connecting;
  const [start] = peer.last.sent;
  assert.equal(start.type, "session.start");
  assert.equal(start.voice, "amy");
  assert.equal("resume" in start, false);
  assert.equal(session.id, "s1");
  assert.deepEqual(session.voices, [{ id: "amy", languages: ["en"] }]);
});

test("a reply is read as segments and as audio, each from the first, by readers that come late", async () => {
  const { peer, session } = await openReady();
  const asking = session.text("What is the sea?");
  const { id, text } = peer.last.ofType("text")[0];
  assert.equal(text, "What is the sea?");
  const [started, ...rest] = reply(1, id, 1);
  peer.last.say(started);
  const answer = await asking;
  const segments = collect(answer.segments());
  peer.last.say(...rest);
  const audio = await collect(answer.audio());
  assert.deepEqual((await segments).map((segment) => segment.text), SEGMENTS);
  assert.deepEqual(audio.map((frame) => [...frame.data]), [[1, 0], [2, 0]]);
  assert.equal(answer.text, SEGMENTS.join(""));
  assert.equal((await answer.done).status, "completed");
});

test("say, cancel, update and items go out as the protocol has them and get their answers", async () => {
  const { peer, session } = await openReady();
  const saying = session.say("Hello.");
  const { id } = peer.last.ofType("say")[0];
  peer.last.say({ type: "turn.started", turn: 1, ref: id, item_id: "i1", seq: 1 });
  const answer = await saying;
  const cancelled = answer.cancel();
  assert.equal(peer.last.ofType("cancel")[0].turn, 1);
  peer.last.say({ type: "ack", ref: peer.last.ofType("cancel")[0].id, seq: 2 });
  await cancelled;
  const updated = session.update({ voice: "amy" });
  peer.last.say({ type: "session.updated", ref: peer.last.ofType("session.update")[0].id, instructions: "", language: "en", voice: "amy", output: "audio", allow_barge_in: true, seq: 3 });
  assert.equal((await updated).voice, "amy");
  const added = session.addItem({ role: "user", text: "By the way" });
  peer.last.say({ type: "item.added", ref: peer.last.ofType("item.add")[0].id, item_id: "i2", seq: 4 });
  assert.equal((await added).item_id, "i2");
});

test("an error that answers a request rejects it, with code and whether to retry", async () => {
  const { peer, session } = await openReady();
  const asking = session.text("x");
  peer.last.say({ type: "error", ref: peer.last.ofType("text")[0].id, code: "engine_not_ready", message: "m", retryable: true, seq: 1 });
  await assert.rejects(asking, { code: "engine_not_ready", retryable: true });
});

test("fields that the protocol does not have are refused before anything is sent", async () => {
  const { peer, session } = await openReady();
  assert.throws(() => session.update({ colour: "red" }), /no field "colour"/);
  assert.throws(() => session.request("shout", {}), /no client message "shout"/);
  assert.equal(peer.last.sent.length, 1);
});

test("a message above the server's limit is refused here", async () => {
  const { peer, session } = await openReady();
  await assert.rejects(session.text("x".repeat(70_000)), { code: "text_too_long" });
  assert.equal(peer.last.ofType("text").length, 0);
});

test("after a loss the session is resumed from the last frame, and nothing comes twice", async () => {
  const { peer, clock, session, states } = await openReady();
  const asking = session.text("What is the sea?");
  const frames = reply(1, peer.last.ofType("text")[0].id, 1);
  peer.last.say(...frames.slice(0, 4));
  const answer = await asking;
  const events = collect(answer);
  peer.last.drop();
  assert.equal(session.state, "waiting");
  await clock.advance(250);
  peer.last.accept();
  assert.match(peer.last.url, /[^?]\?resume=s1$/); // a full house lets it in
  assert.deepEqual(peer.last.sent[0].resume, { session_id: "s1", token: "t1", last_seq: 4 });
  peer.last.say({ type: "session.ready", session_id: "s1", resume_token: "t2", resumed: true, audio_out: {}, limits: { message_bytes: 65536 }, voices: [] });
  peer.last.say(...frames.slice(2)); // two of them had arrived
  assert.deepEqual((await events).map((event) => event.seq), [1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(states, ["connecting", "open", "waiting", "connecting", "open"]);
  peer.last.drop();
  await clock.advance(250);
  peer.last.accept();
  assert.deepEqual(peer.last.sent[0].resume, { session_id: "s1", token: "t2", last_seq: 7 });
});

test("a turn that the next gateway does not know ends by itself, and its number may come again", async () => {
  const { peer, clock, session } = await openReady();
  const asking = session.text("one");
  peer.last.say({ type: "turn.started", turn: 1, ref: peer.last.ofType("text")[0].id, seq: 1 });
  const lost = await asking;
  const kinds = (async () => {
    const seen = [];
    for await (const event of lost) seen.push(`${event.type} ${event.code ?? event.status}`);
    return seen;
  })();
  peer.last.drop();
  await clock.advance(250);
  peer.last.ready({ resumed: true, gap: true, turns: 0 });
  assert.deepEqual((await kinds).slice(-2), ["error reply_lost", "turn.done failed"]);
  const again = session.text("two");
  peer.last.say({ type: "turn.started", turn: 1, ref: peer.last.ofType("text")[0].id, seq: 2 });
  assert.equal((await again).turn, 1);
});

test("a request without an answer is sent again under its id, one that was answered is not", async () => {
  const { peer, clock, session } = await openReady();
  const pinging = session.request("ping", { t: 1 });
  peer.last.say({ type: "pong", t: 1, ref: peer.last.ofType("ping")[0].id, seq: 1 });
  await pinging;
  const asking = session.text("one");
  const { id } = peer.last.ofType("text")[0];
  peer.last.drop();
  const second = session.text("two"); // while there is no connection
  await clock.advance(250);
  peer.last.ready({ resumed: true });
  assert.deepEqual(peer.last.sent.slice(1).map((message) => [message.type, message.text]), [["text", "one"], ["text", "two"]]);
  assert.equal(peer.last.sent[1].id, id);
  peer.last.say({ type: "turn.started", turn: 1, ref: id, seq: 2 }, { type: "ack", ref: id, repeated: true, seq: 3 });
  assert.equal((await asking).turn, 1);
  peer.last.say({ type: "turn.started", turn: 2, ref: peer.last.sent[2].id, seq: 4 });
  assert.equal((await second).turn, 2);
});

test("when the session is gone, sent requests and open replies fail and unsent ones go to the new session", async () => {
  const { peer, clock, session } = await openReady({ start: () => ({ history: [{ role: "user", text: "before" }] }) });
  const first = session.text("one");
  peer.last.say({ type: "turn.started", turn: 1, ref: peer.last.ofType("text")[0].id, seq: 1 });
  const events = collect(await first);
  const sent = session.text("two");
  peer.last.drop();
  const unsent = session.text("three");
  await clock.advance(250);
  const lost = [];
  session.on("error", (error) => lost.push(error.code));
  peer.last.ready({ session_id: "s2", resumed: false });
  await assert.rejects(events, { code: "session_lost" });
  await assert.rejects(sent, { code: "session_lost", retryable: true });
  assert.deepEqual(lost, ["session_lost"]);
  assert.deepEqual(peer.last.sent[0].history, [{ role: "user", text: "before" }]);
  assert.deepEqual(peer.last.ofType("text").map((message) => message.text), ["three"]);
  peer.last.say({ type: "turn.started", turn: 1, ref: peer.last.ofType("text")[0].id, seq: 1 });
  assert.equal((await unsent).turn, 1);
  assert.equal(session.last_seq, 1);
});

test("a denied resume starts a new session at the next attempt", async () => {
  const { peer, clock, session } = await openReady();
  peer.last.drop();
  await clock.advance(250);
  peer.last.accept();
  peer.last.say({ type: "error", code: "resume_denied", message: "no", retryable: false });
  peer.last.drop(1008);
  await clock.advance(500);
  peer.last.accept();
  assert.equal("resume" in peer.last.sent[0], false);
  peer.last.say({ type: "session.ready", session_id: "s2", resume_token: "t", resumed: false, audio_out: {}, limits: { message_bytes: 65536 }, voices: [] });
  assert.equal(session.state, "open");
  assert.equal(session.id, "s2");
});

test("attempts back off, up to eight seconds, and start afresh after a success", async () => {
  const { peer, clock } = await openReady();
  const waits = [];
  for (let i = 0; i < 8; i++) {
    peer.last.drop();
    const n = peer.sockets.length;
    const from = clock.now();
    while (peer.sockets.length === n) await clock.advance(50);
    waits.push(clock.now() - from);
  }
  assert.deepEqual(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
  peer.last.ready({ resumed: true });
  peer.last.drop();
  await clock.advance(250);
  assert.equal(peer.last.closed, null);
});

test("an overloaded server's waiting time is kept", async () => {
  const { peer, clock } = await openReady();
  peer.last.say({ type: "error", code: "overloaded", message: "full", retryable: true, retry_after_ms: 3000 });
  peer.last.drop(1013);
  await clock.advance(2950);
  assert.equal(peer.sockets.length, 1);
  await clock.advance(100);
  assert.equal(peer.sockets.length, 2);
});

test("attempts end where the caller set a bound, and what waits is told", async () => {
  const { peer, clock, session, started } = await open({ max_attempts: 3 });
  const told = assert.rejects(session.text("anyone?"), { code: "unreachable" });
  for (let i = 0; i < 3; i++) {
    peer.last.drop();
    await clock.advance(10_000);
  }
  await assert.rejects(started, { code: "unreachable" });
  await told;
  assert.equal(peer.sockets.length, 3);
  assert.equal(session.state, "closed");
});

test("401 over HTTP after a refused handshake means that a key is asked for", async () => {
  const asked = [];
  const fetch = async (url, { headers }) => {
    asked.push([url, headers.Authorization]);
    return { status: 401 };
  };
  const { peer, started } = await open({ fetch, key: "wrong" });
  peer.last.drop();
  await assert.rejects(started, { code: "unauthorized" });
  assert.deepEqual(asked, [["http://host/v1/voice", "Bearer wrong"]]);
  assert.equal(peer.sockets.length, 1);
});

test("a ticket is offered instead of a key, a new one at each connection", async () => {
  const given = ["tkt_1", new Error("the app's server is away"), "tkt_2"];
  const ticket = async () => {
    const next = given.shift();
    if (next instanceof Error) throw next;
    return next;
  };
  const { peer, clock, session, started } = await open({ ticket, key: "K" });
  await settle();
  assert.deepEqual(peer.last.protocols, ["stretto.msgpack.v1", "stretto-ticket.tkt_1"]);
  peer.last.ready();
  await started;
  peer.last.drop();
  await clock.advance(250);
  assert.equal(peer.sockets.length, 1, "no ticket, no connection");
  await clock.advance(500);
  assert.deepEqual(peer.last.protocols, ["stretto.msgpack.v1", "stretto-ticket.tkt_2"]);
  peer.last.ready({ resumed: true });
  await settle();
  assert.equal(session.state, "open");
});

test("a ticket that comes after the session was closed opens nothing", async () => {
  let give;
  const { peer, session, started } = await open({ ticket: () => new Promise((resolve) => (give = resolve)) });
  session.close();
  give("tkt_1");
  await assert.rejects(started, { code: "closed" });
  await settle();
  assert.equal(peer.sockets.length, 0);
});

test("a key that gets no ticket is told, one that must wait waits", async () => {
  const answers = [
    { ok: false, status: 429, headers: new Headers({ "retry-after": "3" }), json: async () => ({ error: { code: "rate_limited", message: "m" } }) },
    { ok: false, status: 401, headers: new Headers(), json: async () => ({ error: { code: "unauthorized", message: "m" } }) },
  ];
  const asked = [];
  const fetch = async (address, { method, headers }) => {
    asked.push([String(address), method, headers.Authorization]);
    return answers.shift();
  };
  const { peer, clock, started } = await open({ ticket: ticketsFor("ws://host/v1/voice", () => "K", fetch) });
  await clock.advance(2999);
  assert.equal(asked.length, 1);
  await clock.advance(1);
  await assert.rejects(started, { code: "unauthorized" });
  assert.deepEqual(asked, Array(2).fill(["http://host/v1/tickets", "POST", "Bearer K"]));
  assert.equal(peer.sockets.length, 0);
});

test("a page without a key asks for no ticket and is told when one is needed", async () => {
  const ticket = ticketsFor("ws://host/v1/voice", () => "", () => assert.fail("no key, no ticket"));
  const { peer, started } = await open({ ticket, fetch: async () => ({ status: 401 }) });
  await settle();
  assert.deepEqual(peer.last.protocols, ["stretto.msgpack.v1"]);
  peer.last.drop();
  await assert.rejects(started, { code: "unauthorized" });
});

test("a ticket given as a text opens once, and why it does not is asked for", async () => {
  const { peer, started } = await open({ ticket: "tkt_1", fetch: async (_, { headers }) => ({ status: headers.Authorization === "Bearer tkt_1" ? 401 : 426 }) });
  assert.deepEqual(peer.last.protocols, ["stretto.msgpack.v1", "stretto-ticket.tkt_1"]);
  peer.last.drop();
  await assert.rejects(started, { code: "unauthorized" });
});

test("a refused handshake that HTTP does not explain is tried again", async () => {
  const { peer, clock, started } = await open({ fetch: async () => ({ status: 426 }) });
  peer.last.drop();
  await clock.advance(250);
  peer.last.ready();
  await started;
});

test("an error at the start that a retry cannot help ends the session and can be mended by another start", async () => {
  const { peer, session, started } = await open({ start: { voice: "gone" } });
  peer.last.accept();
  peer.last.say({ type: "error", code: "unknown_voice", message: "no such voice", retryable: false, ref: peer.last.sent[0].id });
  await assert.rejects(started, { code: "unknown_voice" });
  assert.equal(peer.last.closed.code, 1000);
  const again = session.start();
  peer.last.ready();
  await again;
  assert.equal(session.state, "open");
});

test("a session that another window took is not fought over", async () => {
  const { peer, clock, session } = await openReady();
  const closed = [];
  session.on("closed", (error) => closed.push(error.code));
  peer.last.drop(4001);
  await clock.advance(60_000);
  assert.deepEqual(closed, ["superseded"]);
  assert.equal(peer.sockets.length, 1);
});

test("an idle session sleeps until something is said", async () => {
  const { peer, clock, session } = await openReady();
  peer.last.drop(4002);
  await clock.advance(300_000);
  assert.equal(session.state, "asleep");
  assert.equal(peer.sockets.length, 1);
  const asking = session.text("good morning");
  assert.equal(peer.sockets.length, 2);
  peer.last.ready({ session_id: "s2" });
  assert.equal("resume" in peer.last.sent[0], false); // an idle session is over on the server too
  peer.last.say({ type: "turn.started", turn: 1, ref: peer.last.ofType("text")[0].id, seq: 1 });
  await asking;
});

test("a connection that is silent while an answer is due is pinged, then given up", async () => {
  const { peer, clock, session } = await openReady();
  await clock.advance(100_000); // nothing is due: silence is no fault
  assert.equal(session.state, "open");
  session.text("hello?").catch(() => {});
  await clock.advance(10_000);
  assert.equal(session.state, "open");
  await clock.advance(5_000);
  assert.ok(peer.sockets[0].ofType("ping").length >= 1);
  await clock.advance(10_000);
  assert.notEqual(session.state, "open");
  assert.ok(peer.sockets[0].closed);
  assert.equal(peer.sockets.length, 2);
});

test("a page that comes back finds a dead connection within five seconds and a live one unharmed", async () => {
  const { peer, clock, session } = await openReady();
  await clock.advance(50_000);
  session.reconnect();
  peer.last.say({ type: "pong", ref: peer.last.ofType("ping")[0].id, seq: 1 });
  await clock.advance(50_000);
  assert.equal(session.state, "open");
  session.reconnect();
  await clock.advance(5_250);
  assert.equal(peer.sockets.length, 2);
});

test("playout reports are sent as they come, and the newest of each turn after a loss", async () => {
  const { peer, clock, session } = await openReady();
  session.reportPlayout(1, 20);
  peer.last.drop();
  session.reportPlayout(1, 250);
  session.reportPlayout(1, 400, true);
  await clock.advance(250);
  peer.last.ready({ resumed: true });
  assert.deepEqual(peer.sockets[0].ofType("playout"), [{ type: "playout", turn: 1, played_ms: 20 }]);
  assert.deepEqual(peer.last.ofType("playout"), [{ type: "playout", turn: 1, played_ms: 400, final: true }]);
});

test("a frame that cannot be read is reported and the session goes on", async () => {
  const { peer, session } = await openReady();
  const errors = [];
  session.on("error", (error) => errors.push(error.code));
  peer.last.onmessage({ data: new Uint8Array([0xc1]).buffer });
  peer.last.say({ type: "pong", seq: 1 });
  assert.deepEqual(errors, ["bad_frame"]);
  assert.equal(session.last_seq, 1);
});

test("close ends the session on the server and rejects what waits", async () => {
  const { peer, clock, session } = await openReady();
  const asking = session.text("late");
  session.close();
  assert.equal(peer.last.closed.code, 1000);
  await assert.rejects(asking, { code: "closed" });
  await assert.rejects(session.text("later"), { code: "closed" });
  await clock.advance(60_000);
  await settle();
  assert.equal(peer.sockets.length, 1);
});

test("what the microphone heard goes out while the connection is open and takes it, and is dropped otherwise", async () => {
  const { peer, session } = await openReady();
  assert.equal(session.audio_in, null);
  const data = new Uint8Array([1, 2, 3, 4]);
  assert.equal(session.sendAudio(data, 20), true);
  assert.deepEqual(peer.last.ofType("audio").map(({ data, pts_ms, ...rest }) => [[...data], pts_ms, Object.keys(rest)]), [[[1, 2, 3, 4], 20, ["type"]]]);
  peer.last.bufferedAmount = 70_000;
  assert.equal(session.sendAudio(data, 40), false);
  peer.last.bufferedAmount = 0;
  const socket = peer.last;
  socket.drop();
  assert.equal(session.sendAudio(data, 60), false);
  assert.equal(socket.ofType("audio").length, 1);
});

test("a session that listens says in which format", async () => {
  const { peer, session, started } = await open();
  peer.last.ready({ audio_in: { codec: "pcm16", rate_hz: 16000 } });
  await started;
  assert.deepEqual(session.audio_in, { codec: "pcm16", rate_hz: 16000 });
});

test("commit, clear and mute are requests like others", async () => {
  const { peer, session } = await openReady();
  const all = [session.commit(), session.clear(), session.mute(true)];
  for (const type of ["commit", "clear", "mute"]) peer.last.say({ type: "ack", ref: peer.last.ofType(type)[0].id });
  assert.equal((await Promise.all(all)).length, 3);
  assert.equal(peer.last.ofType("mute")[0].on, true);
});

test("what is heard of a speaker reaches the page, and a transcript that names a turn is part of its reply", async () => {
  const { peer, session } = await openReady();
  const heard = [];
  for (const type of ["speech.started", "speech.ended", "transcript"]) session.on(type, (event) => heard.push([event.type, event.utterance]));
  peer.last.say(
    { type: "speech.started", utterance: 1, at_ms: 20, seq: 1 }, { type: "speech.ended", utterance: 1, at_ms: 900, seq: 2 },
    { type: "transcript", utterance: 1, text: "Hello", final: true, turn: 1, seq: 3 }, { type: "turn.started", turn: 1, item_id: "u1", seq: 4 },
  );
  assert.deepEqual(heard, [["speech.started", 1], ["speech.ended", 1], ["transcript", 1]]);
});
