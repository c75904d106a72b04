// What the client takes from the platform, and what a browser's WebSocket keeps from us.

import { StrettoError } from "./errors.js";

const PROBE_MS = 5_000; // longer than any answer takes, shorter than a person waits

export function platformClock() {
  return {
    now: () => performance.now(),
    setTimeout: (call, ms) => setTimeout(call, ms),
    clearTimeout: (timer) => clearTimeout(timer),
  };
}

/** A WebSocket on its way. Throws StrettoError where the address or what is offered can never work. */
export function openSocket(WebSocket, url, protocols) {
  try {
    return new WebSocket(url, protocols);
  } catch (error) {
    const isKey = protocols.length > 1 && error.name === "SyntaxError"; // a subprotocol takes no spaces or separators
    throw isKey ? new StrettoError("unauthorized", "The key has characters that no key has.") : new StrettoError("bad_address", `${url}: ${error.message}`);
  }
}

/**
 * The StrettoError behind a handshake that failed, or null: try again. A browser shows close code 1006 alone, so the
 * same address is asked over HTTP, where the gateway answers 401, 403 or 426.
 */
export async function whyRefused(url, key, fetch) {
  if (!fetch) return null;
  try {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const { status } = await fetch(url.replace(/^ws/, "http"), { headers, cache: "no-store", signal: AbortSignal.timeout(PROBE_MS) });
    if (status === 401) return new StrettoError("unauthorized", key ? "The server does not accept this key." : "The server asks for a key.");
    if (status === 403) return new StrettoError("forbidden_origin", "The server does not accept this page's address.");
  } catch {
    // unreachable: what a retry is for
  }
  return null;
}
