// The timeline with the table of its events below it, which says the same in words.
import { useEffect, useRef, useState } from "../vendor/preact.js";
import { html } from "../parts.js";
import { place, tune } from "../route.js";
import { plural } from "../text.js";
import { preferences } from "../preferences.js";
import { useKeys } from "../keys.js";
import { Timeline } from "./timeline.js";
import { EventsTab } from "./events-tab.js";

const LEGEND = [["worker", "worker"], ["run", "run"], ["step", "step"], ["model", "model call"], ["tool", "tool call"], ["child", "child"], ["waits", "waits (hatched)"], ["failed", "failed (striped)"]];

/** @param {{feed: import("./feed.js").Feed, detail: any}} props */
export function TimelineTab({ feed, detail }) {
  const canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null));
  const timeline = useRef(/** @type {Timeline|null} */ (null));
  const [tip, tell] = useState({ text: "", x: 0, y: 0 });
  useEffect(() => {
    const drawn = new Timeline(/** @type {HTMLCanvasElement} */ (canvas.current), feed, {
      utc: () => preferences.value.utc,
      choose: (bar) => bar.revision && tune({ rev: String(bar.revision), of: bar.run && bar.run !== feed.id ? bar.run : null }),
      tell: (text, x, y) => tell({ text, x, y }),
    });
    timeline.current = drawn;
    const redraw = () => drawn.draw();
    feed.watchers.add(redraw);
    drawn.draw();
    return () => {
      feed.watchers.delete(redraw);
      drawn.end();
    };
  }, [feed]);
  const { utc, theme } = preferences.value, revision = Number(place.value.query.get("rev")) || 0, of = place.value.query.get("of") ?? feed.id;
  useEffect(() => {
    if (!timeline.current) return;
    timeline.current.revisionAt = revision ? feed.rows.find((row) => row.revision === revision && (row.run_id || feed.id) === of)?.at ?? null : null;
    timeline.current.draw();
  }, [utc, theme, revision, of, feed.complete.value]);
  const zoom = (/** @type {number} */ by) => () => timeline.current?.zoom(by);
  useKeys({ "+": zoom(0.6), "=": zoom(0.6), "-": zoom(1 / 0.6), 0: () => timeline.current?.all() });
  const lanes = new Set([...feed.bars.values()].map((bar) => bar.lane));
  const onKeyDown = (/** @type {KeyboardEvent} */ e) => {
    const by = e.key === "ArrowLeft" ? -0.15 : e.key === "ArrowRight" ? 0.15 : 0;
    if (!by) return;
    e.preventDefault();
    timeline.current?.pan(by);
  };
  return html`<div class="timeline-tab"><figure class="timeline"><canvas ref=${canvas} tabindex="0" role="img" aria-label=${`Timeline of ${plural(feed.bars.size, "bar")}; the table below has the same as text`} onKeyDown=${onKeyDown}></canvas>
    ${tip.text ? html`<div class="tip" style=${{ left: `${Math.min(tip.x + 12, (canvas.current?.clientWidth ?? 300) - 200)}px`, top: `${tip.y + 16}px` }}>${tip.text}</div>` : null}
    <figcaption><span class="legend">${LEGEND.filter(([id]) => lanes.has(id) || id === "waits" || id === "failed").map(([id, name]) => html`<span key=${id}><i class=${`l-${id}`}></i>${name}</span>`)}</span><span class="row zoom"><button type="button" class="square" aria-label="Zoom in" title="Zoom in (+)" onClick=${zoom(0.6)}>+</button><button type="button" class="square" aria-label="Zoom out" title="Zoom out (-)" onClick=${zoom(1 / 0.6)}>−</button><button type="button" onClick=${() => timeline.current?.all()} title="All of it (0)">All</button></span></figcaption></figure>
    <${EventsTab} feed=${feed} detail=${detail} /></div>`;
}
