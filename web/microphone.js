// The microphone of the page's device: open, closed, taken away, given back. Knows sound, not the page or the session.
//
// Opening asks the person, the first time. Frames come as long as it is open; their media time counts from the first opening
// (or `restart`) and runs on while the microphone is closed, so that a silence is as long as it was.

import { Framer } from "./framing.js";

const PROCESSOR = "stretto-capture";
const CONSTRAINTS = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
const FAULTS = {
  NotAllowedError: "microphone_denied",
  SecurityError: "microphone_denied",
  NotFoundError: "no_microphone",
  OverconstrainedError: "no_microphone",
  NotReadableError: "microphone_busy",
  AbortError: "microphone_busy",
};

/** Why there is no microphone: `code` is microphone_denied, no_microphone, microphone_busy, microphone_lost, no_capture or microphone_insecure. */
export class MicrophoneError extends Error {
  constructor(code, cause) {
    super(cause ? `${code}: ${cause.message}` : code, { cause });
    this.name = "MicrophoneError";
    this.code = code;
  }
}

export class Microphone {
  /** `platform` {mediaDevices, createContext, createNode, now, audioSession}: the browser's unless given. */
  constructor(platform = browserPlatform()) {
    this.onframe = null; // ({data, pts_ms, level})
    this.onstate = null; // (closed opening open silenced): silenced is open, but the system lets no sound in
    this.onfault = null; // (MicrophoneError) that ended an open microphone
    this.ondevice = null; // (label) when another device took over
    this.state = "closed";
    this.level = 0;
    this.#platform = platform;
    platform.mediaDevices?.addEventListener?.("devicechange", () => this.#onDevices());
  }

  #platform;
  #rate_hz = 16000;
  #round = 0; // counts openings, so that a late answer about an older one is dropped
  #opening = null; // promise of the opening under way
  #parts = null; // {stream, track, context, source, node, framer}
  #origin_ms = null; // the clock's time at media time 0
  #end_ms = 0; // media time up to which frames were handed on
  #arrived_ms = 0; // the clock's time when they were

  /** Frames at `rate_hz` from now on. Resolves once the microphone hears; rejects with MicrophoneError. */
  open(rate_hz) {
    this.#rate_hz = rate_hz;
    if (this.#parts) return this.wake();
    this.#opening ??= this.#open(++this.#round);
    return this.#opening;
  }

  /** Lets go of the device; the browser's sign that it is in use goes out. */
  close() {
    this.#round++;
    this.#opening = null;
    this.#release();
    this.#setState("closed");
    if (this.#platform.audioSession) this.#platform.audioSession.type = "playback";
  }

  /** Goes on after the browser held the sound back; in a gesture, where it asks for one. */
  async wake() {
    if (this.#parts?.context.state !== "running") await this.#parts?.context.resume();
  }

  /** Media time begins anew: another session listens. */
  restart() {
    this.#origin_ms = null;
    this.#end_ms = 0;
    if (this.#parts) this.#parts.framer = this.#framer(this.#parts.context);
  }

  /** The clock's time at which the media time `pts_ms` was heard. */
  momentOf(pts_ms) {
    return this.#arrived_ms - (this.#end_ms - pts_ms);
  }

  async #open(round) {
    const { mediaDevices, audioSession } = this.#platform;
    this.#setState("opening");
    try {
      if (!mediaDevices?.getUserMedia) throw new MicrophoneError("microphone_insecure");
      if (audioSession) audioSession.type = "play-and-record"; // before the stream: an iPhone hands over silence otherwise
      const parts = await this.#take(await mediaDevices.getUserMedia({ audio: CONSTRAINTS }));
      if (round !== this.#round) throw drop(parts, new MicrophoneError("microphone_lost")); // closed meanwhile
      this.#parts = parts;
      this.#opening = null;
      this.#watch(parts);
      this.#tellState();
    } catch (error) {
      if (round === this.#round) {
        this.#opening = null;
        this.#setState("closed");
      }
      throw error instanceof MicrophoneError ? error : new MicrophoneError(FAULTS[error.name] ?? "no_capture", error);
    }
  }

  async #take(stream) {
    const [track] = stream.getAudioTracks();
    let context;
    try {
      context = this.#platform.createContext();
      await context.audioWorklet.addModule(new URL("./worklets/capture.js", import.meta.url));
      const node = this.#platform.createNode(context, PROCESSOR, { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
      const source = context.createMediaStreamSource(stream);
      source.connect(node);
      await Promise.race([context.resume(), new Promise((go) => setTimeout(go, 300))]); // without a gesture it may stay suspended: said by the state
      return { stream, track, context, source, node, framer: this.#framer(context) };
    } catch (error) {
      track.stop();
      context?.close();
      throw error;
    }
  }

  /** Blocks that the context hands over now belong to the media time that is now. */
  #framer(context) {
    const now = this.#platform.now();
    this.#origin_ms ??= now;
    const start_ms = Math.max(this.#end_ms, now - this.#origin_ms) - 1000 * context.currentTime;
    return new Framer({ from_hz: context.sampleRate, to_hz: this.#rate_hz, start_ms });
  }

  #watch(parts) {
    const { track, context, node } = parts;
    node.port.onmessage = ({ data }) => parts === this.#parts && this.#onBlock(data);
    track.onended = () => parts === this.#parts && this.#onLost();
    track.onmute = track.onunmute = context.onstatechange = () => parts === this.#parts && this.#tellState();
  }

  #onBlock(block) {
    for (const frame of this.#parts.framer.push(block)) {
      this.#arrived_ms = this.#platform.now();
      this.#end_ms = frame.pts_ms + (500 * frame.data.length) / this.#rate_hz;
      this.level = frame.level;
      this.onframe?.(frame);
    }
  }

  /** The device is gone: unplugged, or taken by the system. Another one takes over where there is one. */
  async #onLost() {
    this.#release();
    const opening = this.open(this.#rate_hz);
    const round = this.#round;
    try {
      await opening;
      this.ondevice?.(this.#parts.track.label);
    } catch (error) {
      if (round === this.#round) this.onfault?.(new MicrophoneError("microphone_lost", error));
    }
  }

  /** Not every browser ends the track of a device that was pulled out. */
  async #onDevices() {
    const parts = this.#parts;
    const id = parts?.track.getSettings?.().deviceId;
    if (!id) return;
    const devices = await this.#platform.mediaDevices.enumerateDevices();
    const isThere = devices.some(({ kind, deviceId }) => kind === "audioinput" && deviceId === id);
    if (!isThere && parts === this.#parts) this.#onLost();
  }

  #tellState() {
    const { track, context } = this.#parts;
    this.#setState(track.muted || context.state !== "running" ? "silenced" : "open");
    if (this.state === "silenced") this.level = 0;
  }

  #release() {
    if (this.#parts) drop(this.#parts);
    this.#parts = null;
    this.level = 0;
  }

  #setState(state) {
    if (state === this.state) return;
    this.state = state;
    this.onstate?.(state);
  }
}

function drop({ track, context, source, node }, error) {
  track.onended = context.onstatechange = null;
  node.port.postMessage({ close: true });
  source.disconnect();
  track.stop();
  context.close();
  return error;
}

function browserPlatform() {
  return {
    mediaDevices: navigator.mediaDevices,
    audioSession: navigator.audioSession,
    createContext: () => new AudioContext({ latencyHint: "interactive" }),
    createNode: (context, name, options) => new AudioWorkletNode(context, name, options),
    now: () => performance.now(),
  };
}
