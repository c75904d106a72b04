// Plays a session's audio frames and says how much of each turn has been heard. Knows sound, not the page.
//
// A turn's position is the media time that has left the speaker: samples played, less the output's delay. Playout is
// reported at a turn's first sample, every 250 ms, at a pause, after an interruption and at the end (with `final`).

const POLL_MS = 30; // fine enough for captions; between polls the position runs with the audio clock
const REPORT_MS = 250; // as the protocol asks
const PROCESSOR = "stretto-playback";

export class Player {
  /** A player at `sample_rate_hz`. Throws DOMException or TypeError where the browser has no AudioWorklet (pages without TLS). */
  static async create({ sample_rate_hz = 24000, worklet_url = new URL("./worklets/playback.js", import.meta.url) } = {}) {
    if (navigator.audioSession) navigator.audioSession.type = "playback"; // else an iPhone's silent switch mutes us
    const context = new AudioContext({ sampleRate: sample_rate_hz, latencyHint: "interactive" });
    try {
      if (!context.audioWorklet) throw new TypeError("no AudioWorklet: it needs https or localhost");
      await context.audioWorklet.addModule(worklet_url);
      return new Player(context, new AudioWorkletNode(context, PROCESSOR, { numberOfInputs: 0, outputChannelCount: [1] }));
    } catch (error) {
      await context.close();
      throw error;
    }
  }

