// Approvals: a list of what waits for people, and the chosen one with everything that is needed to decide.
import { useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { html, Act, Copy, Damaged, Empty, Facts, Failed, Icon, Id, Loaded, Long, Skeleton, Time, announce, confirmed, narrow, note, useLoaded } from "../parts.js";
import { at, get, newKey, post, query, remove } from "../api.js";
import { follow } from "../stream.js";
import { go, place, tune, url } from "../route.js";
import { compact, count, left, oneLine, plural, pretty, span, visible } from "../text.js";
import { now } from "../preferences.js";
import { useKeys } from "../keys.js";
import { mayAct, title } from "../shell.js";
import { Assertion } from "../run/steps-tab.js";
import { SchemaForm } from "../schema-form.js";

const SOON_S = 15 * 60;
const KINDS = /** @type {Record<string, string>} */ ({ tool: "a tool call", policy: "a call that a policy holds", elicitation: "a question", budget: "a budget that is used up", takeover: "a takeover", unverifiable: "a call whose outcome nobody knows" });

/** True once an approval was answered here, until what is shown next has the focus. */
let answered = false;

/** @param {{approval?: string}} props */
export default function Approvals({ approval }) {
  const decided = place.value.query.get("decided") === "1";
  const list = useLoaded(`approvals ${decided}`, (signal) => get(`/approvals${query({ pending: decided ? "0" : "1", limit: 200 })}`, signal));
  const last = useLoaded("last five", (signal) => get("/approvals?pending=0&limit=5", signal));
  useEffect(() => {
    title.value = "Approvals";
    return follow("approvals", null, ({ event }) => {
      if (event === "list" || event === "resync") {
        list.reload();
        last.reload();
      }
    });
  }, [decided]);
  const rows = list.data?.rows ?? [];
  const [chosen, choosing] = useState(/** @type {Set<string>} */ (new Set()));
  const toggle = (/** @type {string} */ id) => {
    const after = new Set(chosen);
    if (!after.delete(id)) after.add(id);
    choosing(after);
  };
  const grouped = useMemo(() => byAgent(rows), [list.data]);
  const ordered = grouped.flatMap(([, all]) => all);
  const n = ordered.findIndex((row) => row.approval_id === approval);
  const choose = (/** @type {number} */ to) => ordered[to] && go(`/approvals${at(ordered[to].approval_id)}${decided ? "?decided=1" : ""}`, { replace: Boolean(approval) });
  useEffect(() => {
    if (!approval && ordered.length && !narrow.value) choose(0);
  }, [approval, list.data]);
  useKeys({ j: () => choose(n + 1), k: () => choose(Math.max(0, n - 1)), x: approval && ordered[n] && batched(ordered[n]) ? () => toggle(approval) : undefined, Escape: narrow.value && approval ? () => go("/approvals") : undefined });
  const next = () => {
    answered = true;
    const following = ordered[n + 1] ?? ordered[n - 1];
    list.reload();
    last.reload();
    go(following ? `/approvals${at(following.approval_id)}` : "/approvals", { replace: true });
  };
  return html`<section class="view approvals"><header class="view-head"><h1>Approvals</h1><span class="chips" role="group" aria-label="Which"><button type="button" aria-pressed=${!decided} onClick=${() => go("/approvals")}>pending</button><button type="button" aria-pressed=${decided} onClick=${() => go("/approvals?decided=1")}>decided</button></span>${list.data ? html`<span class="dim">${plural(rows.length, decided ? "answer" : "approval")}${list.data.next ? " and more" : ""}</span>` : null}</header>
    ${chosen.size && !decided ? html`<${Batch} chosen=${chosen} rows=${rows} keep=${choosing} done=${() => { list.reload(); last.reload(); }} />` : null}
    <${Damaged} rows=${list.data?.damaged} />
    ${list.error ? html`<${Failed} problem=${list.error} retry=${list.reload} />` : !list.data ? html`<${Skeleton} />` : !rows.length && !approval ? html`<${Nothing} last=${last.data?.rows ?? []} decided=${decided} />` : html`<div class=${`inbox${approval ? " one" : ""}`}>
      <${List} groups=${grouped} approval=${approval} decided=${decided} chosen=${chosen} toggle=${toggle} />
      ${approval ? html`<${One} key=${approval} id=${approval} next=${next} />` : null}</div>`}</section>`;
}

/** @param {any[]} rows @returns {[string, any[]][]} */
function byAgent(rows) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const row of rows) {
    const agent = row.agent_path.split("/").pop();
    groups.set(agent, [...(groups.get(agent) ?? []), row]);
  }
  return [...groups];
}

