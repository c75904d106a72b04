// Who wants to know of what.

export class Listeners {
  #byName = new Map();

  /** Calls `listener` with what is told under `name`; returns how to stop. */
  on(name, listener) {
    if (!this.#byName.has(name)) this.#byName.set(name, new Set());
    this.#byName.get(name).add(listener);
    return () => this.#byName.get(name).delete(listener);
  }

  tell(name, value) {
    for (const listener of this.#byName.get(name) ?? []) listener(value);
  }
}
