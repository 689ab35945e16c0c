// What the shell shows of the namespace at all times: who we are, how many approvals are pending, violations.
import { signal, effect } from "./vendor/preact.js";
import { get, remove } from "./api.js";
import { follow } from "./stream.js";
import { preferences } from "./preferences.js";
import { oneLine } from "./text.js";

export const me = signal(/** @type {any} */ (null));
/** The number of pending approvals; a text if there are more than can be counted; null until it is known. */
export const pendingApprovals = signal(/** @type {number|string|null} */ (null));
/** Violations of the ordering rules, as far as they are known: those that came while the server watched, and those found by the monitor. */
export const violations = signal(0);
/** The title of the view, which the tab shows after the number of approvals. */
export const title = signal("");

export const signedOut = signal(false);

/** End the session of this browser. */
export async function signOut() {
  await remove("/session");
  signedOut.value = true;
  me.value = null;
}

/** True if we may act. */
export const mayAct = () => me.value?.role === "operator" || me.value?.role === "admin";
export const isAdmin = () => me.value?.role === "admin";

const AGAIN_MS = 5000;

async function countApprovals() {
  const before = pendingApprovals.peek();
  const { rows, next } = await get("/approvals?limit=500").catch(() => ({ rows: null, next: null }));
  if (!rows) {
    clearTimeout(soon);
    soon = setTimeout(countApprovals, AGAIN_MS);
    return;
  }
  pendingApprovals.value = next ? `${rows.length}+` : rows.length;
  const more = typeof before === "number" && rows.length > before;
  if (more && preferences.value.notify && document.hidden && "Notification" in globalThis && Notification.permission === "granted") {
    const newest = rows[rows.length - 1];
    new Notification("foldlog: an approval waits", { body: notification(newest), tag: newest.approval_id });
  }
}

/** What a notification says of an approval: one line, whatever strangers have written. @param {any} row */
export function notification(row) {
  return `${oneLine(row.tool_name || row.kind, 80)} of ${oneLine(row.agent_path, 80)}`;
}

let following = false;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let soon;

/** Follow what the shell shows, once. */
export function followShell() {
  if (following) return;
  following = true;
  countApprovals();
  follow("approvals", null, ({ event }) => {
    if (event !== "list" && event !== "resync") return;
    clearTimeout(soon);
    soon = setTimeout(countApprovals, 100);
  });
  follow("monitor", null, ({ event, data }) => {
    if (event === "violation") violations.value = Math.max(violations.value, data.count);
  });
}

effect(() => {
  const pending = pendingApprovals.value;
  document.title = `${pending ? `(${pending}) ` : ""}${title.value ? `${title.value} · ` : ""}foldlog`;
});
