// Whose turn it is, as one word for the page's looks and one line for the person. Pure.
//
// A paused reply goes before everything: the person has to see that it waits for them. Then their own voice, then ours.

/**
 * {floor, words} from what is so now:
 * `isConnected`; `exchange` {isSpeaking, hasAudio, voice} or null; `isPaused`, the reply's playout; `isLocked`, the browser
 * plays no sound yet; `isHearing`, somebody speaks; `isAwaited`, their words are being understood; `mode` (off opening held free), `isMuted` and `isSilenced` of the microphone.
 */
export function floorOf({ isConnected, exchange = null, isPaused = false, isLocked = false, isHearing = false, isAwaited = false, mode = "off", isMuted = false, isSilenced = false }) {
  if (mode === "opening") return { floor: "opening", words: "Opening the microphone" };
  if (exchange && isPaused) return { floor: "paused", words: isHearing ? "Paused, hearing you" : "Paused" };
  if (mode === "held" && isConnected) return { floor: "hearing", words: "Hearing you. Let go to send" };
  if (isHearing) return { floor: "hearing", words: "Hearing you" };
  if (exchange?.isSpeaking) return { floor: "assistant", words: `${exchange.voice ?? "The assistant"} is speaking` };
  if (exchange && !isConnected) return { floor: "thinking", words: "Waiting for the connection" };
  if (exchange && isLocked && exchange.hasAudio) return { floor: "thinking", words: "Tap or press a key to hear the reply" };
  if (exchange) return { floor: "thinking", words: exchange.hasSounded ? "One moment" : "Thinking" };
  if (!isConnected) return { floor: "user", words: mode === "free" ? "Waiting for the connection" : "" };
  if (isAwaited) return { floor: "thinking", words: "Thinking" };
  if (mode !== "free") return { floor: "user", words: "Your turn" };
  if (isMuted) return { floor: "muted", words: "Muted" };
  return isSilenced ? { floor: "muted", words: "Your device holds the microphone back" } : { floor: "listening", words: "Listening" };
}
