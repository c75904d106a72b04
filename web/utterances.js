// What a person is saying, as the server understands it, until a turn answers it. Pure.

const SHORTEST_MS = 300; // what is shorter was a noise, and nothing is told of it afterwards
const KEPT = 8; // utterances whose text may still change, or whose turn is still to come

export class Utterances {
  #all = new Map(); // number -> {number, text, isSpoken, isFinal, isDismissed, started_at_ms, ended_at_ms, turn}
  #carried = ""; // what was said before the speaker went on, and is answered with the rest

  /** Takes speech.started, speech.ended or transcript; returns the utterance as it is now. */
  take(event) {
    const utterance = this.#of(event.utterance);
    if (event.type === "speech.started") Object.assign(utterance, { isSpoken: true, started_at_ms: event.at_ms });
    if (event.type === "speech.ended") Object.assign(utterance, { isSpoken: false, ended_at_ms: event.at_ms });
    if (event.type === "transcript") {
      utterance.text = event.text;
      if (event.final) Object.assign(utterance, { isSpoken: false, isFinal: true });
      utterance.turn = event.turn ?? utterance.turn;
    }
    return utterance;
  }

  /** The utterance that a turn answers: the one that names it, else the newest that is over and unanswered; or null. */
  answeredBy(turn) {
    const all = [...this.#all.values()];
    const utterance = all.find((it) => it.turn === turn) ?? all.findLast((it) => it.turn === null && it.text && !it.isSpoken && !it.isDismissed) ?? null;
    if (!utterance) return null;
    utterance.turn = turn;
    utterance.text = joined(this.#carried, utterance.text);
    this.#carried = "";
    return utterance;
  }

  /** The turn that answered this utterance is superseded: what follows is answered together with it. */
  carry(number) {
    this.#carried = joined(this.#carried, this.#all.get(number)?.text ?? "");
  }

  /** Whether somebody speaks now. */
  get isHearing() {
    return [...this.#all.values()].some((it) => it.isSpoken);
  }

  /** What was said was not meant to be answered: "mhm" into a reply that goes on. */
  dismiss() {
    for (const utterance of this.#all.values()) if (!utterance.isSpoken) utterance.isDismissed = true;
  }

  /** Whether the final words of somebody who has finished are awaited. */
  get isAwaited() {
    return [...this.#all.values()].some((it) => !it.isSpoken && !it.isFinal && !it.isDismissed && it.ended_at_ms - it.started_at_ms >= SHORTEST_MS);
  }

  /** The words that no turn answers yet. */
  get pending() {
    const newest = [...this.#all.values()].at(-1);
    return newest && newest.turn === null && !newest.isDismissed ? joined(this.#carried, newest.text) : "";
  }

  reset() {
    this.#all.clear();
    this.#carried = "";
  }

  #of(number) {
    if (!this.#all.has(number)) {
      this.#all.set(number, { number, text: "", isSpoken: false, isFinal: false, isDismissed: false, started_at_ms: null, ended_at_ms: null, turn: null });
      while (this.#all.size > KEPT) this.#all.delete(this.#all.keys().next().value);
    }
    return this.#all.get(number);
  }
}

/** As the gateway joins them: Chinese without a space. */
function joined(before, after) {
  return before && after ? before + (after.codePointAt(0) > 0x2e80 ? "" : " ") + after : before || after;
}
