// The parts that all views are made of.
import { h, htm, signal, useState, useEffect, useRef, useCallback, useErrorBoundary } from "./vendor/preact.js";
import { visible, shortId, moment, ago, span, size } from "./text.js";
import { preferences, now } from "./preferences.js";
import { url } from "./route.js";

export const html = htm.bind(h);

// --- icons: drawn, never a font, never fetched -----------------------------------------------------------------------

const ICONS = {
  runs: "M3 4h10M3 8h10M3 12h6",
  jobs: "M2.5 5.5h11v7.5h-11zM6 5.5V3h4v2.5M2.5 9h11",
  approvals: "M3 8.5 6.5 12 13 4.5",
  queue: "M3 4h10v3H3zM3 9h10v3H3z",
  workers: "M4 4h8v5H4zM2.5 12h11M8 9v3",
  compare: "M5 3v10M11 3v10M5 6H2.5M5 10H2.5M11 5h2.5M11 9h2.5",
  sessions: "M3 4h10v6H8l-3 3v-3H3z",
  costs: "M3 13V9M8 13V3M13 13V6",
  agents: "M8 2.5a2.5 2.5 0 1 0 .01 0M3.5 13.5a4.5 4.5 0 0 1 9 0",
  plans: "M2.5 4l1 1 1.5-2M2.5 8.5l1 1L5 7.5M2.5 13l1 1 1.5-2M7 4.5h6.5M7 9h6.5M7 13.5h6.5",
  schedules: "M8 2.5a5.5 5.5 0 1 0 .01 0M8 5v3l2 1.5",
  monitor: "M2 8h3l1.5-4 3 8L11 8h3",
  settings: "M3 5h6M12 5h1M3 11h1M7 11h6M10.5 3.5v3M5.5 9.5v3",
  queued: "M8 3a5 5 0 1 0 .01 0",
  running: "M5 3.5 12.5 8 5 12.5z",
  paused: "M5.5 3.5v9M10.5 3.5v9",
  completed: "M3 8.5 6.5 12 13 4.5",
  error: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 3a5 5 0 1 0 .01 0M4.5 4.5l7 7",
  copy: "M5.5 5.5h7v7h-7zM3.5 10.5v-7h7",
  warning: "M8 2.5 14 13H2zM8 6.5v3M8 11v.5",
  close: "M4 4l8 8M12 4l-8 8",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  search: "M7 3a4 4 0 1 0 .01 0M10 10l3.5 3.5",
  child: "M4 2.5v6h8M9.5 6l2.5 2.5L9.5 11",
};

/** @param {{name: keyof typeof ICONS, filled?: boolean}} props */
export function Icon({ name, filled }) {
  return html`<svg class=${`icon${filled ? " filled" : ""}`} viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d=${ICONS[name]} /></svg>`;
}

// --- text ------------------------------------------------------------------------------------------------------------

const LONG = 20000;

/** A text of any length and origin, as text. @param {{value: unknown, class?: string, label?: string}} props */
export function Long({ value, class: kind = "", label = "text" }) {
  const [shown, show] = useState(LONG);
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
  return html`<pre class=${`long ${kind}`} tabindex="0" role="group" aria-label=${label}>${visible(text.slice(0, shown))}</pre>${
    text.length > shown
      ? html`<button type="button" onClick=${() => show(shown * 10)}>Show more (${size(text.length - shown)} left)</button>`
      : null
  }`;
}

