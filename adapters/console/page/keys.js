// The keyboard: single keys that act outside of fields, and can be turned off; sequences that begin with g.
import { signal, useEffect, useRef } from "./vendor/preact.js";
import { preferences } from "./preferences.js";
import { go } from "./route.js";

/** @typedef {Record<string, (() => void)|undefined>} Keys */

/** @type {{current: Keys}[]} */
const bound = [];
export const helpShown = signal(false);
export const paletteShown = signal(false);

/** Screens by the letter after g. */
export const PLACES = /** @type {Record<string, [string, string]>} */ ({
  r: ["/runs", "Runs"],
  a: ["/approvals", "Approvals"],
  q: ["/queue", "Queue"],
  w: ["/workers", "Workers"],
  c: ["/costs", "Costs"],
  s: ["/sessions", "Sessions"],
  m: ["/monitor", "Monitor"],
});

/** What the help shows. */
export const HELP = [
  ["?", "this help"],
  ["/", "filter"],
  ["Ctrl K", "palette: any run, screen or action"],
  ["g r a q w c s m", "go to Runs, Approvals, Queue, Workers, Costs, Sessions, Monitor"],
  ["j k or arrows", "next and previous row"],
  ["Enter", "open"],
  ["x", "choose a row"],
  ["Esc", "back, close"],
  ["f", "follow a live run"],
  ["[ ]", "one revision back, forward"],
  ["1–7", "tabs of a run"],
  ["+ - 0", "zoom of the timeline, all of it"],
  ["e", "the event whole, with its commit"],
  [".", "actions"],
  ["y", "copy the id"],
  ["a r n", "in approvals: approve, reject, note"],
  ["Ctrl Enter", "send a form"],
];

/** Bind keys while the component is there; the one that came last wins. @param {Keys} keys */
export function useKeys(keys) {
  const held = useRef(keys);
  held.current = keys;
  useEffect(() => {
    bound.push(held);
    return () => {
      bound.splice(bound.indexOf(held), 1);
    };
  }, []);
}

/** @param {EventTarget|null} target */
function inField(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

/** When "g" was pressed, by the clock of the events: a page that is busy takes no time from whoever types. */
let gAt = -Infinity;

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.defaultPrevented || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    paletteShown.value = !paletteShown.value;
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || inField(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && event.target !== document.body) return; // for the link or button that has the focus
  if (event.key === "Escape") {
    if (act("Escape")) event.preventDefault();
    return;
  }
  if (!preferences.value.keys) return;
  if (event.timeStamp - gAt < 1500 && event.key in PLACES) {
    gAt = -Infinity;
    event.preventDefault();
    go(PLACES[event.key][0]);
    return;
  }
  gAt = -Infinity;
  if (event.key === "g") gAt = event.timeStamp;
  else if (event.key === "?") helpShown.value = true;
  else if (!act(event.key)) return;
  event.preventDefault();
}

/** @param {string} key */
function act(key) {
  for (let n = bound.length - 1; n >= 0; n--) {
    const then = bound[n].current[key];
    if (then) {
      then();
      return true;
    }
  }
  return false;
}
document.addEventListener("keydown", onKey);
