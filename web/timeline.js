// When the stages of a reply came, against the promise. Pure: milliseconds in, places and words out.

export const PROMISE_MS = { half: 300, nearly_all: 600 }; // first audio: half of all turns, and 99 in 100
export const STAGES = Object.freeze([
  { name: "ttft", label: "First word" },
  { name: "segment", label: "First sentence" },
  { name: "audio", label: "First audio" },
  { name: "sound", label: "First sound" },
]);
const SCALE_MS = 900; // the strip's right end; what comes later is drawn there

/** Where on the strip, in per cent of its width. */
export function place(ms) {
  return (100 * Math.min(Math.max(ms, 0), SCALE_MS)) / SCALE_MS;
}

/** good (as fast as half of all should be), fair (within the promise) or late. */
export function verdict(ms) {
  if (ms <= PROMISE_MS.half) return "good";
  return ms <= PROMISE_MS.nearly_all ? "fair" : "late";
}

/** One sentence about the newest of `marks` {ttft?, segment?, audio?, sound?}. */
export function summary(marks) {
  const last = STAGES.findLast(({ name }) => marks[name] !== undefined);
  if (!last) return "Waiting for the first word";
  const ms = marks[last.name];
  const words = { good: `within ${PROMISE_MS.half} ms`, fair: `within ${PROMISE_MS.nearly_all} ms`, late: `later than ${PROMISE_MS.nearly_all} ms` };
  return `${last.label} after ${Math.round(ms)} ms, ${words[verdict(ms)]}`;
}
