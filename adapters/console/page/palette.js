// The palette: any screen, run or action by its name.
import { useEffect, useRef, useState } from "./vendor/preact.js";
import { html, Icon } from "./parts.js";
import { get, query } from "./api.js";
import { go } from "./route.js";
import { prefer, preferences } from "./preferences.js";
import { helpShown, paletteShown } from "./keys.js";
import { oneLine, visible } from "./text.js";

/** What the view in front offers, by its words. @type {{current: {name: string, act: () => void}[]}} */
export const actions = { current: [] };

/** @param {{screens: [string, string, any][]}} props */
export function Palette({ screens }) {
  const dialog = useRef(/** @type {HTMLDialogElement|null} */ (null));
  const [text, type] = useState("");
  const [at, move] = useState(0);
  const [runs, setRuns] = useState(/** @type {any[]} */ ([]));
  const close = () => (paletteShown.value = false);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  useEffect(() => {
    const control = new AbortController();
    const wait = setTimeout(() => {
      get(`/runs${query({ q: text.trim(), limit: 8 })}`, control.signal).then(({ rows }) => setRuns(rows), () => {});
    }, 120);
    return () => {
      clearTimeout(wait);
      control.abort();
    };
  }, [text]);
  const wanted = text.trim().toLowerCase();
  const has = (/** @type {string} */ name) => name.toLowerCase().includes(wanted);
  const found = [
    ...actions.current.filter(({ name }) => has(name)).map(({ name, act }) => ({ name, kind: "action", act })),
    ...screens.filter(([, name]) => has(name)).map(([path, name]) => ({ name, kind: "screen", act: () => go(path) })),
    ...[
      { name: preferences.value.utc ? "Show local times" : "Show times in UTC", act: () => prefer({ utc: !preferences.value.utc }) },
      { name: "Keys", act: () => (helpShown.value = true) },
    ].filter(({ name }) => has(name)).map((each) => ({ ...each, kind: "action" })),
    ...runs.map((row) => ({ name: `${row.run_id}  ${row.agent}  ${oneLine(row.input, 80)}`, kind: row.status, act: () => go(`/runs/${encodeURIComponent(row.run_id)}`) })),
  ];
  const chosen = Math.min(at, found.length - 1);
  const take = (/** @type {number} */ n) => {
    close();
    found[n]?.act();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "ArrowDown") move(Math.min(found.length - 1, chosen + 1));
    else if (event.key === "ArrowUp") move(Math.max(0, chosen - 1));
    else if (event.key === "Enter") take(chosen);
    else return;
    event.preventDefault();
  };
  return html`<dialog ref=${dialog} class="palette" aria-label="Find" onCancel=${close} onClick=${(/** @type {MouseEvent} */ e) => e.target === dialog.current && close()}><div class="dialog">
    <label class="search"><${Icon} name="search" /><span class="visually-hidden">A run, a screen or an action</span><input autofocus role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${found.length ? `found-${chosen}` : undefined} placeholder="A run, a screen or an action" value=${text} onInput=${(/** @type {any} */ e) => { type(e.target.value); move(0); }} onKeyDown=${onKeyDown} /></label>
    <ul id="found" role="listbox" aria-label="Found">${found.map((each, n) => html`<li key=${each.kind + each.name} id=${`found-${n}`} role="option" aria-selected=${n === chosen} onClick=${() => take(n)}><span>${visible(each.name)}</span><span class="dim">${each.kind}</span></li>`)}</ul>
    ${found.length ? null : html`<p class="dim">Nothing by that name.</p>`}</div></dialog>`;
}
