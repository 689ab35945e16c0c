// The changes of the log, as they come. One stream for all tabs of the browser, held by a SharedWorker.
import { signal } from "./vendor/preact.js";
import { BASE } from "./api.js";
import { Topics } from "./topics.js";

/** @typedef {{event: string, data: any}} Frame */

/** `live`, `reconnecting` (`since`, Unix seconds) or `log` (the log is out of the server's reach). */
export const state = signal(/** @type {{is: "idle"|"live"|"reconnecting"|"log", since: number}} */ ({ is: "idle", since: 0 }));

/** @type {Map<string, Set<(frame: Frame) => void>>} */
const readers = new Map();
/** @type {{send: (message: any) => void}|null} */
let link = null;

/** @param {any} message */
function onMessage(message) {
  if (message.state) {
    state.value = message.state;
    return;
  }
  const topic = message.frame.data?.topic;
  for (const [name, set] of readers) if (!topic || name === topic) for (const read of set) read(message.frame);
}

function opened() {
  if (link) return link;
  const address = `${BASE}api/v1/stream`;
  if (typeof SharedWorker === "function") {
    const worker = new SharedWorker(new URL("./stream-worker.js", import.meta.url), { type: "module", name: address });
    worker.port.onmessage = ({ data }) => onMessage(data);
    addEventListener("pagehide", () => worker.port.postMessage({ gone: true }));
    addEventListener("pageshow", (event) => {
      if (event.persisted) for (const topic of readers.keys()) worker.port.postMessage({ add: topic, cursor: "" });
    });
    link = { send: (message) => worker.port.postMessage(message) };
  } else {
    // Without one: a tab has its own stream while it is seen, since a browser allows six to a host.
    const topics = new Topics(address), me = { postMessage: onMessage };
    link = { send: (message) => topics.take(me, message) };
    document.addEventListener("visibilitychange", () => topics.rest(document.hidden));
  }
  return link;
}

/** Follow a topic from a cursor on (none: from now). Returns what ends it. @param {string} topic @param {string|number|null} cursor @param {(frame: Frame) => void} read */
export function follow(topic, cursor, read) {
  const set = readers.get(topic) ?? new Set();
  readers.set(topic, set);
  set.add(read);
  opened().send({ add: topic, cursor: cursor === null || cursor === undefined ? "" : String(cursor) });
  return () => {
    set.delete(read);
    if (set.size) return;
    readers.delete(topic);
    opened().send({ drop: topic });
  };
}
