// What the browser keeps for this page: the voice for good, the key until the tab is closed. A browser may refuse both.

const STORES = { voice: "localStorage", key: "sessionStorage" };

/** The value kept under `name` ("voice" or "key"), or "". */
export function kept(name) {
  try {
    return globalThis[STORES[name]].getItem(`stretto.${name}`) ?? "";
  } catch {
    return ""; // storage is blocked: nothing was kept
  }
}

export function keep(name, value) {
  try {
    globalThis[STORES[name]].setItem(`stretto.${name}`, value);
  } catch {
    // storage is blocked or full: the page works, and asks again next time
  }
}