/** What one answer may be given to together: no forms, and no outcome that only a person knows. @param {any} row */
function batched(row) {
  return mayAct() && !row.decision && row.kind !== "elicitation" && row.kind !== "unverifiable";
}

/** One answer for all that are chosen, under one key; those that were refused stay chosen, each with the reason.
 * @param {{chosen: Set<string>, rows: any[], keep: (ids: Set<string>) => void, done: () => void}} props */
function Batch({ chosen, rows, keep, done }) {
  const [words, setNote] = useState("");
  const [refused, tell] = useState(/** @type {any[]} */ ([]));
  const ids = [...chosen];
  const keys = useMemo(() => ({ approve: newKey(), reject: newKey() }), [chosen, words]); // sent again after an error, it is one answer
  const name = (/** @type {string} */ id) => {
    const row = rows.find((each) => each.approval_id === id);
    return row ? `${row.tool_name || row.kind} of ${row.run_id}` : id;
  };
  const act = (/** @type {"approve"|"reject"} */ action, /** @type {string} */ verb) => async () => {
    const sure = await confirmed({ title: `${verb} ${plural(ids.length, "approval")}?`, text: action === "approve" ? "The calls are made." : "The calls are not made.", verb, count: ids.length });
    if (!sure) return;
    const { results } = await post("/batch", { action, ids, note: words }, { key: keys[action] });
    const failed = results.filter((/** @type {any} */ each) => each.status !== 200);
    tell(failed);
    keep(new Set(failed.map((/** @type {any} */ each) => each.id)));
    const told = `${verb}: ${count(results.length - failed.length)} of ${plural(results.length, "approval")}`;
    note(failed.length ? `${told}, ${count(failed.length)} refused` : told, failed.length > 0);
    done();
  };
  return html`<div class="batch" role="toolbar" aria-label="The chosen approvals"><b>${plural(ids.length, "approval")} chosen</b><label class="row">Note <input value=${words} onInput=${(/** @type {any} */ e) => setNote(e.target.value)} /></label><${Act} class="primary" act=${act("approve", "Approve")}>Approve all<//><${Act} class="danger" act=${act("reject", "Reject")}>Reject all<//><button type="button" class="quiet" onClick=${() => keep(new Set())}>Choose none</button></div>
    ${refused.length ? html`<ul class="faults" aria-label="Refused">${refused.map((each) => html`<li key=${each.id}><span class="mono">${visible(name(each.id))}</span>: <span class="bad">${visible(each.detail)}</span></li>`)}</ul>` : null}`;
}

/** @param {{groups: [string, any[]][], approval?: string, decided: boolean, chosen: Set<string>, toggle: (id: string) => void}} props */
function List({ groups, approval, decided, chosen, toggle }) {
  return html`<nav class="inbox-list" aria-label="Approvals">${groups.map(([agent, rows]) => html`<section key=${agent}><h2>${visible(agent)} <span class="dim">${rows.length}</span></h2><ul>${rows.map((row) => {
    const soon = !row.decision && row.expires_at && row.expires_at - now.value < SOON_S;
    return html`<li key=${row.approval_id} class="row">${batched(row) ? html`<input type="checkbox" class="choose" aria-label=${`Choose ${row.tool_name || row.kind} of ${row.run_id}`} checked=${chosen.has(row.approval_id)} onChange=${() => toggle(row.approval_id)} />` : null}<a class="grow" href=${url(`/approvals${at(row.approval_id)}${decided ? "?decided=1" : ""}`)} aria-current=${row.approval_id === approval ? "true" : undefined}><span class="row"><b class="mono">${visible(row.tool_name || row.kind)}</b><span class="grow"></span><${Time} at=${row.decision ? row.resolved_at : row.requested_at} /></span><span class="line dim">${oneLine(row.kind === "elicitation" ? row.arguments.message ?? "" : compact(row.arguments), 120)}</span>${row.decision ? html`<span class=${row.decision === "approved" ? "good" : "bad"}>${row.decision}${row.by ? ` by ${visible(row.by)}` : ""}</span>` : soon ? html`<span class="warn">expires in ${left(row.expires_at - now.value)}</span>` : null}</a></li>`;
  })}</ul></section>`)}</nav>`;
}

