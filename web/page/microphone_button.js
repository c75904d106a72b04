// The microphone's button, its keys, and the button that mutes. Press: hands-free. Hold, or hold the space bar: talk while it is down.

const $ = (id) => document.getElementById(id);
const LABELS = { off: "Talk hands-free, or hold to talk", opening: "Opening the microphone", held: "Let go to send", free: "Stop listening" };

/** Lets a person work `talking` (talking.js). Returns how to show it as it is now. */
export function bindButton(talking) {
  const button = $("talk");
  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    button.setPointerCapture(event.pointerId); // a finger that slides off still lets go here
    talking.press();
  });
  button.addEventListener("pointerup", () => talking.release());
  button.addEventListener("pointercancel", () => talking.release({ canTap: false }));
  button.addEventListener("contextmenu", (event) => event.preventDefault()); // a long press is no question
  button.addEventListener("click", ({ detail }) => detail === 0 && talking.toggle()); // the Enter key, or a screen reader
  $("mute").addEventListener("click", () => talking.setMuted(!talking.isMuted));
  document.addEventListener("keydown", (event) => onKeyDown(event, talking));
  document.addEventListener("keyup", (event) => onKeyUp(event, talking));
  window.addEventListener("blur", () => talking.release({ canTap: false })); // the key may come up elsewhere
  return (isOffered) => show(talking, isOffered);
}

function onKeyDown(event, talking) {
  if (event.key === "Escape") talking.abandon();
  if (event.key !== " " || event.isComposing || $("talk").hidden || !isFree(event.target)) return;
  event.preventDefault(); // it neither scrolls nor types
  if (!event.repeat) talking.press();
}

function onKeyUp(event, talking) {
  if (event.key !== " " || $("talk").hidden) return;
  if (event.target === $("talk")) event.preventDefault(); // or the browser makes a click of it
  talking.release({ canTap: false });
}

/** Whether the space bar has no other use there: an empty message begins with no space. */
function isFree(target) {
  if (target === $("text")) return target.value === "";
  return target === $("talk") || !target.closest("input, select, button, summary, a");
}

function show(talking, isOffered) {
  const button = $("talk");
  button.hidden = !isOffered;
  button.dataset.mode = talking.mode;
  button.setAttribute("aria-pressed", String(talking.mode === "free"));
  button.setAttribute("aria-label", LABELS[talking.mode]);
  $("how-to-talk").hidden = !isOffered;
  $("invitation").textContent = isOffered ? "Say something." : "Type something.";
  $("mute").hidden = talking.mode !== "free";
  $("mute").textContent = talking.isMuted ? "Unmute" : "Mute";
  $("mute").setAttribute("aria-pressed", String(talking.isMuted));
}
