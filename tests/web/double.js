// Doubles for the client's tests: a WebSocket whose other end the test plays, and a clock that the test turns.

import { decode, encode } from "../../web/msgpack.js";

export class Clock {
  #now = 0;
  #timers = new Map();
  #next = 1;

  now = () => this.#now;

  setTimeout = (call, ms) => {
    this.#timers.set(this.#next, { call, due: this.#now + ms });
    return this.#next++;
  };

  clearTimeout = (timer) => this.#timers.delete(timer);

  /** Turns the clock by `ms`, running what falls due, in order. */
  async advance(ms) {
    const end = this.#now + ms;
    for (;;) {
      await settle();
      const due = [...this.#timers].filter(([, timer]) => timer.due <= end).sort(([, a], [, b]) => a.due - b.due)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.#now = Math.max(this.#now, due[1].due);
      due[1].call();
    }
    this.#now = end;
    await settle();
  }
}

/** Lets everything that waits on promises alone run. */
export const settle = () => new Promise((resolve) => setImmediate(resolve));

/** A server that only the test moves: `WebSocket` goes into the client, `sockets` hold what it opened. */
export function server() {
  const sockets = [];
  class FakeWebSocket {
    constructor(url, protocols) {
      Object.assign(this, { url, protocols, sent: [], closed: null });
      sockets.push(this);
    }

    send(bytes) {
      if (this.closed) throw new Error("send on a closed socket");
      this.sent.push(decode(bytes));
    }

    close(code = 1005) {
      this.closed = { code };
    }

    // the server's side
    accept() {
      this.onopen();
    }

    say(...events) {
      for (const event of events) {
        const bytes = encode(event);
        this.onmessage({ data: bytes.buffer });
      }
    }

    drop(code = 1006, reason = "") {
      this.closed = { code };
      this.onclose({ code, reason });
    }

    ready(fields = {}) {
      this.accept();
      this.say({ ...READY, ...fields });
    }

    ofType(type) {
      return this.sent.filter((message) => message.type === type);
    }
  }
  return { sockets, WebSocket: FakeWebSocket, get last() { return sockets.at(-1); } };
}

export const READY = {
  type: "session.ready", session_id: "s1", resume_token: "t1", resumed: false, audio_out: { codec: "pcm16", rate_hz: 24000 },
  limits: { lead_ms: 1000, idle_s: 120, message_bytes: 65536, text_bytes: 32768 }, voices: [{ id: "amy", languages: ["en"] }],
};