/** @param {{last: any[], decided: boolean}} props */
function Nothing({ last, decided }) {
  if (decided) return html`<${Empty} title="No answers yet" />`;
  return html`<${Empty} title="Nothing waits.">${last.length ? html`<p class="dim">The last answers:</p><ul class="last">${last.map((row) => html`<li key=${row.approval_id}><a href=${url(`/approvals${at(row.approval_id)}?decided=1`)}>${visible(row.tool_name || row.kind)}</a> ${row.decision}${row.by ? ` by ${visible(row.by)}` : ""} <${Time} at=${row.resolved_at} /></li>`)}</ul>` : html`<p class="dim">Calls of tools that need an approval appear here by themselves.</p>`}<//>`;
}

/** @param {{id: string, next: () => void}} props */
function One({ id, next }) {
  const loaded = useLoaded(id, (signal) => get(`/approvals${at(id)}`, signal));
  useEffect(() => follow("approvals", null, ({ event }) => (event === "list" || event === "resync") && loaded.reload()), [id]);
  const article = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => {
    if (!answered || !article.current) return;
    answered = false;
    article.current.focus();
  }, [loaded.data]);
  if (loaded.error) return html`<div class="inbox-one"><${Failed} problem=${loaded.error} title=${loaded.error.status === 404 ? "There is no such approval" : undefined} retry=${loaded.reload} /></div>`;
  if (!loaded.data) return html`<div class="inbox-one"><${Skeleton} /></div>`;
  const row = loaded.data;
  return html`<article ref=${article} class="inbox-one" tabindex="0" aria-label="The chosen approval"><header><h2 class="mono">${visible(row.tool_name || row.kind)}</h2><p>${KINDS[row.kind] ? `Waits for people: ${KINDS[row.kind]}.` : visible(row.kind)} ${row.reason ? visible(row.reason) : ""}</p></header>
    <${Facts} of=${[
      ["Run", html`<${Id} id=${row.run_id} href=${`/runs${at(row.run_id)}`} />`],
      ["Agent", visible(row.agent_path)],
      ["Step", row.step],
      ["Effect", row.effect ? html`<span class=${row.effect === "unsafe" ? "bad" : ""}>${row.effect}</span>` : null],
      ["Asked", html`<${Time} at=${row.requested_at} />`],
      ["Expires", row.expires_at && !row.decision ? html`<span class=${row.expires_at - now.value < SOON_S ? "warn" : ""}>in ${left(row.expires_at - now.value)}</span>` : null],
      ["Resume tokens", row.tokens || null],
    ]} />
    <${Before} row=${row} />
    ${row.kind === "elicitation" ? html`<blockquote>${visible(row.arguments.message ?? "")}</blockquote>` : html`<h3>What would happen</h3>${row.aside ? html`<p class="dim">The arguments are large: they are in the <a href=${url(`/runs${at(row.run_id)}?tab=steps`)}>steps of the run</a>.</p>` : html`<${Long} value=${pretty({ ...row.arguments, ...(Object.keys(row.injected_args ?? {}).length ? { injected: row.injected_args } : {}) })} label="Arguments" />`}`}
    ${row.postcondition?.length ? html`<h3>What could not be verified</h3><ul class="assertions">${row.postcondition.map((/** @type {any} */ each, /** @type {number} */ index) => html`<${Assertion} key=${index} of=${each} />`)}</ul>` : null}
    ${row.decision ? html`<${Answered} row=${row} />` : mayAct() ? html`<${Answer} row=${row} done=${next} changed=${loaded.reload} />` : html`<p class="dim">Your role may look; an operator decides.</p>`}
    <${Earlier} row=${row} /></article>`;
}

/** What the model wrote before it asked. @param {{row: any}} props */
function Before({ row }) {
  const loaded = useLoaded(row.step === null ? null : `${row.run_id} before ${row.approval_id}`, async (signal) => {
    let said = "";
    for (let after = 0; after !== null; ) {
      const { rows, next } = await get(`/runs${at(row.run_id)}/events${query({ after, limit: 1000 })}`, signal);
      for (const event of rows) if (event.step === row.step && event.type === "text") said += event.text;
      after = rows.some((/** @type {any} */ event) => event.approval_id === row.approval_id) ? null : next;
    }
    return said;
  });
  return loaded.data ? html`<h3>What it said before</h3><${Long} value=${loaded.data} class="said" label="Text of the model" />` : null;
}

