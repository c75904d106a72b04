// What can go wrong, as errors with the protocol's `code`, and the same in words for a person.

/** An error of the server (`error` event) or of the connection. `retryable`: trying again helps. */
export class StrettoError extends Error {
  constructor(code, message, { retryable = false, retry_after_ms = undefined, turn = undefined } = {}) {
    super(message);
    this.name = "StrettoError";
    this.code = code;
    this.retryable = retryable;
    this.retry_after_ms = retry_after_ms;
    this.turn = turn;
  }
}

const WORDS = {
  unauthorized: "This server asks for a key.",
  forbidden_origin: "This server does not accept connections from this page's address.",
  overloaded: "All lines are busy. You are in the queue, and this page keeps trying.",
  draining: "The server is restarting. This page comes back by itself.",
  rate_limited: "That was a little fast. Please wait a moment and try again.",
  text_empty: "There is nothing to say in that message.",
  text_too_long: "That message is too long. Please send it in parts.",
  unknown_voice: "That voice is gone. Another one speaks now.",
  engine_not_ready: "The model is still waking up. Please try again in a moment.",
  engine_stalled: "The model got stuck on this reply. Please ask again.",
  engine_failed: "The model failed on this reply. Please ask again.",
  context_too_long: "The conversation has grown too long for the model. Reload the page to start afresh.",
  superseded: "This conversation went on in another window. Reload the page to talk here.",
  session_lost: "The connection was away too long. Here we go again, from what you see.",
  unreachable: "The server cannot be reached.",
  input_empty: "Nothing was heard. Hold the button while you talk.",
  asr_failed: "That was not understood. Please say it again.",
  microphone_denied: "This page may not use the microphone. Allow it beside the address of the page, then try again.",
  microphone_insecure: "Browsers give a microphone only to https pages and to localhost.",
  no_microphone: "There is no microphone here. Connect one and try again; typing works meanwhile.",
  microphone_busy: "Another program holds the microphone. Close it there and try again.",
  microphone_lost: "The microphone was taken away. Connect it, or another one, and press the button again.",
  no_capture: "This browser cannot hear a microphone. Typing works.",
  no_worklet: "This browser plays sound only on https pages or on localhost, so you see captions alone.",
};

/** One plain sentence for a person. */
export function plainWords(error) {
  return WORDS[error.code] ?? error.message;
}
