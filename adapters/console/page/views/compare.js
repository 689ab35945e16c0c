// Two runs side by side: the verdict first, then the first difference with its rule, then all of them.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Act, Empty, Facts, Icon, Id, Loaded, useLoaded } from "../parts.js";
import { at, download, get, post, query as queryOf } from "../api.js";
import { Pair } from "../run/pair.js";
import { place, tune, url } from "../route.js";
import { compact, count, money, oneLine, plural, span, visible } from "../text.js";
import { title } from "../shell.js";

/** Files that were dropped in, by side; they stay in this tab. @type {Record<string, {name: string, text: string}>} */
const files = {};

export default function Compare() {
  const query = place.value.query, a = query.get("a") ?? "", b = query.get("b") ?? "", all = query.get("rows") === "all";
  const [turn, again] = useState(0);
  useEffect(() => {
    title.value = "Compare";
  }, []);
  const side = (/** @type {string} */ name, /** @type {string} */ run) => (run ? { [name]: run } : files[name] ? { [`${name}_file`]: files[name].text } : null);
  const left = side("a", a), right = side("b", b);
  const ask = { ...left, ...right, rows: all ? "all" : "differing", limit: 500 };
  const compared = useLoaded(left && right ? `${a} ${b} ${all} ${turn}` : null, async () => {
    const [found, ...rows] = await Promise.all([post("/compare", ask), ...[a, b].map((run) => (run ? get(`/runs${at(run)}`).then((detail) => detail, () => null) : null))]);
    return { found, rows, all };
  });
  const more = async () => {
    const before = /** @type {any} */ (compared.data), { found } = before;
    const next = await post("/compare", { ...ask, after: found.next });
    compared.set({ ...before, found: { ...next, rows: [...found.rows, ...next.rows] } });
  };
  const drop = (/** @type {string} */ name) => async (/** @type {any} */ event) => {
    event.preventDefault();
    const file = (event.dataTransfer ?? event.target).files?.[0];
    if (!file) return;
    files[name] = { name: file.name, text: await file.text() };
    tune({ [name]: null });
    again(turn + 1);
  };
  return html`<section class="view scroll"><h1>Compare</h1><form class="row compare-sides" onSubmit=${(/** @type {any} */ e) => {
    e.preventDefault();
    const given = new FormData(e.target);
    tune({ a: String(given.get("a")), b: String(given.get("b")) }, {});
  }}>${[["a", a, "One run"], ["b", b, "The other"]].map(([name, run, label]) => html`<label class="field grow" key=${name} onDragOver=${(/** @type {Event} */ e) => e.preventDefault()} onDrop=${drop(name)}>${label}, or an export<input name=${name} value=${run} placeholder=${files[name]?.name ?? "id of a run"} /><input type="file" accept=".jsonl" aria-label=${`${label} as a file`} onChange=${drop(name)} /></label>`)}<button type="submit" class="primary">Compare</button></form>
    ${!left || !right ? html`<${Empty} title="Pick two runs"><${Offers} run=${a || b} /><p>Write two ids, drop in exports, or choose two rows of the list with <kbd>x</kbd>.</p><//>` : html`<${Loaded} of=${compared}>${(/** @type {any} */ both) => html`<${Verdict} of=${both} sides=${{ ...left, ...right }} more=${compared.stale ? null : more} />`}<//>`}</section>`;
}

