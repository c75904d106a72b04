// How long the client waits, how much it lets pile up, and which ends of a connection are final.

import { CLOSE } from "./protocol.js";

const BACKOFF_MS = { first: 250, longest: 8000 }; // a tunnel is left within seconds; a restart takes a few
export const QUIET_MS = { ask: 10_000, give_up: 20_000 }; // while an answer is due: ping, then call the connection dead
export const WATCH_MS = 5_000;
export const MAX_UNSENT_BYTES = 64_000; // two seconds of speech at 16 kHz
export const MAX_PENDING = 256; // the server remembers as many ids
export const FINAL_CLOSES = {
  [CLOSE.WRONG_FRAME]: "wrong_frame_kind", [CLOSE.POLICY]: "policy", [CLOSE.TOO_BIG]: "message_too_big", [CLOSE.SUPERSEDED]: "superseded",
};

/** Before the attempt after `attempts` that failed; `random` 0 to 1, so that clients do not come back in step. */
export function backoffMs(attempts, random) {
  return Math.min(BACKOFF_MS.first * 2 ** (attempts - 1), BACKOFF_MS.longest) * (0.75 + random / 2);
}
