// A conversation over one WebSocket, for browsers and Node 20: start, ask, listen, resume.
//
//   import { connect } from "./client.js";
//   const session = await connect("ws://127.0.0.1:8080/v1/voice", { start: { language: "en" } });
//   const reply = await session.text("Tell me something about the sea.");
//   for await (const segment of reply.segments()) console.log(segment.text);
//   session.close();
//
// A lost connection is taken up again by itself: frames that were missed arrive, requests that were not answered are
// sent again under their ids, and the server does nothing twice. Node 20 has no WebSocket of its own: pass one
// (`new Session(url, {WebSocket})`, the npm package `ws` does) or run it with --experimental-websocket.

import { askedFor, offers } from "./entering.js";
import { StrettoError } from "./errors.js";
import { Listeners } from "./listeners.js";
import { decode, encode } from "./msgpack.js";
import { FINAL_CLOSES, MAX_PENDING, MAX_UNSENT_BYTES, QUIET_MS, WATCH_MS, backoffMs } from "./patience.js";
import { openSocket, platformClock, whyRefused } from "./platform.js";
import { CLOSE, message } from "./protocol.js";
import { Reply } from "./reply.js";

const TURN_REQUESTS = new Set(["text", "say", "reply.create"]);

/** A session that is ready. Rejects with StrettoError when there is none after eight attempts (about 25 s), or no key fits. */
export async function connect(url, options = {}) {
  const session = new Session(url, { max_attempts: 8, ...options });
  await session.start();
  return session;
}

export class Session {
  /**
   * Options: `key`, or `ticket`: a function that gets a new one for each connection (or a text, which opens the first
   * alone); `start`, the fields of session.start or a function that returns them (asked anew at each
   * connection: give `history` to carry a lost conversation over); `max_attempts` in a row (none: for ever);
   * `WebSocket`, `fetch`, `clock` {now, setTimeout, clearTimeout}, `random`: the platform's unless given.
   */
  constructor(url, options = {}) {
    const { key = "", ticket = "", start = {}, max_attempts = Infinity } = options;
    const { WebSocket = globalThis.WebSocket, fetch = globalThis.fetch, clock = platformClock(), random = Math.random } = options;
    if (!WebSocket) throw new TypeError("no WebSocket here: pass one as `WebSocket`, or run Node with --experimental-websocket");
    Object.assign(this, { url, key, ticket, id: "", voices: [], limits: null, audio_out: null, audio_in: null, state: "closed", last_seq: 0 });
    this.#start = typeof start === "function" ? start : () => start;
    this.#platform = { WebSocket, fetch, clock, random };
    this.#max_attempts = max_attempts;
  }

  #start;
  #platform;
  #max_attempts;
  #socket = null;
  #token = "";
  #attempts = 0;
  #retry = null; // timer of the next attempt
  #retry_after_ms = 0; // what the server asked for
  #watch = null; // timer that looks for a dead connection
  #quiet_since = 0; // nothing has come since then, or nothing was due
  #last_error = ""; // code of the newest error event
  #round = 0; // counts sockets, so that a late answer about an older one is ignored
  #ids = `${Math.random().toString(36).slice(2, 8)}-`;
  #next_id = 1;
  #hello_id = "";
  #pending = new Map(); // id -> {type, bytes, is_sent, resolve, reject}
  #playouts = new Map(); // turn -> report that found no connection
  #replies = new Map(); // turn -> Reply under way
  #listeners = new Listeners();
  #started = null; // {promise, resolve, reject} of start()
  #failure = null; // the error that closed the session