/** @param {{of: {found: any, rows: any[], all: boolean}, sides: any, more: (() => Promise<void>)|null}} props */
function Verdict({ of: { found, rows, all }, sides, more }) {
  const [l, r] = rows.map((detail) => detail?.row), parity = l && r && l.executor !== r.executor;
  const first = found.first_difference;
  return html`<p class=${`proof ${found.equal ? "good" : "bad"}`} role="status"><${Icon} name=${found.equal ? "completed" : "error"} /> <b>${parity ? `Parity of ${l.executor} and ${r.executor}: ` : ""}${found.equal ? "equal" : "different"}</b> <span>${count(found.boundaries_equal)} of ${count(found.boundaries)} boundaries are equal</span></p>
    ${first ? html`<section class="step"><h2>The first difference</h2><${Facts} of=${[["Level", first.level], ["Rule", first.rule], ["Revisions", first.revisions.map((/** @type {any[]} */ each) => each.map((pair) => pair.join(" ")).join(", ") || "none").join(" / ")]]} /><p>${visible(first.why)}</p>${first.rule_text ? html`<p class="dim">${visible(typeof first.rule_text === "string" ? first.rule_text : compact(first.rule_text))}</p>` : null}</section>` : null}
    ${l && r ? html`<h2>Side by side</h2><table class="plain"><thead><tr><th><span class="visually-hidden">What</span></th><th><${Id} id=${l.run_id} href=${`/runs${at(l.run_id)}`} copy=${false} /></th><th><${Id} id=${r.run_id} href=${`/runs${at(r.run_id)}`} copy=${false} /></th></tr></thead><tbody>${[["Status", l.status, r.status], ["Executor", l.executor, r.executor], ["Took", span((l.ended_at ?? l.updated_at) - l.submitted_at), span((r.ended_at ?? r.updated_at) - r.submitted_at)], ["Steps", count(l.steps), count(r.steps)], ["Tokens", count(l.usage.total_tokens), count(r.usage.total_tokens)], ["Cost", money(l.cost_usd), money(r.cost_usd)]].map(([name, one, other]) => html`<tr key=${name}><th scope="row">${name}</th><td>${one}</td><td class=${one === other ? "" : "warn"}>${other}</td></tr>`)}</tbody></table>` : null}
    ${l && r ? html`<h2>Over time</h2><${Pair} rows=${[l, r]} />` : null}
    <header class="view-head"><h2>${found.rows.length ? plural(found.rows.length, all ? "row" : "difference") : "No difference"}${found.next ? " and more" : ""}</h2><span class="chips" role="group" aria-label="Rows">${[[false, "only differences"], [true, "all"]].map(([of, name]) => html`<button type="button" key=${name} aria-pressed=${of === all} onClick=${() => tune({ rows: of ? "all" : null })}>${name}</button>`)}</span></header>
    ${found.rows.length ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Aligned rows"><table class="plain"><thead><tr><th>Kind</th><th>One</th><th>The other</th><th>Fields</th></tr></thead><tbody>${found.rows.map((/** @type {any} */ row, /** @type {number} */ n) => html`<tr key=${n} class=${row.kind === "same" ? "dim" : ""}><td>${row.kind}</td>${[row.left, row.right].map((each, which) => html`<td key=${which}>${each ? html`${visible(each.label || each.type)} <a href=${url(`/runs${at(each.run_id)}?rev=${each.revisions[0]}`)}>${each.revisions[0]}</a>` : html`<span class="dim">–</span>`}</td>`)}<td class="wide">${Object.entries(row.values ?? {}).map(([name, pair]) => html`<div key=${name}><code>${visible(name)}</code> <del>${oneLine(compact(pair[0]), 120)}</del> <ins>${oneLine(compact(pair[1]), 120)}</ins></div>`)}</td></tr>`)}</tbody></table></div>${found.next && more ? html`<p class="row"><${Act} act=${more}>Show more<//></p>` : null}` : null}
    <p class="row"><${Act} act=${() => download("/compare/page", sides, "comparison.html")}>Download as a page<//><button type="button" onClick=${() => {
      const address = URL.createObjectURL(new Blob([JSON.stringify(found, null, 2)], { type: "application/json" }));
      Object.assign(document.createElement("a"), { href: address, download: "comparison.json" }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    }}>Download as JSON</button></p>`;
}

/** What a run may be compared with: its origin, and the run before it in its session. @param {{run: string}} props */
function Offers({ run }) {
  const offers = useLoaded(run ? `offers ${run}` : null, async (signal) => {
    const { row } = await get(`/runs${at(run)}`, signal);
    const before = row.session ? (await get(`/runs${queryOf({ session: row.session, to: row.submitted_at, children: "0", limit: 1 })}`, signal)).rows[0] : null;
    return [...(row.forked_from ? [["This run and its origin", row.forked_from]] : []), ...(before ? [["This run and the one before it in its session", before.run_id]] : [])];
  });
  return html`${(run && offers.data ? offers.data : []).map(([name, other]) => html`<p key=${name}><a class="button" href=${url(`/compare${queryOf({ a: other, b: run })}`)}>${name}</a></p>`)}`;
}
