// A table of any length: only the rows in view are in the document, and the keyboard moves through all of them.
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { html, narrow } from "./parts.js";
import { preferences } from "./preferences.js";
import { useKeys } from "./keys.js";

const AROUND = 8;

/** @typedef {{id: string, label: any, width: string, cell: (row: any, n: number, before?: any) => any, kind?: string, narrow?: boolean, wide?: boolean, from?: number, below?: number}} Column */

/** The rows of a grid. Columns with `narrow: false` are left out where there is little width, those with `wide: false`
 * where there is much, those with `from` below so many pixels, and those with `below` from so many on.
 * @param {{label: string, columns: Column[], rows: any[], rowKey: (row: any, n: number) => string, total?: number|null,
 *   cursor: number, onCursor: (n: number) => void, onOpen?: (row: any, n: number) => void, onEnd?: () => void,
 *   chosen?: Set<string>, onChoose?: (row: any) => void, follow?: boolean, onLeave?: () => void, rowClass?: (row: any) => string, onTop?: (top: boolean) => void,
 *   height?: number, narrowHeight?: number, keys?: boolean, steady?: any}} props `follow`: its end is shown, until the reader
 * scrolls up, which `onLeave` tells. `steady`: a row is drawn again only if it, the one before it or this changes. */
export function Grid({ label, columns, rows, rowKey, total, cursor, onCursor, onOpen, onEnd, chosen, onChoose, follow, onLeave, rowClass, onTop, height, narrowHeight = 84, keys = true, steady }) {
  const box = useRef(/** @type {HTMLDivElement|null} */ (null));
  const [view, setView] = useState({ top: 0, height: 600, width: 1000 });
  const small = narrow.value;
  const rowHeight = small ? narrowHeight : height ?? (preferences.value.density === "compact" ? 26 : 32);
  const shownColumns = columns.filter((column) => (small ? column.narrow !== false : column.wide !== false && (column.from ?? 0) <= view.width && view.width < (column.below ?? Infinity)));
  const head = small ? 0 : 31; // with its border
  const template = small ? undefined : shownColumns.map((column) => column.width).join(" ");

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => setView((before) => (before.height === element.clientHeight && before.width === element.clientWidth ? before : { ...before, height: element.clientHeight, width: element.clientWidth }));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = box.current;
    if (!element || cursor < 0 || cursor >= rows.length) return;
    const y = cursor * rowHeight;
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y + rowHeight + head > element.scrollTop + element.clientHeight) element.scrollTop = y + rowHeight + head - element.clientHeight;
  }, [cursor, rowHeight, view.height]); // what is above the grid may take its room: the row stays in sight

  // Where the end is, is known before the browser has scrolled there: the last rows are drawn once, not a frame later.
  const end = Math.max(0, rows.length * rowHeight + head - view.height), top = follow ? end : view.top;
  const scrolled = useRef(0);
  useLayoutEffect(() => {
    if (!follow || !box.current) return;
    box.current.scrollTop = end + rowHeight; // the browser goes no further than it can
    scrolled.current = end;
  }, [follow, end]);
  useLayoutEffect(() => {
    const now = box.current?.scrollTop ?? 0;
    if (!follow) setView((before) => (before.top === now ? before : { ...before, top: now }));
  }, [follow]);

  const from = Math.max(0, Math.floor(top / rowHeight) - AROUND);
  const to = Math.min(rows.length, Math.ceil((top + view.height) / rowHeight) + AROUND);
  useEffect(() => {
    if (onEnd && rows.length && to >= rows.length - AROUND) onEnd();
  }, [to, rows.length]);

  const move = (/** @type {number} */ n) => rows.length && onCursor(Math.max(0, Math.min(rows.length - 1, n)));
  const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
  useKeys(
    keys
      ? {
          j: () => move(cursor + 1),
          k: () => move(cursor - 1),
          x: onChoose ? () => rows[cursor] && onChoose(rows[cursor]) : undefined,
        }
      : {},
  );
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const moves = {
      ArrowDown: () => move(cursor + 1),
      ArrowUp: () => move(cursor - 1),
      PageDown: () => move(cursor + page),
      PageUp: () => move(cursor - page),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      Enter: () => rows[cursor] && onOpen?.(rows[cursor], cursor),
    };
    if (event.key in moves && event.target === box.current) {
      event.preventDefault();
      moves[event.key]();
    }
  };
  const onScroll = (/** @type {any} */ event) => {
    const top = event.target.scrollTop, left = follow && top < scrolled.current - rowHeight;
    if (left) onLeave?.();
    if (left || !follow) setView((before) => ({ ...before, top }));
    onTop?.(top < rowHeight);
  };

  const places = Math.ceil(view.height / rowHeight) + 2 * AROUND + 2;
  const acts = useRef({ onCursor, onOpen });
  acts.current = { onCursor, onOpen };
  const draw = (/** @type {any} */ row, /** @type {number} */ n, /** @type {string} */ id) =>
    html`<div key=${steady === undefined ? id : n % places} id=${`row-${id}`} role="row" aria-rowindex=${n + 2} aria-selected=${n === cursor}
        class=${`grid-row${n === cursor ? " at" : ""}${chosen?.has(id) ? " chosen" : ""} ${rowClass?.(row) ?? ""}`}
        style=${{ transform: `translateY(${n * rowHeight}px)`, height: `${rowHeight}px`, gridTemplateColumns: template }}
        onClick=${(/** @type {MouseEvent} */ e) => {
          if (e.target instanceof Element && e.target.closest("a,button,input")) return;
          acts.current.onCursor(n);
          acts.current.onOpen?.(row, n);
        }}>${shownColumns.map((column) => html`<div role="gridcell" key=${column.id} class=${`c-${column.id} ${column.kind ?? ""}`}>${column.cell(row, n, rows[n - 1])}</div>`)}</div>`;

  /** The rows as they were drawn last, by their ids. @type {{current: Map<string, {of: any[], drawn: any}>}} */
  const known = useRef(new Map());
  const kept = new Map(), visibleRows = [];
  for (let n = from; n < to; n++) {
    const row = rows[n], id = rowKey(row, n), of = [steady, row, rows[n - 1], n, n === cursor, chosen?.has(id), rowHeight, template, shownColumns.length, places];
    const before = steady === undefined ? undefined : known.current.get(id);
    const drawn = before?.of.every((each, place) => each === of[place]) ? before.drawn : draw(row, n, id);
    kept.set(id, { of, drawn });
    visibleRows.push(drawn);
  }
  known.current = kept;
  return html`<div class=${`grid${small ? " narrow" : ""}`} ref=${box} role="grid" tabindex="0" aria-label=${label} aria-rowcount=${(total ?? rows.length) + 1}
    aria-activedescendant=${cursor >= from && cursor < to ? `row-${rowKey(rows[cursor], cursor)}` : undefined} onScroll=${onScroll} onKeyDown=${onKeyDown}>
    <div class="grid-head" role="rowgroup"><div role="row" aria-rowindex="1" style=${{ gridTemplateColumns: template }}>${shownColumns.map((column) => html`<div role="columnheader" key=${column.id} class=${column.kind ?? ""}>${column.label}</div>`)}</div></div>
    <div class="grid-body" role="rowgroup" style=${{ height: `${rows.length * rowHeight}px` }}>${visibleRows}</div>
  </div>`;
}