  /** Connects, and resolves when the session is ready. Rejects with StrettoError when it cannot be. */
  start() {
    if (this.#started && this.state !== "closed") return this.#started.promise;
    this.#started = {};
    this.#started.promise = new Promise((resolve, reject) => Object.assign(this.#started, { resolve, reject }));
    this.#failure = null;
    this.#attempts = 0;
    this.#connect();
    return this.#started.promise;
  }

  /**
   * Calls `listener` with each event of that type, or of all (`"event"`), or each `"state"` (connecting open waiting
   * asleep closed), each `"error"` that answers no request, or the error that `"closed"` the session. Returns how to stop.
   */
  on(name, listener) {
    return this.#listeners.on(name, listener);
  }

  /** An id that a request may be given beforehand. */
  newId() {
    return this.#ids + this.#next_id++;
  }

  /** Says `text` as the user. Resolves with the Reply once its turn has begun. */
  text(text, { id } = {}) {
    return this.request("text", { text, id });
  }

  /** Has `text` spoken as it is. Resolves with the Reply. */
  say(text, { id } = {}) {
    return this.request("say", { text, id });
  }

  /** Lets the assistant speak, with the fields of `reply.create`. Resolves with the Reply. */
  createReply(fields = {}) {
    return this.request("reply.create", fields);
  }

  /** Stops the current reply, or that of `turn`. */
  cancel(turn) {
    return this.request("cancel", { turn });
  }

  /** Changes settings from the next turn on; resolves with those in force. */
  update(settings) {
    return this.request("session.update", settings);
  }

  /** Adds {role, text, item_id?, after?} to the conversation. */
  addItem(item) {
    return this.request("item.add", item);
  }

  deleteItem(item_id) {
    return this.request("item.delete", { item_id });
  }

  /** Sends what the microphone heard, in the format `audio_in` (null: nobody listens). Never waits; false: it was dropped, old speech is of no use. */
  sendAudio(data, pts_ms) {
    if (this.state !== "open" || this.#socket.bufferedAmount > MAX_UNSENT_BYTES) return false;
    this.#socket.send(encode(message("audio", { data, pts_ms })));
    return true;
  }

  /** What was said so far is an utterance: push-to-talk was released. */
  commit = () => this.request("commit");

  /** Throws away what was said and not yet answered. */
  clear = () => this.request("clear");

  /** The microphone is off, or on again. */
  mute = (on) => this.request("mute", { on });

  /** Tells how much of a turn has been heard. Never waits; without a connection the newest report of each turn is kept. */
  reportPlayout(turn, played_ms, final = false) {
    if (this.state === "open") this.#socket.send(encode(message("playout", final ? { turn, played_ms, final } : { turn, played_ms })));
    else if (this.state !== "closed") this.#playouts.set(turn, { turn, played_ms, final });
  }

  /** Sends a message under an id, again after a reconnect if need be, and resolves with its answer. Rejects with StrettoError. */
  request(type, fields = {}) {
    if (this.state === "closed") return Promise.reject(this.#failure ?? new StrettoError("closed", "The session is closed."));
    if (this.#pending.size >= MAX_PENDING) return Promise.reject(new StrettoError("too_many_requests", `${MAX_PENDING} requests wait for an answer.`, { retryable: true }));
    const id = fields.id ?? this.newId();
    const bytes = encode(message(type, { ...fields, id }));
    if (!this.#isDue()) this.#quiet_since = this.#platform.clock.now();
    if (this.limits && bytes.length > this.limits.message_bytes) return Promise.reject(new StrettoError("text_too_long", `The message has ${bytes.length} bytes; the server takes ${this.limits.message_bytes}.`));
    const answer = new Promise((resolve, reject) => this.#pending.set(id, { type, bytes, is_sent: false, resolve, reject }));
    if (this.state === "open") this.#sendPending();
    else if (this.state === "asleep") this.reconnect();
    return answer;
  }

  /** Looks at once whether the connection lives: for a page that comes back to the front or on line. */
  reconnect() {
    if (this.state === "waiting" || this.state === "asleep") {
      this.#platform.clock.clearTimeout(this.#retry);
      this.#attempts = 0;
      this.#connect();
    } else if (this.state === "open") {
      this.request("ping").catch(() => {}); // what matters is that something comes
      this.#quiet_since = this.#platform.clock.now() - (QUIET_MS.give_up - WATCH_MS);
      this.#look();
    }
  }

  /** Ends the session, here and on the server. */
  close() {
    this.#fail(new StrettoError("closed", "The session was closed."), 1000);
  }

  // --- connection ---------------------------------------------------------------------------------------------------

  async #connect() {
    this.#setState("connecting");
    const round = ++this.#round;
    if (typeof this.ticket !== "function") return this.#open(this.ticket, this.ticket || this.key);
    const { ticket, error } = await askedFor(this.ticket);
    if (round !== this.#round || this.state !== "connecting") return undefined; // closed or retried meanwhile
    return error ? this.#onNoTicket(error) : this.#open(ticket, ticket ? null : this.key);
  }

  #onNoTicket(error) {
    this.#retry_after_ms = error.retry_after_ms ?? 0;
    if (error instanceof StrettoError && !error.retryable) this.#fail(error);
    else this.#retryLater(1006);
  }

  /** `shown`: what to ask with why a handshake failed; null: the next attempt shows another ticket anyway. */
  #open(ticket, shown) {
    let socket;
    const resume = this.id ? `${this.url.includes("?") ? "&" : "?"}resume=${this.id}` : ""; // so that a full house lets it in
    try {
      socket = openSocket(this.#platform.WebSocket, this.url + resume, offers(this.key, ticket));
    } catch (error) {
      return this.#fail(error);
    }
    this.#socket = socket;
    this.#quiet_since = this.#platform.clock.now();
    this.#look();
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      shown = null;
      this.#hello();
    };
    socket.onmessage = ({ data }) => socket === this.#socket && this.#receive(data);
    socket.onerror = () => {}; // a close follows, and says as much as a browser lets us know
    socket.onclose = ({ code, reason }) => socket === this.#socket && this.#onClose(code, reason, shown);
  }

  #hello() {
    this.#hello_id = this.newId();
    const resume = this.id ? { session_id: this.id, token: this.#token, last_seq: this.last_seq } : undefined;
    this.#send("session.start", { ...this.#start(), id: this.#hello_id, resume });
  }

  #send(type, fields = {}) {
    this.#socket.send(encode(message(type, fields)));
  }

  #sendPending() {
    for (const request of this.#pending.values()) {
      if (request.is_sent) continue;
      request.is_sent = true;
      this.#socket.send(request.bytes);
    }
  }

  async #onClose(code, reason, shown) {
    this.#socket = null;
    const round = this.#round;
    if (code === CLOSE.POLICY && this.#last_error === "resume_denied") this.#forget(); // the next attempt starts anew
    else if (FINAL_CLOSES[code]) return this.#fail(new StrettoError(FINAL_CLOSES[code], reason || `The server closed the connection (${code}).`));
    if (code === CLOSE.IDLE && !this.#pending.size) {
      this.id = this.#token = ""; // an idle session is over on the server too
      return this.#setState("asleep");
    }
    if (shown !== null) {
      this.#setState("waiting");
      const refusal = await whyRefused(this.url, shown, this.#platform.fetch);
      if (this.state !== "waiting" || round !== this.#round) return undefined; // closed or retried meanwhile
      if (refusal) return this.#fail(refusal);
    }
    return this.#retryLater(code);
  }

  #retryLater(code) {
    if (++this.#attempts >= this.#max_attempts) {
      this.#fail(new StrettoError("unreachable", `No connection to ${this.url} after ${this.#attempts} attempts (last close code ${code}).`, { retryable: true }));
      return;
    }
    const wait_ms = backoffMs(this.#attempts, this.#platform.random());
    this.#retry = this.#platform.clock.setTimeout(() => this.#connect(), Math.max(wait_ms, this.#retry_after_ms));
    this.#retry_after_ms = 0;
    this.#setState("waiting");
  }

  #look() {
    const { clock } = this.#platform;
    clock.clearTimeout(this.#watch);
    if (!this.#socket || this.state === "closed") return;
    const isDue = this.#isDue();
    const quiet_ms = clock.now() - this.#quiet_since;
    if (isDue && quiet_ms >= QUIET_MS.give_up) {
      const dead = this.#socket;
      this.#onClose(1006, "", null);
      dead.close();
      return;
    }
    if (isDue && quiet_ms >= QUIET_MS.ask && this.state === "open") this.#send("ping");
    this.#watch = clock.setTimeout(() => this.#look(), WATCH_MS);
  }

  #isDue() {
    return this.#pending.size > 0 || this.#replies.size > 0 || this.state === "connecting";
  }

  // --- what arrives -------------------------------------------------------------------------------------------------

  #receive(data) {
    this.#quiet_since = this.#platform.clock.now();
    let event;
    try {
      event = decode(data);
    } catch (error) {
      this.#listeners.tell("error", new StrettoError("bad_frame", `A frame of the server cannot be read: ${error.message}`));
      return;
    }
    if (event.seq !== undefined) {
      if (event.seq <= this.last_seq) return; // had before the connection was lost
      this.last_seq = event.seq;
    }
    if (event.type === "session.ready") this.#onReady(event);
    if (event.type === "turn.started") this.#replies.set(event.turn, new Reply(event.turn, event.item_id, (turn) => this.cancel(turn)));
    this.#replies.get(event.turn)?.push(event);
    if (event.type === "turn.done") this.#replies.delete(event.turn);
    if (event.type === "error") this.#onError(event);
    else if (event.ref !== undefined) this.#answer(event);
    if (event.type !== "error") this.#listeners.tell(event.type, event);
    this.#listeners.tell("event", event);
  }

  #onReady(event) {
    const isNew = this.id !== "" && !event.resumed;
    if (!event.resumed) this.last_seq = 0;
    const { session_id: id, voices, limits, audio_out, audio_in = null } = event;
    Object.assign(this, { id, voices, limits, audio_out, audio_in });
    this.#token = event.resume_token;
    this.#attempts = 0;
    this.#last_error = "";
    if (isNew) this.#lose();
    if (event.gap) for (const turn of this.#replies.keys()) if (turn > event.turns) this.#endLost(turn);
    for (const request of this.#pending.values()) request.is_sent = false;
    this.#setState("open");
    this.#sendPending();
    for (const { turn, played_ms, final } of this.#playouts.values()) this.reportPlayout(turn, played_ms, final);
    this.#playouts.clear();
    this.#started.resolve(this);
  }

  // A turn that began in the last moment of a gateway that is gone: the one that took over does not know it, and will use its number.
  #endLost(turn) {
    const message = "The gateway that made this reply is gone; the rest of it is lost.";
    for (const event of [{ type: "error", turn, code: "reply_lost", message, retryable: true }, { type: "turn.done", turn, status: "failed", timeline: {} }]) {
      this.#replies.get(turn).push(event);
      this.#listeners.tell(event.type, event.type === "error" ? new StrettoError(event.code, message, event) : event);
      this.#listeners.tell("event", event);
    }
    this.#replies.delete(turn);
  }

  #answer(event) {
    const request = this.#pending.get(event.ref);
    if (!request) return;
    this.#pending.delete(event.ref);
    if (!TURN_REQUESTS.has(request.type)) request.resolve(event);
    else if (event.type === "turn.started") request.resolve(this.#replies.get(event.turn));
    else request.reject(new StrettoError("answer_lost", "The server did this before, and its answer is gone."));
  }

  #onError(event) {
    const error = new StrettoError(event.code, event.message, event);
    this.#retry_after_ms = event.retry_after_ms ?? 0;
    this.#last_error = event.code;
    const request = this.#pending.get(event.ref);
    this.#pending.delete(event.ref);
    request?.reject(error);
    const isAtStart = this.state === "connecting" && event.ref === this.#hello_id && event.code !== "resume_denied";
    if (isAtStart && !event.retryable) this.#fail(error, 1000);
    else if (!request) this.#listeners.tell("error", error);
  }

  // --- endings ------------------------------------------------------------------------------------------------------

  /** The old session is gone: what had been sent to it fails, what had not goes to the new one. */
  #lose() {
    const error = new StrettoError("session_lost", "The session could not be resumed; a new one has begun.", { retryable: true });
    for (const [id, request] of this.#pending) {
      if (!request.is_sent) continue;
      this.#pending.delete(id);
      request.reject(error);
    }
    this.#endReplies(error);
    this.#playouts.clear();
    this.#listeners.tell("error", error);
  }

  #forget() {
    this.id = this.#token = "";
    this.#lose();
  }

  #endReplies(error) {
    for (const reply of this.#replies.values()) reply.fail(error);
    this.#replies.clear();
  }

  #fail(error, code) {
    if (this.state === "closed") return;
    const { clock } = this.#platform;
    const socket = this.#socket;
    this.#failure = error;
    this.#socket = null;
    this.id = this.#token = "";
    this.last_seq = 0;
    clock.clearTimeout(this.#retry);
    clock.clearTimeout(this.#watch);
    this.#setState("closed");
    if (code !== undefined) socket?.close(code);
    for (const request of this.#pending.values()) request.reject(error);
    this.#pending.clear();
    this.#endReplies(error);
    this.#started.promise.catch(() => {}); // whoever awaits start() sees it; `closed` tells the others
    this.#started.reject(error);
    this.#listeners.tell("closed", error);
  }

  #setState(state) {
    if (state === this.state) return;
    this.state = state;
    this.#listeners.tell("state", state);
  }
}
