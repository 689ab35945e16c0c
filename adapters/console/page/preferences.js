// What a person has chosen, kept in this browser; and the clock that relative times follow.
import { signal, effect } from "./vendor/preact.js";

const NAME = "foldlog.preferences";

/** @typedef {{theme: "system"|"light"|"dark"|"contrast", utc: boolean, density: "compact"|"normal", motion: "system"|"off", keys: boolean, notify: boolean, views: {name: string, query: string}[]}} Preferences */

/** @type {Preferences} */
const FIRST = { theme: "system", utc: false, density: "normal", motion: "system", keys: true, notify: false, views: [] };

/** @returns {Preferences} */
function stored() {
  try {
    return { ...FIRST, ...JSON.parse(localStorage.getItem(NAME) ?? "{}") };
  } catch {
    return FIRST;
  }
}

export const preferences = signal(stored());

/** @param {Partial<Preferences>} change */
export function prefer(change) {
  preferences.value = { ...preferences.value, ...change };
  try {
    localStorage.setItem(NAME, JSON.stringify(preferences.value));
  } catch {
    // A browser that stores nothing: it holds until the tab is closed.
  }
}

addEventListener("storage", (event) => {
  if (event.key === NAME) preferences.value = stored();
});

effect(() => {
  const { theme, density, motion } = preferences.value, root = document.documentElement;
  root.dataset.theme = theme;
  root.dataset.density = density;
  root.dataset.motion = motion;
});

/** Unix seconds, changed each second while the page is seen. */
export const now = signal(Date.now() / 1000);
setInterval(() => {
  if (!document.hidden) now.value = Date.now() / 1000;
}, 1000);
