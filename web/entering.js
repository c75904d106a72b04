// How a client shows that it may come in: a key, or a ticket that opens one connection.

import { StrettoError } from "./errors.js";
import { KEY_PREFIX, SUBPROTOCOL, TICKET_PREFIX } from "./protocol.js";

const ANSWER_MS = 5_000;

/** The subprotocols to offer; what comes after the prefix is never sent back. */
export function offers(key, ticket) {
  if (ticket) return [SUBPROTOCOL, TICKET_PREFIX + ticket];
  return key ? [SUBPROTOCOL, KEY_PREFIX + key] : [SUBPROTOCOL];
}

/** What a `ticket` function gives: {ticket}, or the {error} it failed with. */
export async function askedFor(ticket) {
  try {
    return { ticket: await ticket() };
  } catch (error) {
    return { error };
  }
}

/**
 * A `ticket` option for a page that has a key: it asks the gateway at `url` for one before each connection, so that the key
 * goes in a header of one request and never in a subprotocol, which proxies write down. `key` is asked for each time.
 */
export function ticketsFor(url, key, fetch = globalThis.fetch) {
  const address = new URL("/v1/tickets", url.replace(/^ws/, "http"));
  return async () => {
    if (!key()) return ""; // perhaps it needs none
    const headers = { Authorization: `Bearer ${asHeader(key())}` };
    const answer = await fetch(address, { method: "POST", headers, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.ok) return (await answer.json()).ticket;
    const { code, message } = (await answer.json()).error;
    const after_s = Number(answer.headers.get("retry-after") ?? 0);
    throw new StrettoError(code, message, { retryable: answer.status === 429 || answer.status >= 500, retry_after_ms: after_s * 1000 });
  };
}

function asHeader(key) {
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  throw new StrettoError("unauthorized", "The key has characters that no key has.");
}