/** @param {{row: any}} props */
function Answered({ row }) {
  return html`<div class=${`answered ${row.decision === "approved" ? "good" : "bad"}`}><h3><${Icon} name=${row.decision === "approved" ? "completed" : "error"} /> ${visible(row.decision.replace("_", " "))}${row.by ? ` by ${visible(row.by)}` : ""} <${Time} at=${row.resolved_at} /></h3>${row.note ? html`<p>${visible(row.note)}</p>` : null}${row.outcome ? html`<p>Outcome: ${row.outcome}</p>` : null}${row.edited_arguments ? html`<p>With other arguments:</p><${Difference} was=${row.arguments} is=${row.edited_arguments} />` : null}</div>`;
}

/** What is known of earlier calls of the tool. @param {{row: any}} props */
function Earlier({ row }) {
  const loaded = useLoaded(row.tool_name ? `earlier ${row.tool_name}` : null, (signal) => get(`/approvals${query({ pending: "0", tool: row.tool_name, limit: 20 })}`, signal));
  const rows = (loaded.data?.rows ?? []).filter((/** @type {any} */ each) => each.approval_id !== row.approval_id);
  if (!rows.length) return null;
  const same = compact(row.arguments), equal = rows.filter((/** @type {any} */ each) => compact(each.arguments) === same);
  return html`<details class="earlier"><summary>${equal.length ? `${plural(equal.length, "equal call")} decided before` : `${plural(rows.length, "other call")} of ${visible(row.tool_name)} decided before`}</summary><ul>${(equal.length ? equal : rows).slice(0, 10).map((/** @type {any} */ each) => html`<li key=${each.approval_id}><a href=${url(`/approvals${at(each.approval_id)}?decided=1`)}>${each.decision}</a>${each.by ? ` by ${visible(each.by)}` : ""} <${Time} at=${each.resolved_at} /> <span class="mono dim">${oneLine(compact(each.arguments), 120)}</span></li>`)}</ul></details>`;
}

/** What differs between two objects, field by field. @param {{was: any, is: any}} props */
function Difference({ was, is }) {
  const names = [...new Set([...Object.keys(was ?? {}), ...Object.keys(is ?? {})])].filter((name) => compact(was?.[name]) !== compact(is?.[name]));
  if (!names.length) return html`<p class="dim">The same as asked for.</p>`;
  return html`<ul class="patch">${names.map((name) => html`<li key=${name}><code>${visible(name)}</code> ${name in (was ?? {}) ? html`<del>${oneLine(compact(was[name]), 300)}</del> ` : null}${name in (is ?? {}) ? html`<ins>${oneLine(compact(is[name]), 300)}</ins>` : null}</li>`)}</ul>`;
}

