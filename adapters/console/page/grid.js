// A table of any length: only the rows in view are in the document, and the keyboard moves through all of them.
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { html, narrow } from "./parts.js";
import { preferences } from "./preferences.js";
import { useKeys } from "./keys.js";

const AROUND = 8;

/** @typedef {{id: string, label: any, width: string, cell: (row: any, n: number) => any, kind?: string, narrow?: boolean, wide?: boolean, from?: number}} Column */

/** The rows of a grid. Columns with `narrow: false` are left out where there is little width, those with `wide: false`
 * where there is much, and those with `from` below so many pixels.
 * @param {{label: string, columns: Column[], rows: any[], rowKey: (row: any, n: number) => string, total?: number|null,
 *   cursor: number, onCursor: (n: number) => void, onOpen?: (row: any, n: number) => void, onEnd?: () => void,
 *   chosen?: Set<string>, onChoose?: (row: any) => void, follow?: boolean, rowClass?: (row: any) => string, onTop?: (top: boolean) => void,
 *   height?: number, narrowHeight?: number, keys?: boolean}} props */
export function Grid({ label, columns, rows, rowKey, total, cursor, onCursor, onOpen, onEnd, chosen, onChoose, follow, rowClass, onTop, height, narrowHeight = 84, keys = true }) {
  const box = useRef(/** @type {HTMLDivElement|null} */ (null));
  const [view, setView] = useState({ top: 0, height: 600, width: 1000 });
  const small = narrow.value;
  const rowHeight = small ? narrowHeight : height ?? (preferences.value.density === "compact" ? 26 : 32);
  const shownColumns = columns.filter((column) => (small ? column.narrow !== false : column.wide !== false && (column.from ?? 0) <= view.width));
  const head = small ? 0 : 30;
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
  }, [cursor, rowHeight]);

  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, rows.length]);

  const from = Math.max(0, Math.floor(view.top / rowHeight) - AROUND);
  const to = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + AROUND);
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
    const top = event.target.scrollTop;
    setView((before) => ({ ...before, top }));
    onTop?.(top < rowHeight);
  };

  const visibleRows = [];
  for (let n = from; n < to; n++) {
    const row = rows[n], id = rowKey(row, n);
    visibleRows.push(
      html`<div key=${id} id=${`row-${id}`} role="row" aria-rowindex=${n + 2} aria-selected=${n === cursor}
        class=${`grid-row${n === cursor ? " at" : ""}${chosen?.has(id) ? " chosen" : ""} ${rowClass?.(row) ?? ""}`}
        style=${{ transform: `translateY(${n * rowHeight}px)`, height: `${rowHeight}px`, gridTemplateColumns: template }}
        onClick=${(/** @type {MouseEvent} */ e) => {
          if (e.target instanceof Element && e.target.closest("a,button,input")) return;
          onCursor(n);
          onOpen?.(row, n);
        }}>${shownColumns.map((column) => html`<div role="gridcell" key=${column.id} class=${`c-${column.id} ${column.kind ?? ""}`}>${column.cell(row, n)}</div>`)}</div>`,
    );
  }
  return html`<div class=${`grid${small ? " narrow" : ""}`} ref=${box} role="grid" tabindex="0" aria-label=${label} aria-rowcount=${(total ?? rows.length) + 1}
    aria-activedescendant=${cursor >= from && cursor < to ? `row-${rowKey(rows[cursor], cursor)}` : undefined} onScroll=${onScroll} onKeyDown=${onKeyDown}>
    <div class="grid-head" role="rowgroup"><div role="row" aria-rowindex="1" style=${{ gridTemplateColumns: template }}>${shownColumns.map((column) => html`<div role="columnheader" key=${column.id} class=${column.kind ?? ""}>${column.label}</div>`)}</div></div>
    <div class="grid-body" role="rowgroup" style=${{ height: `${rows.length * rowHeight}px` }}>${visibleRows}</div>
  </div>`;
}
