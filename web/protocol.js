// The vocabulary of `stretto.msgpack.v1`, as gateway/events.py and gateway/errors.py have it; a test compares them.
// Each table gives the fields of an event in order; a name that ends in "?" may be left out.

export const SUBPROTOCOL = "stretto.msgpack.v1";
export const KEY_PREFIX = "stretto-key."; // offered beside the subprotocol by browsers, which cannot set headers
export const TICKET_PREFIX = "stretto-ticket.";

export const CLIENT_EVENTS = freeze({
  "session.start": "id? persona? instructions? language? voice? history? output? audio_in? audio_out? speed? turn_detection? allow_barge_in? emotion? tools? tool_flow? playout? user? capture? resume?",
  "session.update": "id? instructions? language? voice? output? allow_barge_in? turn_detection? endpointing? audio_in? audio_out? speed? auto_reply? tools? tool_choice? max_tokens? temperature?",
  "text": "id? text",
  "say": "id? text",
  "reply.create": "id? instructions? conversation? input? tools? tool_choice? max_tokens? temperature? output? audio_out? voice? speed? metadata?",
  "item.add": "id? role? text item_id? after? kind? call_id? name?",
  "item.delete": "id? item_id",
  "item.retrieve": "id? item_id",
  "item.truncate": "id? item_id audio_ms",
  "audio": "id? data pts_ms?",
  "commit": "id?",
  "clear": "id?",
  "mute": "id? on",
  "cancel": "id? turn?",
  "playout": "id? turn played_ms? final?",
  "tool.result": "id? call_id output",
  "ping": "id? t?",
});

export const SERVER_EVENTS = freeze({
  "session.ready": "ref? session_id resume_token resumed limits audio_out voices audio_in? gap? turns? captured?",
  "session.updated": "ref? instructions language voice output allow_barge_in turn_detection? tools? tool_choice? max_tokens? temperature? audio_out? speed? endpointing?",
  "item.added": "ref? item_id after?",
  "item": "ref? item",
  "item.truncated": "ref? item_id audio_ms text",
  "item.deleted": "ref? item_id",
  "ack": "ref? repeated?",
  "speech.started": "ref? utterance at_ms item_id?",
  "speech.ended": "ref? utterance at_ms item_id?",
  "transcript": "ref? utterance text final turn? item_id?",
  "silence.timeout": "ref? item_id from_ms to_ms",
  "turn.started": "ref? turn item_id? reply_id? after? conversation? output? audio_out? metadata?",
  "text.delta": "ref? turn text tokens",
  "segment": "ref? turn index text cut emotion? at_ms?",
  "segment.audio": "ref? turn index voice spoken words? generated?",
  "audio": "ref? turn index pts_ms data at_ms?",
  "segment.done": "ref? turn index audio_ms status",
  "playout.pause": "ref? turn",
  "playout.resume": "ref? turn",
  "interrupted": "ref? turn reason",
  "heard": "ref? turn heard_ms heard_text",
  "tool.call": "ref? turn call_id name arguments item_id?",
  "reply.done": "ref? turn usage cut?",
  "turn.done": "ref? turn status timeline",
  "going_away": "ref? deadline_ms",
  "error": "ref? code message retryable retry_after_ms? turn? item_id?",
  "pong": "ref? t?",
});

/** The fields inside an event's fields. */
export const PARTS = freeze({
  resume: "session_id token last_seq?",
  history: "role text",
  audio_in: "codec? rate_hz?",
  audio_out: "codec? rate_hz?",
  endpointing: "speech_probability? preroll_ms? silence_ms? eagerness? idle_timeout_ms?",
  limits: "lead_ms idle_s message_bytes text_bytes",
  voices: "id languages",
  words: "start_ms end_ms start end",
  usage: "prompt_tokens cached_tokens output_tokens",
  timeline: "ttft_ms? first_segment_ms? first_audio_ms? first_playout_ms? reply_done_ms?",
});

export const TURN_STATUSES = Object.freeze(["completed", "interrupted", "superseded", "failed", "refused"]);
export const SEGMENT_STATUSES = Object.freeze(["ok", "no_voice", "failed"]);
export const INTERRUPT_REASONS = Object.freeze(["cancel", "text", "speech"]);

export const CLOSE = Object.freeze({
  WRONG_FRAME: 1003,
  POLICY: 1008,
  TOO_BIG: 1009,
  BUG: 1011,
  OVERLOADED: 1013,
  SUPERSEDED: 4001,
  IDLE: 4002,
  SLOW_READER: 4003,
  DRAINING: 4004,
});

/** The message `{type, ...fields}`. Throws TypeError for a type, or a field, that the protocol does not have, and for a missing one. */
export function message(type, fields) {
  const known = CLIENT_EVENTS[type];
  if (!known) throw new TypeError(`no client message "${type}"; there are ${Object.keys(CLIENT_EVENTS).join(", ")}`);
  for (const name of Object.keys(fields)) {
    if (!known.includes(name) && !known.includes(`${name}?`)) throw new TypeError(`"${type}" has no field "${name}"; it has ${known.join(" ")}`);
  }
  for (const name of known) {
    if (!name.endsWith("?") && fields[name] === undefined) throw new TypeError(`"${type}" needs "${name}"`);
  }
  return { type, ...fields };
}

function freeze(table) {
  for (const type of Object.keys(table)) table[type] = Object.freeze(table[type].split(" "));
  return Object.freeze(table);
}
