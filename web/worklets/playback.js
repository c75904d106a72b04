// Plays queued frames without a gap, on the audio thread. process() copies and counts, and allocates nothing; whatever
// allocates (taking a frame, answering "report") happens in the message handler, between callbacks.
//
// In:  {take: {turn, samples: Float32Array}} {end: turn} {flush: turn, isRunning} {pause} {resume} {reset} {report}
// Out: the report below, one for each {report}

const SLOTS = 4096; // frames that wait; at 20 ms each more than a minute, far above any lead
const TURNS = 16; // turns whose counts are kept
const FADE_S = 0.012; // short enough to stop at once, long enough not to click
const REFILL_S = 0.06; // before sound begins, wait for this much: a reply's first frame is 20 ms, and the next may be late
const PATIENCE_S = { start: 0.03, underrun: 0.1 }; // but no longer than this; after a gap, so that one does not become many

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.samples = new Array(SLOTS).fill(null);
    this.turns = new Float64Array(SLOTS);
    this.head = 0; // slot that plays
    this.count = 0; // slots that wait, that one included
    this.offset = 0; // samples of it that were played
    this.queued = 0; // samples that wait
    this.gain = 1;
    this.isPaused = false;
    this.flushing = 0; // this turn, and older ones, fade out and are dropped
    this.flushed = 0;
    this.ended = 0; // of this turn everything has been sent
    this.turn = 0; // turn that played last
    this.isDry = true; // nothing plays, and not because of a pause
    this.gap = 0; // samples of silence since it ran dry
    this.waited = 0; // those of them in which a frame was there
    this.frames_played = 0;
    this.frames_dropped = 0;
    this.underruns = 0; // silences within a turn
    this.underrun_samples = 0;
    this.played_turn = new Float64Array(TURNS);
    this.played_samples = new Float64Array(TURNS);
    this.first_at = new Float64Array(TURNS); // context time of the turn's first sample
    this.last_at = new Float64Array(TURNS); // and of the end of its newest
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  receive(message) {
    if (message.take) this.take(message.take);
    else if (message.end) this.ended = Math.max(this.ended, message.end);
    else if (message.flush) this.flush(message.flush, message.isRunning);
    else if (message.pause) this.isPaused = true;
    else if (message.resume) this.isPaused = false;
    else if (message.reset) this.reset();
    else if (message.report) this.port.postMessage(this.report());
  }

  take({ turn, samples }) {
    if (turn <= Math.max(this.flushing, this.flushed) || this.count === SLOTS || samples.length === 0) {
      this.frames_dropped++;
      return;
    }
    const slot = (this.head + this.count++) % SLOTS;
    this.samples[slot] = samples;
    this.turns[slot] = turn;
    this.queued += samples.length;
  }

  flush(turn, isRunning) {
    this.flushing = Math.max(this.flushing, turn);
    if (!isRunning || this.isDry || this.gain === 0 || this.turns[this.head] > turn) this.drop(); // nothing sounds that could fade
  }

  /** Drops what waits of the flushed turn and older ones. */
  drop() {
    while (this.count > 0 && this.turns[this.head] <= this.flushing) {
      this.queued -= this.samples[this.head].length - this.offset;
      this.frames_dropped++;
      this.step();
    }
    this.flushed = Math.max(this.flushed, this.flushing);
    this.flushing = 0;
    this.isDry = true;
    this.gain = this.isPaused ? 0 : 1; // the next turn's first sound is not faded
  }

  /** Forgets every turn: another session begins, and counts them from 1 again. */
  reset() {
    this.flushing = Infinity;
    this.drop();
    this.flushed = this.ended = this.turn = this.gap = this.waited = 0;
    this.played_turn.fill(0);
  }

  /** Goes on to the next slot. */
  step() {
    this.samples[this.head] = null;
    this.head = (this.head + 1) % SLOTS;
    this.count--;
    this.offset = 0;
  }

  process(_inputs, outputs) {
    const out = outputs[0][0];
    const n = out.length;
    const fade = 1 / (FADE_S * sampleRate);
    let i = 0;
    while (i < n) {
      const goal = this.isPaused || this.flushing ? 0 : 1;
      if (goal === 0 && this.gain === 0) {
        if (!this.flushing) return true; // paused: the rest of `out` is silence
        this.drop();
        continue;
      }
      if (!this.canPlay()) {
        if (this.flushing) this.drop();
        this.gap += n - i;
        if (this.count > 0) this.waited += n - i;
        this.gain = this.isPaused ? 0 : 1;
        return true;
      }
      i = this.copy(out, i, goal, fade);
    }
    return true;
  }

  canPlay() {
    if (this.count === 0) {
      this.isDry = true;
      return false;
    }
    if (!this.isDry) return true;
    const next = this.turns[this.head];
    const isGap = next === this.turn;
    const patience_s = isGap ? PATIENCE_S.underrun : PATIENCE_S.start;
    if (this.ended < next && this.queued < REFILL_S * sampleRate && this.waited < patience_s * sampleRate) return false;
    if (isGap) {
      this.underruns++;
      this.underrun_samples += this.gap;
    }
    this.gap = this.waited = 0;
    this.isDry = false;
    return true;
  }

  /** Copies from the playing slot until it, or `out`, or the fade is done. Returns the next place in `out`. */
  copy(out, from, goal, fade) {
    const source = this.samples[this.head];
    const turn = this.turns[this.head];
    const place = turn % TURNS;
    if (this.played_turn[place] !== turn) {
      this.played_turn[place] = turn;
      this.played_samples[place] = 0;
      this.first_at[place] = (currentFrame + from) / sampleRate;
    }
    this.turn = turn;
    let i = from;
    let offset = this.offset;
    let gain = this.gain;
    while (i < out.length && offset < source.length) {
      if (gain !== goal) {
        gain = goal === 1 ? Math.min(1, gain + fade) : Math.max(0, gain - fade);
        if (gain === 0) break;
      }
      out[i++] = source[offset++] * gain;
    }
    this.gain = gain;
    this.queued -= offset - this.offset;
    this.played_samples[place] += i - from;
    this.last_at[place] = (currentFrame + i) / sampleRate;
    this.offset = offset;
    if (offset === source.length) {
      this.frames_played++;
      this.step();
    }
    return i;
  }

  report() {
    const turns = [];
    for (let place = 0; place < TURNS; place++) {
      if (!this.played_turn[place]) continue;
      turns.push({ turn: this.played_turn[place], samples: this.played_samples[place], first_at: this.first_at[place], last_at: this.last_at[place] });
    }
    const { queued, flushed, isPaused, isDry, frames_played, frames_dropped, underruns, underrun_samples } = this;
    return { at: currentTime, turns, queued, flushed, isPaused, isDry, frames_played, frames_dropped, underruns, underrun_samples };
  }
}

registerProcessor("stretto-playback", Playback);
