// The page: joins a session, a player, a microphone and what is seen. Only this file and those in page/ touch the document.

import { Session } from "./client.js";
import { ticketsFor } from "./entering.js";
import { plainWords } from "./errors.js";
import { floorOf } from "./floor.js";
import { languageName } from "./languages.js";
import { keep, kept } from "./memory.js";
import { Microphone } from "./microphone.js";
import { Exchange } from "./page/exchange.js";
import { bindButton } from "./page/microphone_button.js";
import { Player, bindPlayer } from "./player.js";
import { Talking } from "./talking.js";
import { Utterances } from "./utterances.js";

const $ = (id) => document.getElementById(id);
const CONNECTION = { connecting: "Connecting", open: "Connected", waiting: "Reconnecting", asleep: "Asleep", closed: "Offline" };
const HISTORY_ITEMS = 20; // what a lost conversation is carried over with; well inside one message
const NEAR_END_PX = 120; // closer to the end than this, the page follows the conversation

// --- the page -----------------------------------------------------------------------------------------------------------

const exchanges = [];
const byId = new Map(); // request id -> exchange that waits for its turn
const byTurn = new Map();
const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/voice`;
const session = new Session(address, { ticket: ticketsFor(address, () => key), start: startFields });
let key = kept("key");
const utterances = new Utterances();
const talking = new Talking(session, new Microphone());
const showButton = bindButton(talking);
let player = null;
let unbind = () => {};
let isDrawing = false;
let isLost = false;
window.stretto = { session, exchanges, talking, get player() { return player; } }; // for the browser's console

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

function addExchange(text, asked_at = performance.now()) {
  exchanges.at(-1)?.fold();
  const exchange = new Exchange(text, asked_at);
  exchanges.push(exchange);
  $("welcome").hidden = true;
  $("conversation").append(exchange.element);
  follow(true);
  return exchange;
}

/** The exchange of a turn that nobody typed: what was said, or the assistant speaks by itself. */
function addSpoken(turn) {
  const utterance = utterances.answeredBy(turn);
  const ended_at = utterance?.ended_at_ms ?? null;
  const exchange = addExchange(utterance?.text ?? "", ended_at === null ? undefined : talking.microphone.momentOf(ended_at));
  exchange.utterance = utterance?.number;
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

/** Says whose turn it is, what is heard, and offers to stop a reply that is on its way. */
function showFloor() {
  const exchange = current();
  const { mode, isMuted, microphone } = talking;
  const { floor, words } = floorOf({
    isConnected: session.state === "open",
    exchange: exchange ? { isSpeaking: Boolean(player?.isSounding(exchange.turn)), hasAudio: exchange.marks.audio !== undefined, hasSounded: exchange.marks.sound !== undefined, voice: exchange.voice } : null,
    isPaused: Boolean(player?.isPaused),
    isLocked: Boolean(player && !player.isRunning),
    isHearing: utterances.isHearing,
    isAwaited: utterances.isAwaited,
    mode,
    isMuted,
    isSilenced: microphone.state === "silenced",
  });
  $("floor").parentElement.dataset.floor = floor;
  if ($("floor").textContent !== words) $("floor").textContent = words;
  if ($("stop").hidden !== !exchange) $("stop").hidden = !exchange;
  const { pending } = utterances;
  $("hearing").hidden = !pending;
  if ($("hearing").lastElementChild.textContent !== pending) $("hearing").lastElementChild.textContent = pending;
}

/** Draws frame by frame while a reply is under way or the microphone is on: captions by the player's clock, loudness, whose turn it is. */
function draw() {
  const exchange = current();
  isDrawing = Boolean(exchange) || talking.mode !== "off";
  showFloor();
  const level = exchange && player?.isSounding(exchange.turn) ? player.level() : talking.isOn ? talking.microphone.level : 0;
  $("level").style.setProperty("--level", level.toFixed(2));
  if (!isDrawing) return;
  if (exchange && exchange.turn !== null) exchange.light(player ? player.position(exchange.turn) : Infinity);
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
    const exchange = byId.get(event.ref) ?? addSpoken(event.turn);
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
    byTurn.delete(event.turn);
    if (event.status === "superseded") {
      utterances.carry(exchange.utterance);
      exchange.supersede();
    }
    exchange.finish();
    if (event.status === "completed") exchange.light(Infinity);
    if (event.status === "failed" && !exchange.has_note) exchange.note("This reply failed.", { label: "Ask again", run: () => ask(exchange.text) });
    showFloor();
  },
};

for (const type of ["speech.started", "speech.ended", "transcript"]) {
  session.on(type, (event) => {
    const { number, text } = utterances.take(event);
    if (type === "transcript" && text) exchanges.findLast((exchange) => exchange.utterance === number)?.setText(text);
    showFloor();
  });
}
session.on("playout.resume", () => utterances.dismiss());

session.on("event", (event) => {
  const exchange = byTurn.get(event.turn);
  if (event.type in on && (exchange || event.type === "turn.started")) on[event.type](event, exchange, performance.now());
  follow();
});

session.on("session.ready", async (event) => {
  if (!event.resumed) {
    byTurn.clear();
    utterances.reset();
    for (const exchange of exchanges) exchange.utterance = undefined; // another session counts from 1 again
    talking.restart();
  }
  if (!session.audio_in) talking.stop();
  showButton(Boolean(session.audio_in));
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
  if (error.code === "asr_failed") utterances.dismiss();
  isLost ||= error.code === "session_lost"; // said when the new session is ready
  if (isLost) endAll();
  else showNotice(plainWords(error));
});

session.on("state", (state) => {
  $("connection").textContent = CONNECTION[state];
  $("connection").dataset.state = state;
  if (state === "asleep" || state === "closed") talking.stop(); // nobody listens any more
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
  showNotice(asksKey && key ? "The server does not accept this key." : plainWords(error), asksKey ? null : { label: "Connect again", run: connect });
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

// --- the microphone -----------------------------------------------------------------------------------------------------

talking.onchange = () => {
  showButton(Boolean(session.audio_in));
  if (talking.mode !== "off") startDrawing();
  if (talking.mode === "opening") showNotice("");
  if (talking.mode === "opening" && session.state === "asleep") session.reconnect();
  showFloor();
};
talking.onhold = stop;
talking.onfault = (error) => showNotice(plainWords(error));
talking.microphone.ondevice = (label) => showNotice(`The microphone is another one now${label ? `: ${label}` : ""}.`);

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
  key = $("key").value.trim();
  keep("key", key);
  connect();
});

for (const gesture of ["pointerdown", "keydown"]) document.addEventListener(gesture, unlock, { passive: true });
document.addEventListener("visibilitychange", () => document.hidden || session.reconnect());
window.addEventListener("online", () => session.reconnect());
window.addEventListener("pagehide", () => session.close()); // and so the microphone
window.addEventListener("pageshow", ({ persisted }) => persisted && connect());

function unlock() {
  player?.unlock();
  talking.microphone.wake();
}

await makePlayer(24000); // before the first frame can come; the rate that the protocol has by default
connect();
