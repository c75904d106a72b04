// One exchange as it is seen: what was asked, its reply lit as it is heard, its times.

import { Caption } from "../captions.js";
import { STAGES, place, summary, verdict } from "../timeline.js";

const template = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);

export class Exchange {
  caption = new Caption();
  marks = {};
  turn = null;
  is_over = false;
  isSuperseded = false;
  #spans = [];

  constructor(text, asked_at) {
    this.asked_at = asked_at;
    this.element = template("exchange");
    this.setText(text);
    for (const { name, label } of STAGES) {
      const stave = template("stave");
      stave.dataset.stage = name;
      stave.querySelector(".stage").textContent = label;
      this.#part("staves").append(stave);
    }
    this.#part("summary").textContent = summary(this.marks);
  }

  #part(name) {
    return this.element.querySelector(`.${name}`);
  }

  /** What was asked; speech is understood better as it goes on. */
  setText(text) {
    this.text = text;
    this.#part("user-text").textContent = text;
    this.#part("user").hidden = !text;
  }

  /** The person went on speaking: a later exchange answers all of it. */
  supersede() {
    this.isSuperseded = true;
    this.finish();
    if (this.marks.sound === undefined) this.element.remove();
    else this.note("You went on speaking, so this reply was dropped.");
  }

  /** Notes the moment of a stage, the first time it is reached. */
  mark(name, at_ms) {
    if (this.marks[name] !== undefined) return;
    const ms = (this.marks[name] = Math.max(0, at_ms - this.asked_at));
    const stave = this.element.querySelector(`[data-stage=${name}]`);
    stave.style.setProperty("--at", `${place(ms)}%`);
    stave.dataset.verdict = verdict(ms);
    stave.querySelector(".value").textContent = `${Math.round(ms)} ms`;
    this.#part("summary").textContent = summary(this.marks);
    this.#part("strip").dataset.verdict = verdict(ms);
  }

  addDelta(event, now) {
    this.mark("ttft", now);
    this.caption.addDelta(event);
    this.#part("tail").textContent = this.caption.tail;
  }

  addSegment(event, now) {
    this.mark("segment", now);
    this.caption.addSegment(event);
    const span = document.createElement("span");
    span.className = "segment";
    span.textContent = event.text;
    this.#spans[event.index] = span;
    this.#part("segments").append(span);
    this.#part("tail").textContent = this.caption.tail;
  }

  endSegment(event) {
    this.caption.endSegment(event);
    if (event.status === "no_voice") this.note("No voice here speaks this language, so it is shown only.");
    if (event.status === "failed") this.note("The voice failed on a sentence, so it is shown only.");
  }

  /** Lights the caption up to what has been heard. */
  light(position_ms) {
    this.caption.litAt(position_ms).forEach((share, i) => {
      const span = this.#spans[i];
      const state = share >= 1 ? "spoken" : share > 0 ? "speaking" : "waiting";
      if (span.dataset.state !== state) span.dataset.state = state;
      if (state === "speaking") span.style.setProperty("--lit", `${(100 * share).toFixed(1)}%`);
    });
  }

  /** Shows what was cut off: the caption after the first `n` characters. */
  cutAt(n) {
    let left = n;
    for (const span of this.#spans) {
      const heard = span.textContent.slice(0, Math.max(0, left));
      const rest = span.textContent.slice(heard.length);
      left -= span.textContent.length;
      span.dataset.state = "spoken";
      if (!rest) continue;
      const cut = Object.assign(document.createElement("del"), { textContent: rest, className: heard || left + rest.length === 0 ? "first" : "" });
      span.replaceChildren(heard, cut);
    }
    this.#part("tail").textContent = "";
  }

  note(text, action = null) {
    const note = this.#part("note");
    note.textContent = text;
    note.hidden = false;
    if (!action) return;
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: action.label, onclick: action.run });
    note.append(" ", button);
  }

  fold() {
    this.#part("strip").open = false;
  }

  finish() {
    this.is_over = true;
    this.#part("tail").textContent = "";
  }

  /** What the conversation holds of it, as items for a new session. */
  get history() {
    if (this.isSuperseded) return [];
    const heard = this.heard_text ?? this.caption.text;
    return [{ role: "user", text: this.text }, { role: "assistant", text: heard }].filter((item) => item.text.trim());
  }
}