/** A label and a value, as rows of a list. @param {{of: [string, any][]}} props */
export function Facts({ of }) {
  const shown = of.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A time: relative up to an hour, all other forms in its tooltip. @param {{at: number|null|undefined}} props */
export function Time({ at }) {
  const { utc } = preferences.value;
  if (!at) return html`<span class="dim">–</span>`;
  return html`<time dateTime=${new Date(at * 1000).toISOString()} title=${`${moment(at, false)}\n${moment(at, true)}\n${span(Math.abs(now.value - at))} ${at > now.value ? "from now" : "ago"}`}>${ago(at, now.value, utc)}</time>`;
}

/** How long something took, or takes still. @param {{from: number, to: number|null|undefined}} props */
export function Took({ from, to }) {
  if (!from) return html`<span class="dim">–</span>`;
  return html`<span>${span((to ?? now.value) - from)}</span>`;
}

/** An id with its copy button; where there is little width, of at most so many characters. @param {{id: string, href?: string, most?: number, copy?: boolean}} props */
export function Id({ id, href, most, copy = true }) {
  const text = visible(most && narrow.value ? shortId(id, most) : id);
  return html`<span class="id">${href ? html`<a href=${url(href)} title=${visible(id)}>${text}</a>` : html`<code title=${visible(id)}>${text}</code>`}${copy ? html`<${Copy} text=${id} what="id" />` : null}</span>`;
}

/** @param {{text: string, what?: string, label?: string}} props */
export function Copy({ text, what = "text", label }) {
  const [done, set] = useState(false);
  const copy = async (/** @type {Event} */ event) => {
    event.stopPropagation();
    set(await copied(text));
    setTimeout(() => set(false), 1500);
  };
  return html`<button type="button" class=${label ? "" : "quiet square"} title=${`Copy ${what}`} aria-label=${label ? undefined : `Copy ${what}`} onClick=${copy}>${done ? html`<${Icon} name="completed" />` : html`<${Icon} name="copy" />`}${label ? html` ${label}` : null}</button>`;
}

/** Put a text on the clipboard. @param {string} text */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
    return true;
  } catch {
    announce("The browser did not allow to copy");
    return false;
  }
}

// --- states ----------------------------------------------------------------------------------------------------------

const WORDS = { queued: "queued", running: "running", paused: "paused", completed: "completed", error: "error", cancelled: "cancelled" };

/** The status of a run: icon, word and colour. @param {{status: string, reason?: string|null}} props */
export function Status({ status, reason }) {
  const name = /** @type {keyof typeof WORDS} */ (status in WORDS ? status : "queued");
  return html`<span class=${`status is-${name}`}><${Icon} name=${name} filled=${name === "running"} /><span>${WORDS[name] ?? status}</span>${reason ? html`<span class="reason">${visible(reason)}</span>` : null}</span>`;
}

/** The place of what is loading: seen after 300 ms. @param {{lines?: number, label?: string}} props */
export function Skeleton({ lines = 6, label = "Loading" }) {
  return html`<div class="skeleton" role="status" aria-label=${label}>${Array.from({ length: lines }, (_, n) => html`<i key=${n}></i>`)}</div>`;
}

const AGAIN_MS = [1000, 2000, 4000, 8000, 15000];

/** True if the same question may be answered later: the server, the log or the network was away, or busy. @param {any} problem */
const passes = ({ status, error }) => (status === 0 || status === 429 || status >= 500) && error !== "LogCorrupted";

/** An error, where the content would be. `retry` is also called by itself, ever later, if the error may pass.
 * @param {{problem: any, retry?: () => void, title?: string}} props */
export function Failed({ problem, retry, title }) {
  const tried = useRef(0), latest = useRef(retry), again = Boolean(retry) && passes(problem);
  latest.current = retry;
  useEffect(() => {
    if (!again) return undefined;
    const timer = setTimeout(() => latest.current?.(), AGAIN_MS[Math.min(tried.current++, AGAIN_MS.length - 1)]);
    return () => clearTimeout(timer);
  }, [problem]);
  const names = { 0: "The server is out of reach", 401: "Not signed in", 403: "Not allowed", 404: "Not there", 410: "Erased", 503: "The log is out of reach", 500: "The server failed" };
  const what = title ?? names[/** @type {keyof typeof names} */ (problem.status)] ?? problem.title ?? "That failed";
  return html`<div class="failed" role="alert"><h2><${Icon} name="warning" /> ${visible(problem.error === "LogCorrupted" ? "The log is damaged" : what)}</h2><p>${visible(problem.message)}</p>${
    problem.body?.run ? html`<p>Run <code>${visible(problem.body.run)}</code>, revision ${problem.body.revision}.</p>` : null
  }<p class="row">${retry ? html`<button type="button" onClick=${retry}>Retry</button>` : null}${again ? html`<span class="dim">It is tried again by itself.</span>` : null}${
    problem.requestId ? html`<span class="dim">request <code>${problem.requestId}</code><${Copy} text=${problem.requestId} what="request id" /></span>` : null
  }</p></div>`;
}

