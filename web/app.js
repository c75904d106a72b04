// The page: joins a session, a player and what is seen. The only file that touches the document.

import { Caption } from "./captions.js";
import { Session } from "./client.js";
import { plainWords } from "./errors.js";
import { languageName } from "./languages.js";
import { keep, kept } from "./memory.js";
import { Player, bindPlayer } from "./player.js";
import { STAGES, place, summary, verdict } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const CONNECTION = { connecting: "Connecting", open: "Connected", waiting: "Reconnecting", asleep: "Asleep", closed: "Offline" };
const HISTORY_ITEMS = 20; // what a lost conversation is carried over with; well inside one message
const NEAR_END_PX = 120; // closer to the end than this, the page follows the conversation

// --- one exchange: what was asked, its reply, its times -----------------------------------------------------------------

class Exchange {
  caption = new Caption();
  marks = {};
  turn = null;
  is_over = false;
  #spans = [];

  constructor(text, asked_at) {
    this.text = text;
    this.asked_at = asked_at;
    this.element = $("exchange").content.firstElementChild.cloneNode(true);
    this.#part("user-text").textContent = text;
    this.#part("user").hidden = !text;
    for (const { name, label } of STAGES) {
      const stave = $("stave").content.firstElementChild.cloneNode(true);
      stave.dataset.stage = name;
      stave.querySelector(".stage").textContent = label;
      this.#part("staves").append(stave);
    }
    this.#part("summary").textContent = summary(this.marks);
  }

  #part(name) {
    return this.element.querySelector(`.${name}`);
  }

  /** Notes the moment of a stage, the first time it is reached. */
  mark(name, at_ms) {
    if (this.marks[name] !== undefined) return;
    const ms = (this.marks[name] = Math.max(0, at_ms - this.asked_at));
    const stave = this.element.querySelector(`[data-stage=${name}]`);
    stave.style.setProperty("--at", `${place(ms)}%`);
    stave.dataset.verdict = verdict(ms);
    stave.querySelector(".value").textContent = `${Math.round(ms)} ms`;
    this.#part("summary").textContent = summary(this.marks);
    this.#part("strip").dataset.verdict = verdict(ms);
  }

  addDelta(event, now) {
    this.mark("ttft", now);
    this.caption.addDelta(event);
    this.#part("tail").textContent = this.caption.tail;
  }

  addSegment(event, now) {
    this.mark("segment", now);
    this.caption.addSegment(event);
    const span = document.createElement("span");
    span.className = "segment";
    span.textContent = event.text;
    this.#spans[event.index] = span;
    this.#part("segments").append(span);
    this.#part("tail").textContent = this.caption.tail;
  }

  endSegment(event) {
    this.caption.endSegment(event);
    if (event.status === "no_voice") this.note("No voice here speaks this language, so it is shown only.");
    if (event.status === "failed") this.note("The voice failed on a sentence, so it is shown only.");
  }

  /** Lights the caption up to what has been heard. */
  light(position_ms) {
    this.caption.litAt(position_ms).forEach((share, i) => {
      const span = this.#spans[i];
      const state = share >= 1 ? "spoken" : share > 0 ? "speaking" : "waiting";
      if (span.dataset.state !== state) span.dataset.state = state;
      if (state === "speaking") span.style.setProperty("--lit", `${(100 * share).toFixed(1)}%`);
    });
  }

  /** Shows what was cut off: the caption after the first `n` characters. */
  cutAt(n) {
    let left = n;
    for (const span of this.#spans) {
      const heard = span.textContent.slice(0, Math.max(0, left));
      const rest = span.textContent.slice(heard.length);
      left -= span.textContent.length;
      span.dataset.state = "spoken";
      if (!rest) continue;
      const cut = Object.assign(document.createElement("del"), { textContent: rest, className: heard || left + rest.length === 0 ? "first" : "" });
      span.replaceChildren(heard, cut);
    }
    this.#part("tail").textContent = "";
  }

  note(text, action = null) {
    const note = this.#part("note");
    note.textContent = text;
    note.hidden = false;
    if (!action) return;
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: action.label, onclick: action.run });
    note.append(" ", button);
  }

  fold() {
    this.#part("strip").open = false;
  }

  finish() {
    this.is_over = true;
    this.#part("tail").textContent = "";
  }

  /** What the conversation holds of it, as items for a new session. */
  get history() {
    const heard = this.heard_text ?? this.caption.text;
    return [{ role: "user", text: this.text }, { role: "assistant", text: heard }].filter((item) => item.text.trim());
  }
}

// --- the page -----------------------------------------------------------------------------------------------------------