/** The forms of all answers. @param {{row: any, done: () => void, changed: () => void}} props */
function Answer({ row, done, changed }) {
  const question = row.kind === "elicitation", unknown = row.kind === "unverifiable";
  const [form, open] = useState(question ? "answer" : "");
  const [words, setNote] = useState("");
  const [edited, edit] = useState(row.arguments);
  const [valid, setValid] = useState(true);
  const [result, setResult] = useState("");
  const [token, setToken] = useState("");
  const key = useRef(newKey());
  const noteField = useRef(/** @type {HTMLTextAreaElement|null} */ (null));
  useKeys({
    a: question ? undefined : () => open(unknown ? "succeeded" : "approve"),
    r: () => open("reject"),
    n: () => {
      if (!form) open(unknown ? "succeeded" : "approve");
      setTimeout(() => noteField.current?.focus(), 0);
    },
    Escape: form && !question ? () => open("") : undefined,
  });
  const send = async (/** @type {any} */ body) => {
    try {
      const stored = await post(`/approvals${at(row.approval_id)}/decision`, { note: words, ...body }, { key: key.current });
      announce(`${stored.decision}`);
      note(`${stored.decision === "approved" ? "Approved" : "Rejected"}: ${row.tool_name || row.kind}`);
      done();
    } catch (problem) {
      const { status, body: told } = /** @type {any} */ (problem);
      if (status === 409 && told?.decision) {
        note(`Someone was faster: ${told.decision.replace("_", " ")}${told.by ? ` by ${told.by}` : ""}${told.at ? ` ${span(Date.now() / 1000 - told.at)} ago` : ""}`);
        changed();
        return;
      }
      throw problem;
    }
  };
  const parsed = () => {
    try {
      return JSON.parse(result);
    } catch {
      return result;
    }
  };
  /** @type {Record<string, {name: string, act: () => Promise<any>, kind?: string, disabled?: boolean, body?: any}>} */
  const forms = {
    approve: { name: "Approve", kind: "primary", act: () => send({ decision: "approved" }) },
    reject: { name: question ? "Decline" : "Reject", kind: "danger", act: () => send({ decision: "rejected" }) },
    always: { name: "Approve, and the same call always", kind: "primary", act: () => send({ decision: "approved", always: true }) },
    edit: { name: "Approve with these arguments", kind: "primary", disabled: !valid, act: () => send({ decision: "approved", arguments: edited }), body: html`<${SchemaForm} schema=${row.schema ?? null} value=${edited} onChange=${edit} onValid=${setValid} /><h3>What you change</h3><${Difference} was=${row.arguments} is=${edited} />` },
    answer: { name: "Answer", kind: "primary", disabled: !valid, act: () => send({ decision: "approved", result: edited }), body: html`<${SchemaForm} schema=${row.arguments?.schema ?? null} value=${question && edited === row.arguments ? {} : edited} onChange=${edit} onValid=${setValid} />` },
    retry: { name: "Run it again", kind: "primary", act: () => send({ decision: "approved", outcome: "retry" }) },
    succeeded: { name: "It succeeded", kind: "primary", act: () => send({ decision: "approved", outcome: "succeeded", result: parsed() }), body: html`<label class="field">Its result (JSON, or a text)<textarea value=${result} onInput=${(/** @type {any} */ e) => setResult(e.target.value)}></textarea></label>` },
    failed: { name: "It failed", kind: "danger", act: () => send({ decision: "approved", outcome: "failed", result: result || undefined }), body: html`<label class="field">What went wrong<textarea value=${result} onInput=${(/** @type {any} */ e) => setResult(e.target.value)}></textarea></label>` },
  };
  const offered = question ? ["answer", "reject"] : unknown ? ["retry", "succeeded", "failed"] : row.kind === "tool" || row.kind === "policy" ? ["approve", "edit", "succeeded", "always", "reject"] : ["approve", "reject"];
  const labels = /** @type {Record<string, string>} */ ({ approve: "Approve", reject: question ? "Decline" : "Reject", edit: "Edit and approve", always: "Always", answer: "Answer", retry: "Run it again", succeeded: unknown ? "It succeeded" : "I did it by hand", failed: "It failed" });
  const chosen = forms[form];
  const issue = async () => setToken((await post(`/approvals${at(row.approval_id)}/tokens`, {})).token);
  const revoke = async () => {
    const { revoked } = await remove(`/approvals${at(row.approval_id)}/tokens`);
    note(`${plural(revoked, "resume token")} revoked`);
    setToken("");
    changed();
  };
  return html`<div class="answer" onKeyDown=${(/** @type {KeyboardEvent} */ e) => e.key === "Enter" && (e.ctrlKey || e.metaKey) && chosen && !chosen.disabled && chosen.act().catch((problem) => note(problem.message, true))}>
    <div class="row answers" role="group" aria-label="Answers">${offered.map((id) => html`<button type="button" key=${id} class=${`${id === offered[0] ? "primary" : id === "reject" ? "danger" : ""}${form === id ? " open" : ""}`} aria-expanded=${form === id} onClick=${() => open(form === id && !question ? "" : id)}>${labels[id]}${id === "approve" || (unknown && id === "succeeded") ? html` <kbd>a</kbd>` : id === "reject" ? html` <kbd>r</kbd>` : null}</button>`)}</div>
    ${chosen ? html`<form onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>${chosen.body ?? null}<label class="field">Note${form === "reject" ? ", which the model reads" : ""}<textarea ref=${noteField} autofocus value=${words} onInput=${(/** @type {any} */ e) => setNote(e.target.value)}></textarea></label><p class="row end"><${Act} type="submit" class=${chosen.kind} disabled=${chosen.disabled} act=${chosen.act}>${chosen.name} <kbd>Ctrl Enter</kbd><//></p></form>` : null}
    <details><summary>Resume tokens</summary><p class="dim">Its holder may answer this approval, without access to the console.</p>${token ? html`<p class="command"><code>${token}</code><${Copy} text=${token} what="token" /></p><p class="warn">It is shown this once.</p>` : null}<p class="row"><${Act} act=${issue}>Issue a token<//>${row.tokens || token ? html`<${Act} class="danger" act=${revoke}>Revoke all<//>` : null}</p></details></div>`;
}
