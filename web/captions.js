// The caption of one reply: its segments, how far each is lit at a position, and what is still to come. Pure.

const MS_PER_CHARACTER = 65; // a guess at the length of a segment whose audio is still arriving

export class Caption {
  segments = []; // {index, text, start_ms, audio_ms, is_done, status}
  #text = ""; // all deltas

  addDelta({ text }) {
    this.#text += text;
  }

  addSegment({ index, text }) {
    this.segments[index] = { index, text, start_ms: null, audio_ms: 0, is_done: false, status: null };
    return this.segments[index];
  }

  addAudio({ index, pts_ms }, frame_ms) {
    const segment = this.segments[index];
    segment.start_ms ??= pts_ms;
    segment.audio_ms = pts_ms + frame_ms - segment.start_ms;
  }

  endSegment({ index, audio_ms, status }) {
    Object.assign(this.segments[index], { is_done: true, audio_ms, status });
  }

  /** Everything said so far. */
  get text() {
    const decided = this.segments.map((segment) => segment.text).join("");
    return this.#text.length > decided.length ? this.#text : decided;
  }

  /** Text that no segment holds yet. */
  get tail() {
    return this.text.slice(this.segments.reduce((n, segment) => n + segment.text.length, 0));
  }

  /** For each segment the share, 0 to 1, that has been spoken when `position_ms` of the turn has been heard. */
  litAt(position_ms) {
    const lit = [];
    for (const segment of this.segments) {
      const before = lit.at(-1) ?? 1;
      lit.push(segment.start_ms === null ? silentShare(segment, before) : spokenShare(segment, position_ms));
    }
    return lit;
  }
}

/** A segment without sound (no voice, or output text) is lit once what stands before it is. */
function silentShare(segment, before) {
  return segment.is_done && before === 1 ? 1 : 0;
}

function spokenShare(segment, position_ms) {
  const length_ms = segment.is_done ? segment.audio_ms : Math.max(segment.audio_ms, segment.text.length * MS_PER_CHARACTER);
  return Math.min(1, Math.max(0, (position_ms - segment.start_ms) / (length_ms || 1)));
}
