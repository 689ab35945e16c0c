// Text, numbers and times as people read them. Every string of a model or a tool passes through here, and stays text.

const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const JOINED = /(?<=\p{Extended_Pictographic}\ufe0f?)\u200d(?=\p{Extended_Pictographic})/gu;

/** The text with characters that would be invisible, or would turn the direction, written as ⟨U+202E⟩.
 * @param {unknown} value @returns {string} */
export function visible(value) {
  const text = String(value ?? "");
  INVISIBLE.lastIndex = 0;
  if (!INVISIBLE.test(text)) return text;
  const kept = new Set([...text.matchAll(JOINED)].map((m) => m.index));
  return text.replace(INVISIBLE, (c, at) => (kept.has(at) ? c : `⟨U+${c.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}⟩`));
}

/** The text on one line, cut to so many characters. @param {unknown} value @param {number} [most] */
export function oneLine(value, most = 400) {
  const text = String(value ?? "");
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  return visible(cut.replace(/\r?\n/g, " ⏎ ").replace(/\t/g, " "));
}

/** A value as compact JSON, or the text itself. @param {unknown} value */
export function compact(value) {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

/** A value as indented JSON. @param {unknown} value */
export function pretty(value) {
  return JSON.stringify(value, null, 2) ?? "null";
}

/** An id, shortened in the middle. @param {string} id @param {number} [most] */
export function shortId(id, most = 16) {
  return id.length <= most ? id : `${id.slice(0, Math.ceil(most / 2) - 1)}…${id.slice(-(Math.floor(most / 2)))}`;
}

const whole = new Intl.NumberFormat("en");

/** A count with separators. @param {number|string|null|undefined} n */
export function count(n) {
  if (n === null || n === undefined) return "–";
  if (typeof n === "string") return n.endsWith("+") ? `${whole.format(Number(n.slice(0, -1)))}+` : n;
  return whole.format(n);
}

/** A decimal of dollars, to four places unless it has fewer; null is not known, never 0. @param {string|null|undefined} cost */
export function money(cost) {
  if (cost === null || cost === undefined) return "unknown";
  const n = Number(cost);
  if (n === 0) return "$0";
  if (Math.abs(n) < 0.0001) return "<$0.0001";
  return `$${n.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: Math.abs(n) >= 1 ? 2 : 4 })}`;
}

/** A span of seconds. @param {number|null|undefined} s */
export function span(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return "–";
  const n = Math.max(0, s);
  if (n < 0.0005) return "0 ms";
  if (n < 0.9995) return `${Math.round(n * 1000)} ms`;
  if (n < 9.95) return `${n.toFixed(1)} s`;
  if (n < 59.5) return `${Math.round(n)} s`;
  const whole = Math.round(n);
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  const minutes = Math.round(whole / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  const hours = Math.round(whole / 3600);
  return `${Math.floor(hours / 24)} d${hours % 24 ? ` ${hours % 24} h` : ""}`;
}

/** The time that is left, in its largest unit and rounded down, as the reasons of waits have it. @param {number} s */
export function left(s) {
  for (const [unit, of] of /** @type {const} */ ([["d", 86400], ["h", 3600], ["min", 60]])) if (s >= of) return `${Math.floor(s / of)} ${unit}`;
  return `${Math.max(0, Math.floor(s))} s`;
}

/** Bytes. @param {number} n */
export function size(n) {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${(n / 1000).toFixed(n < 1e4 ? 1 : 0)} kB`;
  return `${(n / 1e6).toFixed(1)} MB`;
}

/** Formats by what they show: to make one takes a hundred times as long as to use it. @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** The time of day. @param {number} at @param {boolean} utc @param {boolean} [ms] */
function formatted(at, utc, ms = false) {
  const name = `${utc} ${ms}`;
  let format = formats.get(name);
  if (!format) {
    const two = /** @type {const} */ ("2-digit");
    format = new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", hour: two, minute: two, second: two, ...(ms ? { fractionalSecondDigits: 3 } : {}), ...(utc ? { timeZone: "UTC" } : {}) });
    formats.set(name, format);
  }
  return format.format(at * 1000);
}

/** Date and time with seconds. @param {number} at @param {boolean} utc */
export function moment(at, utc) {
  const day = utc ? new Date(at * 1000).toISOString().slice(0, 10) : localDay(at);
  return `${day} ${formatted(at, utc)}${utc ? " UTC" : ""}`;
}

/** A time in a zone by its name, with the zone. @param {number} at @param {string} zone */
export function inZone(at, zone) {
  const text = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" }).format(at * 1000);
  return `${text} ${zone}`;
}

/** @param {number} at */
function localDay(at) {
  const d = new Date(at * 1000), two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
}

/** The time of day, with milliseconds if asked for. @param {number} at @param {boolean} utc @param {boolean} [ms] */
export function clock(at, utc, ms = false) {
  return formatted(at, utc, ms);
}

const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** Relative up to an hour, else the time, with its date if that is another one: `26 Nov 14:05`. @param {number} at @param {number} now @param {boolean} utc */
export function ago(at, now, utc) {
  const past = now - at;
  if (past > 3600 || past < -3600) {
    const today = moment(now, utc).slice(0, 10), [date, time] = moment(at, utc).split(" ");
    if (date === today) return time;
    const short = date.slice(0, 4) === today.slice(0, 4) ? day.format(Date.parse(date)) : date;
    return `${short} ${time.slice(0, 5)}`;
  }
  if (past < -1) return `in ${rough(-past)}`;
  return past < 1 ? "now" : `${rough(past)} ago`;
}

/** @param {number} s */
function rough(s) {
  return s < 60 ? `${Math.round(s)} s` : `${Math.floor(s / 60)} min`;
}

/** The seconds since in a text such as 2h, 30m, 7d; null if it is none. @param {string} text */
export function parseSpan(text) {
  const found = /^(\d+(?:\.\d+)?)(s|m|min|h|d|w)$/.exec(text.trim());
  if (!found) return null;
  const unit = { s: 1, m: 60, min: 60, h: 3600, d: 86400, w: 604800 }[found[2]] ?? 1;
  return Number(found[1]) * unit;
}

/** A word with its number. @param {number} n @param {string} one @param {string} [many] */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