const DAMAGED_SHOWN = 5;

/** The runs whose logs are damaged, above every list: none can place them. @param {{rows: any[]|undefined}} props */
export function Damaged({ rows = [] }) {
  if (!rows.length) return null;
  const more = rows.length - DAMAGED_SHOWN;
  return html`<div class="failed damaged" role="alert"><h2><${Icon} name="warning" /> ${rows.length === 1 ? "A run is damaged" : `${rows.length} runs are damaged`}</h2>${rows.slice(0, DAMAGED_SHOWN).map((row) => html`<p key=${row.run_id}><${Id} id=${row.run_id} href=${`/runs/${encodeURIComponent(row.run_id)}`} copy=${false} /> ${visible(row.damage.detail)}</p>`)}${more > 0 ? html`<p>And ${more} more: <code>foldlog runs list</code> names them.</p>` : null}</div>`;
}

/** Nothing to show, and what to do about it. `first`: its title is that of the page.
 * @param {{title: string, first?: boolean, children?: any}} props */
export function Empty({ title, first, children }) {
  return html`<div class="empty">${first ? html`<h1>${title}</h1>` : html`<h2>${title}</h2>`}${children}</div>`;
}

/** A command to type. @param {{line: string}} props */
export function Command({ line }) {
  return html`<p class="command"><code>${line}</code><${Copy} text=${line} what="command" /></p>`;
}

/** What catches a slip of our own code, so that the rest of the page stays. @param {{children: any}} props */
export function Guard({ children }) {
  const [error, reset] = useErrorBoundary((slip) => console.error(slip));
  return error ? html`<${Failed} title="This view has a defect" problem=${{ message: String(error), status: -1 }} retry=${reset} />` : children;
}

/** Load something. While a new key loads, the old content stays and is dimmed; it is never shown as new.
 * @template T
 * @param {string|null} key  what the content depends on; null: nothing to load
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @returns {{data: T|null, error: any, stale: boolean, reload: () => void, set: (data: T) => void}} */
export function useLoaded(key, load) {
  const [state, set] = useState(/** @type {{key: string|null, data: any, error: any}} */ ({ key: null, data: null, error: null }));
  const [turn, again] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    if (key === null) return undefined;
    const control = new AbortController();
    latest.current(control.signal).then(
      (data) => control.signal.aborted || set({ key, data, error: null }),
      (error) => control.signal.aborted || error.name === "AbortError" || set((before) => ({ ...before, key, error })),
    );
    return () => control.abort();
  }, [key, turn]);
  const reload = useCallback(() => again((n) => n + 1), []);
  const put = useCallback((/** @type {any} */ data) => set({ key, data, error: null }), [key]);
  return { data: state.data, error: state.key === key ? state.error : null, stale: state.key !== key, reload, set: put };
}

/** The content, its skeleton or its error. @param {{of: {data: any, error: any, stale: boolean, reload: () => void}, lines?: number, children: (data: any) => any}} props */
export function Loaded({ of, lines, children }) {
  if (of.error) return html`<${Failed} problem=${of.error} retry=${of.reload} />`;
  if (of.data === null) return html`<${Skeleton} lines=${lines} />`;
  return html`<div class=${`loaded${of.stale ? " stale" : ""}`} aria-busy=${of.stale}>${children(of.data)}</div>`;
}

// --- what is told ----------------------------------------------------------------------------------------------------

const spoken = signal("");
export const notes = signal(/** @type {{id: number, text: string, bad: boolean}[]} */ ([]));
let noted = 0, spokenAt = 0;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let waiting;

/** Say a sentence to a screen reader: politely, at most one in five seconds, the newest. @param {string} text */
export function announce(text) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    spokenAt = Date.now();
    spoken.value = text;
  }, Math.max(0, spokenAt + 5000 - Date.now()));
}

/** Show a note for some seconds, or until it is closed: a bad one, and one that stays. Returns what closes it.
 * @param {string} text @param {boolean} [bad] @param {boolean} [stays] */
