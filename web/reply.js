// One reply: the events of its turn, in order, for any number of readers, each from the first event on.

export class Reply {
  #events = [];
  #ended = false;
  #failure = null;
  #cancel;
  #change = signal();
  #done = signal();

  constructor(turn, item_id, cancel) {
    this.turn = turn;
    this.item_id = item_id;
    this.#cancel = cancel;
    this.#done.promise.catch(() => {}); // whoever awaits `done` sees it; nobody has to
  }

  /** Takes the next event of this turn; `turn.done` ends it. */
  push(event) {
    this.#events.push(event);
    if (event.type === "turn.done") {
      this.#ended = true;
      this.#done.resolve(event);
    }
    this.#wake();
  }

  /** Ends the reply without a `turn.done`; its readers throw `error`. */
  fail(error) {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = error;
    this.#done.reject(error);
    this.#wake();
  }

  /** The `turn.done` event: {status, timeline}. Rejects when the session was lost. */
  get done() {
    return this.#done.promise;
  }

  /** The caption text so far. */
  get text() {
    return this.#events.filter((event) => event.type === "segment").map((event) => event.text).join("");
  }

  /** Every event of the turn, `turn.done` last. Throws when the session was lost. */
  async *[Symbol.asyncIterator]() {
    for (let next = 0; ; next++) {
      while (next >= this.#events.length) {
        if (this.#failure) throw this.#failure;
        if (this.#ended) return;
        await this.#change.promise;
      }
      yield this.#events[next];
    }
  }

  /** {index, text, cut, emotion?}, each the moment it was decided. */
  async *segments() {
    for await (const event of this) if (event.type === "segment") yield event;
  }

  /** {index, pts_ms, data}: data is pcm16 at the session's `audio_out.rate_hz`. */
  async *audio() {
    for await (const event of this) if (event.type === "audio") yield event;
  }

  /** Asks the server to stop this reply; resolves when it has heard that. */
  cancel() {
    return this.#cancel(this.turn);
  }

  #wake() {
    const { resolve } = this.#change;
    this.#change = signal();
    resolve();
  }
}

function signal() {
  let resolve, reject;
  const promise = new Promise((yes, no) => [resolve, reject] = [yes, no]);
  return { promise, resolve, reject };
}