  constructor(context, node, clock = { now: () => performance.now(), setInterval: (call, ms) => setInterval(call, ms), clearInterval: (timer) => clearInterval(timer) }) {
    this.onplayout = null; // ({turn, played_ms, final}): to be sent to the server
    this.onfirstsound = null; // ({turn, at_ms}): the clock's time at which the turn was first heard
    this.counters = { frames_played: 0, frames_dropped: 0, underruns: 0, underrun_samples: 0, queued: 0 };
    this.#context = context;
    this.#node = node;
    this.#clock = clock;
    this.#analyser = context.createAnalyser();
    this.#analyser.fftSize = 512;
    this.#wave = new Float32Array(this.#analyser.fftSize);
    node.port.onmessage = ({ data }) => this.#onReport(data);
    node.connect(this.#analyser).connect(context.destination);
  }

  #context;
  #node;
  #clock;
  #analyser;
  #wave;
  #poll = null;
  #turns = new Map(); // turn -> {pushed, isEnded, isFlushed, isFinal, played, first_at, last_at, reported_ms, reported_at}
  #report = null; // newest from the worklet
  #mayPlay = true; // not paused

  get isPaused() {
    return !this.#mayPlay;
  }

  /** Whether sound comes out; false until the first gesture on the page. */
  get isRunning() {
    return this.#context.state === "running";
  }

  get sample_rate_hz() {
    return this.#context.sampleRate;
  }

  /** Lets sound out; to be called in a gesture (browsers ask for one, and phones again after a call). */
  async unlock() {
    if (!this.isRunning) await this.#context.resume();
  }

  /** Queues a frame of a turn: `data` is pcm16 (s16le, mono). */
  push(turn, data) {
    const state = this.#state(turn);
    if (state.isFlushed) return;
    const samples = toFloat(data);
    state.pushed += samples.length;
    this.#node.port.postMessage({ take: { turn, samples } }, [samples.buffer]);
    this.#start();
  }

  /** Everything of the turn has been pushed. */
  end(turn) {
    if (!this.#turns.has(turn)) return;
    this.#state(turn).isEnded = true;
    this.#node.port.postMessage({ end: turn });
    this.#ask();
  }

  /** Falls silent and forgets this turn and older ones; the final report follows. */
  flush(turn) {
    this.#state(turn);
    for (const [number, state] of this.#turns) if (number <= turn) state.isFlushed = true;
    this.#node.port.postMessage({ flush: turn, isRunning: this.isRunning });
    this.#start();
  }

  /** Holds everything, with a short fade; nothing is lost. */
  pause() {
    this.#mayPlay = false;
    this.#node.port.postMessage({ pause: true });
    for (const state of this.#turns.values()) if (state.reported_at !== null) state.reported_at = -Infinity; // due at once
    this.#ask();
  }

  resume() {
    if (this.#mayPlay) return;
    this.#mayPlay = true;
    this.#node.port.postMessage({ resume: true });
    this.#ask();
  }

  /** Forgets everything: another session begins, and counts its turns from 1 again. */
  reset() {
    this.#turns.clear();
    this.#node.port.postMessage({ reset: true });
    this.#report = null;
    this.resume();
  }

  /** Media milliseconds of the turn that have been heard by now. */
  position(turn) {
    const state = this.#turns.get(turn);
    return state ? this.#positionOf(state) : 0;
  }

  /** Whether the turn is being heard right now. */
  isSounding(turn) {
    const state = this.#turns.get(turn);
    return Boolean(state && !state.isFlushed && state.played > 0 && this.#mayPlay && this.isRunning && this.#positionOf(state) < this.#toMs(state.pushed));
  }

  /** Loudness now, 0 to 1: root mean square of the last 20 ms. */
  level() {
    this.#analyser.getFloatTimeDomainData(this.#wave);
    let sum = 0;
    for (const sample of this.#wave) sum += sample * sample;
    return Math.min(1, Math.sqrt(sum / this.#wave.length) * 3);
  }

  async close() {
    this.#clock.clearInterval(this.#poll);
    await this.#context.close();
  }

  #state(turn) {
    if (!this.#turns.has(turn)) {
      this.#turns.set(turn, { turn, pushed: 0, isEnded: false, isFlushed: false, isFinal: false, played: 0, first_at: null, last_at: null, reported_ms: 0, reported_at: null });
      for (const [number, state] of this.#turns) if (state.isFinal && number < turn - 8) this.#turns.delete(number);
    }
    return this.#turns.get(turn);
  }

  #start() {
    this.#poll ??= this.#clock.setInterval(() => this.#ask(), POLL_MS);
    this.#ask();
  }

  #ask() {
    this.#node.port.postMessage({ report: true });
  }

  #onReport(report) {
    this.#report = report;
    for (const name of Object.keys(this.counters)) this.counters[name] = report[name];
    for (const { turn, samples, first_at, last_at } of report.turns) {
      const state = this.#turns.get(turn);
      if (state) Object.assign(state, { played: samples, first_at, last_at });
    }
    for (const state of this.#turns.values()) if (!state.isFinal) this.#tell(state);
    if ([...this.#turns.values()].every((state) => state.isFinal)) {
      this.#clock.clearInterval(this.#poll);
      this.#poll = null;
    }
  }

  #tell(state) {
    const now = this.#clock.now();
    const isFlushed = state.isFlushed && this.#report.flushed >= state.turn;
    const position = isFlushed ? this.#toMs(state.played) : this.#positionOf(state); // what was rendered will still be heard
    const isOver = state.isEnded && position >= this.#toMs(state.pushed);
    if (isFlushed || isOver) {
      state.isFinal = true;
      this.onplayout?.({ turn: state.turn, played_ms: Math.round(position), final: true });
    } else if (state.reported_at === null && position > 0) {
      const delay_s = this.#context.currentTime - state.first_at;
      this.onfirstsound?.({ turn: state.turn, at_ms: now - delay_s * 1000 + this.#delay_ms });
      this.#say(state, position, now);
    } else if (state.reported_at !== null && now - state.reported_at >= REPORT_MS) {
      this.#say(state, position, now);
    }
  }

  #say(state, position, now) {
    state.reported_at = now;
    state.reported_ms = Math.max(state.reported_ms, Math.round(position));
    this.onplayout?.({ turn: state.turn, played_ms: state.reported_ms, final: false });
  }

  /** How long a sample takes from here to the ear; headsets make it long. */
  get #delay_ms() {
    return 1000 * (this.#context.outputLatency || this.#context.baseLatency || 0);
  }

  #positionOf(state) {
    if (!this.#report || state.first_at === null) return 0;
    const runs = this.#mayPlay && this.isRunning && !this.#report.isDry && !state.isFlushed;
    const rendered_ms = this.#toMs(state.played);
    const limit_ms = runs ? this.#toMs(state.pushed) : rendered_ms;
    const since_ms = 1000 * (this.#context.currentTime - state.last_at); // the delay's worth of sound leaves after a stop, too
    return Math.max(0, Math.min(rendered_ms + since_ms - this.#delay_ms, limit_ms));
  }

  #toMs(n_samples) {
    return (1000 * n_samples) / this.#context.sampleRate;
  }
}

/** Lets a session speak through a player, and the player report to the session. */
export function bindPlayer(session, player) {
  let paused = null;
  const goOn = (turn) => {
    if (turn !== paused) return; // a pause ends with its own turn: what comes next is heard
    paused = null;
    player.resume();
  };
  player.onplayout = ({ turn, played_ms, final }) => session.reportPlayout(turn, played_ms, final);
  const stops = [
    session.on("session.ready", ({ resumed }) => resumed || player.reset()),
    session.on("audio", ({ turn, data }) => player.push(turn, data)),
    session.on("reply.done", ({ turn }) => player.end(turn)),
    session.on("interrupted", ({ turn }) => {
      player.flush(turn);
      goOn(turn);
    }),
    session.on("turn.done", ({ turn }) => goOn(turn)),
    session.on("playout.pause", ({ turn }) => {
      paused = turn;
      player.pause();
    }),
    session.on("playout.resume", ({ turn }) => goOn(turn)),
  ];
  return () => stops.forEach((stop) => stop());
}

function toFloat(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const samples = new Float32Array(data.byteLength >> 1);
  for (let i = 0; i < samples.length; i++) samples[i] = view.getInt16(2 * i, true) / 32768;
  return samples;
}