export function note(text, bad = false, stays = bad) {
  const id = ++noted;
  notes.value = [...notes.value.slice(-3), { id, text, bad }];
  if (!stays) setTimeout(() => forget(id), 6000);
  return () => forget(id);
}

/** @param {number} id */
function forget(id) {
  notes.value = notes.value.filter((each) => each.id !== id);
}

export function Notes() {
  return html`<div class="visually-hidden" role="status" aria-live="polite">${spoken.value}</div><div class="notes" role="region" aria-label="Messages">${notes.value.map(
    (each) => html`<p key=${each.id} class=${each.bad ? "bad" : ""} role=${each.bad ? "alert" : "status"}><span>${visible(each.text)}</span><button type="button" class="quiet square" aria-label="Close" onClick=${() => forget(each.id)}><${Icon} name="close" /></button></p>`,
  )}</div>`;
}

// --- dialogs ---------------------------------------------------------------------------------------------------------

/** A dialog of the browser: it holds the focus, Esc closes it, and the focus returns where it was.
 * @param {{title: string, onClose: () => void, wide?: boolean, children: any}} props */
export function Dialog({ title, onClose, wide, children }) {
  const ref = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    const dialog = ref.current, before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${(/** @type {Event} */ e) => {
    e.preventDefault();
    onClose();
  }} onClick=${(/** @type {MouseEvent} */ e) => e.target === ref.current && onClose()}><div class="dialog"><header><h2>${title}</h2><button type="button" class="quiet square" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>${children}</div></dialog>`;
}

const asked = signal(/** @type {null|{title: string, text: any, verb: string, count: number, then: (yes: boolean) => void}} */ (null));

/** Ask before what cannot be taken back. More than 20 objects want their number typed.
 * @param {{title: string, text?: any, verb: string, count?: number}} what @returns {Promise<boolean>} */
export function confirmed({ title, text = null, verb, count = 1 }) {
  return new Promise((then) => {
    asked.value = { title, text, verb, count, then };
  });
}

export function Confirmation() {
  const [typed, type] = useState("");
  const question = asked.value;
  const yes = useRef(/** @type {HTMLButtonElement|null} */ (null));
  useEffect(() => {
    type("");
    if (question && question.count <= 20) setTimeout(() => yes.current?.focus(), 0);
  }, [question]);
  if (!question) return null;
  const close = (/** @type {boolean} */ answer) => {
    asked.value = null;
    question.then(answer);
  };
  const many = question.count > 20, ready = !many || typed === String(question.count);
  return html`<${Dialog} title=${question.title} onClose=${() => close(false)}><form method="dialog" onSubmit=${(/** @type {Event} */ e) => {
    e.preventDefault();
    if (ready) close(true);
  }}>${question.text ? html`<p>${question.text}</p>` : null}${
    many ? html`<label class="field">Type ${question.count} to go on<input autofocus inputmode="numeric" value=${typed} onInput=${(/** @type {any} */ e) => type(e.target.value)} /></label>` : null
  }<p class="row end"><button type="button" onClick=${() => close(false)}>Keep</button><button ref=${yes} type="submit" class="danger" disabled=${!ready}>${question.verb}</button></p></form><//>`;
}

/** A button that waits for what it started, and cannot be pressed twice meanwhile.
 * @param {{act: () => Promise<any>, class?: string, disabled?: boolean, title?: string, type?: string, children: any}} props */
export function Act({ act, class: kind = "", disabled, title, type = "button", children }) {
  const [busy, set] = useState(false);
  const run = async () => {
    if (busy) return;
    set(true);
    try {
      await act();
    } catch (problem) {
      note(/** @type {Error} */ (problem).message, true);
    } finally {
      set(false);
    }
  };
  return html`<button type=${type} class=${kind} title=${title} disabled=${disabled} aria-busy=${busy} onClick=${run}>${children}</button>`;
}

const NARROW = matchMedia("(max-width: 900px)");
export const narrow = signal(NARROW.matches);
NARROW.addEventListener("change", () => {
  narrow.value = NARROW.matches;
});
