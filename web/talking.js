// Talking by voice: hold to talk, or hands-free. Joins a microphone and a session; knows nothing of buttons.
//
// Held, what is said goes out while the button is down, and its release commits it. Hands-free, everything goes out and the
// server decides when somebody has finished. What is said before a press is known for a tap or a hold waits for that, and is not
// lost. The microphone stays open for a while after a hold, so that the next one does not lose its first word to the device;
// nothing of what it hears then leaves the page.

export const TAP_MS = 300; // a shorter press is a tap: nobody says a word in it
const TAIL_MS = 80; // the newest block and frame are still on their way when the button comes up
const LINGER_MS = 20_000; // how long the device stays open after a hold

export class Talking {
  /** `microphone` as in microphone.js; `session` gives `audio_in`, `sendAudio`, `commit`, `clear`, `mute` and `update`. */
  constructor(session, microphone, clock = browserClock()) {
    this.onchange = null; // (): mode, isMuted or the microphone's state is another
    this.onhold = null; // (): what is said now is meant, a reply that plays is not wanted any more
    this.onfault = null; // (error)
    this.mode = "off"; // off opening held free
    this.isMuted = false;
    this.#session = session;
    this.#clock = clock;
    this.microphone = microphone;
    microphone.onframe = (frame) => this.#onFrame(frame);
    microphone.onstate = () => this.onchange?.();
    microphone.onfault = (error) => this.#fail(error);
  }

  #session;
  #clock;
  #press = null; // {at}: the button is down
  #early = null; // frames of a press that is not known for a tap or a hold
  #listensBy = "auto"; // what the server was told
  #closing = null; // timer that lets go of the device
  #holding = null; // timer that turns a press into a hold
  #tail = null; // timer of the commit that a hold's end owes
  #owesCommit = false; // pressed again before it was sent: the next release sends it
  #willBeFree = false; // what to become once the device is there: the press that opened it was a tap

  /** Whether what is said now goes out. */
  get isOn() {
    return (this.mode === "held" || this.mode === "free") && !this.isMuted && this.microphone.state === "open";
  }

  /** The button, or the key, went down. */
  async press() {
    if (this.#press || this.mode === "opening") return;
    const press = (this.#press = { at: this.#clock.now() });
    if (this.#tail !== null) this.#owesCommit = true;
    this.#clock.clearTimeout(this.#tail);
    this.#tail = null;
    if (this.mode === "free") return; // its release decides what it was
    await this.#open();
    if (press !== this.#press || this.mode !== "opening") return; // it failed, or the button came up before the device was there
    this.#early ??= [];
    this.#setMode("held");
    this.#holding = this.#clock.setTimeout(() => this.#hold(), TAP_MS);
  }

  /** It came up again. A tap turns hands-free on or off, unless `canTap` is false; the end of a hold commits what was said. */
  release({ canTap = true } = {}) {
    const press = this.#press;
    this.#press = null;
    if (!press) return;
    const isTap = this.#clock.now() - press.at < TAP_MS;
    if (this.mode === "held") this.#endHold(isTap, canTap);
    else if (this.mode === "free" && canTap && isTap) this.stop();
    else if (this.mode === "opening") this.#willBeFree = isTap && canTap;
  }

  /** The press is over and was not meant: what was said in it is thrown away. */
  abandon() {
    this.#press = null;
    if (this.mode !== "held") return;
    if (!this.#early) this.#session.clear().catch(() => {});
    this.#rest();
  }

  /** Hands-free on or off: for a button pressed without a pointer. */
  async toggle() {
    if (this.mode === "free") this.stop();
    else if (this.mode === "off") await this.#open({ willBeFree: true });
  }

  setMuted(isMuted) {
    if (isMuted === this.isMuted || this.mode !== "free") return;
    this.isMuted = isMuted;
    this.#session.mute(isMuted).catch(() => {}); // a later session is told when it begins
    this.onchange?.();
  }

  /** Another session listens: its media time begins anew, and it does not know that the microphone is muted. */
  restart() {
    this.microphone.restart();
    const listensBy = this.#listensBy;
    this.#listensBy = "auto";
    this.#listenBy(listensBy);
    if (this.isMuted) this.#session.mute(true).catch(() => {});
  }

  stop() {
    if (this.isMuted) this.setMuted(false);
    this.#press = null;
    this.#forget();
    this.microphone.close();
    this.#setMode("off");
  }

  async #open({ willBeFree = false } = {}) {
    this.#clock.clearTimeout(this.#closing);
    this.#willBeFree = willBeFree;
    this.#setMode("opening");
    try {
      await this.microphone.open(this.#session.audio_in.rate_hz);
    } catch (error) {
      if (this.mode === "opening") this.#fail(error);
      return;
    }
    if (this.mode !== "opening") return; // stopped meanwhile
    if (this.#willBeFree) this.#free();
    else if (!this.#press) this.#rest();
  }

  #free() {
    this.#clock.clearTimeout(this.#holding);
    this.#listenBy("auto");
    this.#sendEarly();
    this.#setMode("free");
  }

  /** The press has lasted: it is a hold. */
  #hold() {
    this.#listenBy("push_to_talk");
    this.#sendEarly();
    this.onhold?.();
  }

  #listenBy(turn_detection) {
    if (turn_detection === this.#listensBy) return;
    this.#listensBy = turn_detection;
    this.#session.update({ turn_detection }).catch((error) => this.onfault?.(error));
  }

  #sendEarly() {
    for (const { data, pts_ms } of this.#early ?? []) this.#session.sendAudio(data, pts_ms);
    this.#early = null;
  }

  #endHold(isTap, canTap) {
    this.#clock.clearTimeout(this.#holding);
    if (isTap && !this.#owesCommit) return canTap ? this.#free() : this.#rest();
    if (this.#early) this.#hold(); // a timer that comes late
    this.#tail = this.#clock.setTimeout(() => {
      this.#session.commit().catch((error) => this.onfault?.(error));
      this.#rest();
    }, TAIL_MS);
    return undefined;
  }

  /** Nothing goes out; the device stays open for a while. */
  #rest() {
    this.#forget();
    this.#closing = this.#clock.setTimeout(() => this.microphone.close(), LINGER_MS);
    this.#setMode("off");
  }

  #forget() {
    for (const timer of [this.#holding, this.#closing, this.#tail]) this.#clock.clearTimeout(timer);
    this.#early = this.#tail = null;
    this.#owesCommit = false;
  }

  #onFrame(frame) {
    if (!this.isOn) return;
    if (this.#early) this.#early.push(frame);
    else this.#session.sendAudio(frame.data, frame.pts_ms);
  }

  #fail(error) {
    this.stop();
    this.onfault?.(error);
  }

  #setMode(mode) {
    if (mode === this.mode) return;
    this.mode = mode;
    this.onchange?.();
  }
}

function browserClock() {
  return {
    now: () => performance.now(),
    setTimeout: (call, ms) => setTimeout(call, ms),
    clearTimeout: (timer) => clearTimeout(timer),
  };
}
