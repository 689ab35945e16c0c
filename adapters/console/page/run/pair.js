// Two small timelines, one above the other, with one cursor at the same distance from both beginnings.
import { useEffect, useRef, useState } from "../vendor/preact.js";
import { html, Failed, Id, Skeleton, useLoaded } from "../parts.js";
import { at, get } from "../api.js";
import { go } from "../route.js";
import { plural, span } from "../text.js";
import { preferences } from "../preferences.js";
import { Timeline } from "./timeline.js";

/** @param {{rows: any[]}} props  the rows of two runs */
export function Pair({ rows }) {
  const ids = rows.map((row) => row.run_id);
  const loaded = useLoaded(`pair ${ids.join(" ")}`, (signal) => Promise.all(ids.map((id) => get(`/runs${at(id)}/timeline?level=engine`, signal))));
  if (loaded.error) return html`<${Failed} problem=${loaded.error} retry=${loaded.reload} />`;
  if (!loaded.data) return html`<${Skeleton} lines=${4} />`;
  return html`<${Drawn} key=${ids.join(" ")} rows=${rows} found=${loaded.data} />`;
}

/** @param {{rows: any[], found: any[]}} props */
function Drawn({ rows, found }) {
  const canvases = useRef(/** @type {(HTMLCanvasElement|null)[]} */ ([]));
  const drawn = useRef(/** @type {Timeline[]} */ ([]));
  const [place, tell] = useState(/** @type {{after: number, told: string}|null} */ (null));
  const mark = (/** @type {number|null} */ after) => {
    for (const each of drawn.current) {
      each.revisionAt = after === null || each.first === undefined ? null : each.first + after;
      each.draw();
    }
  };
  useEffect(() => {
    drawn.current = found.map((of, n) => {
      const feed = { id: rows[n].run_id, rows: of.rows, bars: new Map(of.bars.map((/** @type {any} */ bar) => [bar.id, bar])), detail: { value: { row: rows[n] } } };
      const made = new Timeline(/** @type {HTMLCanvasElement} */ (canvases.current[n]), /** @type {any} */ (feed), {
        utc: () => preferences.value.utc,
        choose: (bar) => bar.revision && go(`/runs${at(feed.id)}?rev=${bar.revision}`),
        tell: (text, x) => {
          if (!x) {
            mark(null);
            tell(null);
            return;
          }
          const after = Math.max(0, made.scale.time(Math.max(0, Math.min(1, made.share(x))) * made.scale.length) - /** @type {number} */ (made.first));
          mark(after);
          tell({ after, told: text.split("\n")[0] });
        },
      });
      made.draw();
      return made;
    });
    return () => drawn.current.forEach((each) => each.end());
  }, [found]);
  useEffect(() => {
    for (const each of drawn.current) each.draw();
  }, [preferences.value.theme, preferences.value.utc]);
  return html`<div class="pair">${found.map((of, n) => html`<figure key=${n}><figcaption><${Id} id=${rows[n].run_id} href=${`/runs${at(rows[n].run_id)}`} copy=${false} /> <span class="dim">${plural(of.rows.length, "event")} in ${span(of.rows.length ? of.rows[of.rows.length - 1].at - of.rows[0].at : 0)}</span></figcaption><canvas ref=${(/** @type {any} */ element) => { canvases.current[n] = element; }} role="img" aria-label=${`Timeline of ${rows[n].run_id}: ${plural(of.bars.length, "bar")}; the tables of this page say what differs`}></canvas></figure>`)}<p class="dim" aria-hidden="true">${place ? `${span(place.after)} after the beginning${place.told ? `: ${place.told}` : ""}` : "Point at a moment of one to see the same moment of the other."}</p></div>`;
}