const exchanges = [];
const byId = new Map(); // request id -> exchange that waits for its turn
const byTurn = new Map();
const session = new Session(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/voice`, { key: kept("key"), start: startFields });
let player = null;
let unbind = () => {};
let isDrawing = false;
let isLost = false;
window.stretto = { session, exchanges, get player() { return player; } }; // for the browser's console

function startFields() {
  const history = exchanges.filter((exchange) => exchange.turn !== null || exchange.is_over).flatMap((exchange) => exchange.history);
  return { voice: kept("voice") || undefined, history: history.slice(-HISTORY_ITEMS) };
}

function ask(text) {
  const id = session.newId();
  const exchange = addExchange(text);
  byId.set(id, exchange);
  session.text(text, { id }).catch((error) => {
    byId.delete(id);
    if (exchange.is_over) return;
    exchange.finish();
    exchange.note(plainWords(error), error.retryable ? { label: "Ask again", run: () => ask(text) } : null);
    showFloor();
  });
  showFloor();
}

function addExchange(text) {
  exchanges.at(-1)?.fold();
  const exchange = new Exchange(text, performance.now());
  exchanges.push(exchange);
  $("welcome").hidden = true;
  $("conversation").append(exchange.element);
  follow(true);
  return exchange;
}

/** Keeps the end of the conversation in sight, unless the reader has scrolled away from it. */
function follow(always = false) {
  const { scrollHeight, scrollTop, clientHeight } = $("scroller");
  if (always || scrollHeight - scrollTop - clientHeight < NEAR_END_PX) $("scroller").scrollTop = scrollHeight;
}

function current() {
  return exchanges.findLast((exchange) => !exchange.is_over);
}

function stop() {
  const exchange = current();
  if (!exchange || exchange.turn === null) return;
  player?.flush(exchange.turn); // at once; the server hears of it a moment later
  session.cancel(exchange.turn).catch(() => {}); // it may have ended by itself meanwhile
}

/** Says whose turn it is, and offers to stop a reply that is on its way. */
function showFloor() {
  const exchange = current();
  const isSpeaking = Boolean(exchange && player?.isSounding(exchange.turn));
  const floor = !exchange ? "user" : isSpeaking ? "assistant" : "thinking";
  const words = {
    user: session.state === "open" ? "Your turn" : "",
    assistant: `${exchange?.voice ?? "The assistant"} is speaking`,
    thinking: session.state === "open" ? (exchange?.marks.sound === undefined ? "Thinking" : "One moment") : "Waiting for the connection",
  };
  if (exchange && player && !player.isRunning && exchange.marks.audio !== undefined) words.thinking = "Tap or press a key to hear the reply";
  $("floor").parentElement.dataset.floor = floor;
  if ($("floor").textContent !== words[floor]) $("floor").textContent = words[floor];
  if ($("stop").hidden !== !exchange) $("stop").hidden = !exchange;
}

/** Draws frame by frame while a reply is under way: captions by the player's clock, loudness, whose turn it is. */
function draw() {
  const exchange = current();
  isDrawing = Boolean(exchange);
  showFloor();
  const level = exchange && player ? player.level() : 0;
  $("level").style.setProperty("--level", level.toFixed(2));
  if (!exchange) return;
  if (exchange.turn !== null) {
    exchange.light(player ? player.position(exchange.turn) : Infinity);
  }
  requestAnimationFrame(draw);
}

function startDrawing() {
  if (!isDrawing) requestAnimationFrame(draw);
  isDrawing = true;
}

function showNotice(text, action = null) {
  const [words, button] = $("notice").children;
  $("notice").hidden = !text;
  words.textContent = text;
  button.hidden = !action;
  if (action) Object.assign(button, { textContent: action.label, onclick: action.run });
}

// --- what the session says ----------------------------------------------------------------------------------------------

const on = {
  "turn.started": (event) => {
    const exchange = byId.get(event.ref) ?? addExchange("");
    byId.delete(event.ref);
    exchange.turn = event.turn;
    byTurn.set(event.turn, exchange);
    showNotice("");
    startDrawing();
  },
  "text.delta": (event, exchange, now) => exchange.addDelta(event, now),
  "segment": (event, exchange, now) => exchange.addSegment(event, now),
  "segment.audio": (event, exchange) => {
    exchange.voice = event.voice;
    if (!kept("voice")) $("voice").value = event.voice;
  },
  "audio": (event, exchange, now) => {
    exchange.mark("audio", now);
    exchange.caption.addAudio(event, (1000 * event.data.length) / 2 / session.audio_out.rate_hz);
  },
  "segment.done": (event, exchange) => exchange.endSegment(event),
  "heard": (event, exchange) => {
    exchange.heard_text = event.heard_text;
    exchange.cutAt(event.heard_text.length);
  },
  "turn.done": (event, exchange) => {
    exchange.finish();
    byTurn.delete(event.turn);
    if (event.status === "completed") exchange.light(Infinity);
    if (event.status === "failed" && !exchange.has_note) exchange.note("This reply failed.", { label: "Ask again", run: () => ask(exchange.text) });
    showFloor();
  },
};

session.on("event", (event) => {
  const exchange = byTurn.get(event.turn);
  if (event.type in on && (exchange || event.type === "turn.started")) on[event.type](event, exchange, performance.now());
  follow();
});

session.on("session.ready", async (event) => {
  if (!event.resumed) byTurn.clear();
  showNotice(isLost ? plainWords({ code: "session_lost" }) : "");
  isLost = false;
  showVoices(event.voices);
  $("key-form").hidden = true;
  await makePlayer(event.audio_out.rate_hz);
});

session.on("going_away", () => showNotice(plainWords({ code: "draining" })));

session.on("error", (error) => {
  const exchange = byTurn.get(error.turn);
  if (exchange) {
    exchange.has_note = true;
    exchange.note(plainWords(error), { label: "Ask again", run: () => ask(exchange.text) });
    return;
  }
  isLost ||= error.code === "session_lost"; // said when the new session is ready
  if (isLost) endAll();
  else showNotice(plainWords(error));
});

session.on("state", (state) => {
  $("connection").textContent = CONNECTION[state];
  $("connection").dataset.state = state;
  showFloor();
});

session.on("closed", (error) => {
  endAll();
  if (error.code === "closed") return;
  if (error.code === "unknown_voice") {
    keep("voice", "");
    showNotice(plainWords(error));
    queueMicrotask(connect);
    return;
  }
  const asksKey = error.code === "unauthorized";
  $("key-form").hidden = !asksKey;
  showNotice(asksKey && session.key ? "The server does not accept this key." : plainWords(error), asksKey ? null : { label: "Connect again", run: connect });
  if (asksKey) $("key").focus();
});

function endAll() {
  for (const exchange of exchanges) exchange.finish();
  byTurn.clear();
  showFloor();
}

function connect() {
  showNotice("");
  session.start().catch(() => {}); // `closed` tells what there is to tell
}

async function makePlayer(sample_rate_hz) {
  if (player?.sample_rate_hz === sample_rate_hz) return;
  try {
    player = await Player.create({ sample_rate_hz });
  } catch {
    showNotice(plainWords({ code: "no_worklet" }));
    return;
  }
  player.onfirstsound = ({ turn, at_ms }) => byTurn.get(turn)?.mark("sound", at_ms);
  unbind();
  unbind = bindPlayer(session, player);
  if (navigator.userActivation?.hasBeenActive) player.unlock();
}

function showVoices(voices) {
  const options = voices.map(({ id, languages }) => new Option(`${id} (${languages.map(languageName).join(", ")})`, id));
  const chosen = kept("voice") || $("voice").value;
  $("voice").replaceChildren(...options);
  if (voices.some(({ id }) => id === chosen)) $("voice").value = chosen;
  $("voice-field").hidden = voices.length === 0;
}

// --- what the person does -----------------------------------------------------------------------------------------------

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text) return;
  $("text").value = "";
  fitText();
  ask(text);
});

$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});

$("text").addEventListener("input", fitText);

function fitText() {
  $("text").style.height = "auto";
  $("text").style.height = `${$("text").scrollHeight}px`;
}

$("suggestions").addEventListener("click", ({ target, detail }) => {
  if (!target.matches("button")) return;
  ask(target.textContent);
  if (detail === 0) $("text").focus(); // pressed by key, and now out of sight
});

$("stop").addEventListener("click", stop);
document.addEventListener("keydown", (event) => event.key === "Escape" && stop());

$("voice").addEventListener("change", ({ target }) => {
  keep("voice", target.value);
  session.update({ voice: target.value }).catch((error) => showNotice(plainWords(error)));
});

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  session.key = $("key").value.trim();
  keep("key", session.key);
  connect();
});

for (const gesture of ["pointerdown", "keydown"]) document.addEventListener(gesture, () => player?.unlock(), { passive: true });
document.addEventListener("visibilitychange", () => document.hidden || session.reconnect());
window.addEventListener("online", () => session.reconnect());
window.addEventListener("pagehide", () => session.close());
window.addEventListener("pageshow", ({ persisted }) => persisted && connect());

await makePlayer(24000); // before the first frame can come; the rate that the protocol has by default
connect();
