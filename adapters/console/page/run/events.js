// The events of a run whole, as they are stored: read in pages by the tabs that need them, and gone on with as the run does.
import { useEffect, useRef, useState } from "../vendor/preact.js";
import { at, get, query } from "../api.js";

const PAGE = 1000;

/** @param {import("./feed.js").Feed} feed @returns {{events: any[], error: any, done: boolean, reload: () => void}} */
export function useEvents(feed) {
  const [state, set] = useState(/** @type {{events: any[], error: any, done: boolean}} */ ({ events: [], error: null, done: false }));
  const reload = useRef(() => {});
  useEffect(() => {
    let over = false, busy = false, again = false;
    /** @type {any[]} */
    let events = [];
    const read = async () => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      try {
        for (let after = events.length ? events[events.length - 1].revision : 0; ; ) {
          const page = await get(`/runs${at(feed.id)}/events${query({ after, limit: PAGE, engine: 1 })}`);
          if (over) return;
          if (page.rows.length) events = [...events, ...page.rows];
          set({ events, error: null, done: page.next === null });
          if (page.next === null) break;
          after = page.next;
        }
      } catch (error) {
        if (!over) set({ events, error, done: true });
      }
      busy = false;
      if (again) {
        again = false;
        read();
      }
    };
    /** @type {any} */
    let soon;
    const changed = () => {
      clearTimeout(soon);
      soon = setTimeout(read, 120);
    };
    feed.watchers.add(changed);
    reload.current = read;
    read();
    return () => {
      over = true;
      clearTimeout(soon);
      feed.watchers.delete(changed);
    };
  }, [feed]);
  return { ...state, reload: () => reload.current() };
}
