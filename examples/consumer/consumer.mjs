// A subscriber of the log in another language: no dependencies, no code of foldlog.
//
//   node consumer.mjs HISTORY.jsonl ...
//
// Reads exported histories, checks every sum, chain and artifact, folds the observable state and the row of each run,
// and compares them with HISTORY.expected.json where it lies beside the file. Exit code 0: all as expected.

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { fileURLToPath } from "node:url";

const sha256 = (data) => createHash("sha256").update(data).digest("hex");

// --- reading ---------------------------------------------------------------------------------------------------------

/** The commits of a file, verified and whole, in order; throws an Error that names the line. */
export function read(text) {
  const heads = new Map();
  const artifacts = new Map();
  const commits = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line === "") continue;
    try {
      const parsed = JSON.parse(line);
      if (parsed.artifact) artifacts.set(parsed.artifact, checkedArtifact(parsed));
      else commits.push(whole(verified(parsed, heads), artifacts));
    } catch (error) {
      throw new Error(`line ${index + 1}: ${error.message}`);
    }
  }
  return commits;
}

function checkedArtifact({ artifact, base64 }) {
  const bytes = Buffer.from(base64, "base64");
  if (sha256(bytes) !== artifact) throw new Error(`artifact ${artifact} was changed`);
  return bytes;
}

/** The fields that the fold needs and that may lie beside the log. */
const BESIDE = { memory_hydrated: "messages", knowledge_found: "items" };

/** The commit with what lies beside the log in its place, as far as the artifacts are there. */
export function whole(commit, artifacts) {
  const told = (digest, otherwise) => (artifacts.has(digest) ? JSON.parse(artifacts.get(digest)) : otherwise);
  const events = commit.events.map((event) => {
    if (event.type === "offloaded")
      return { ...told(event.artifact, event.outline), agent_path: event.agent_path ?? "" };
    const field = BESIDE[event.type];
    const value = event[field];
    return value?.$artifact ? { ...event, [field]: told(value.$artifact, []) } : event;
  });
  return { ...commit, events };
}

/** A commit that follows on what was read of its run: its own sum, the hash of the one before, dense revisions. */
export function verified({ shard, subject, position, data }, heads) {
  checkSum(data);
  const commit = JSON.parse(data);
  const [kind, root, run] = subject.split(".");
  if (kind !== "run" || commit.run !== run || commit.root !== root) throw new Error(`${subject} holds ${commit.run}`);
  const head = heads.get(run) ?? { revision: 0, digest: "" };
  const follows = commit.rev === head.revision + 1;
  if (!follows && !(isTombstone(commit) && commit.rev > head.revision))
    throw new Error(`run ${run}: revision ${commit.rev} follows ${head.revision}`);
  if (follows && commit.prev !== head.digest) throw new Error(`run ${run}: revision ${commit.rev} does not continue the chain`);
  const digest = sha256(data);
  heads.set(run, { revision: commit.rev + commit.events.length - 1, digest });
  return { ...commit, shard, position, digest };
}

/** The last commit of a root run whose family was erased; what was before it may be gone. */
const isTombstone = (commit) => commit.events.at(-1).type === "buried";

/** `sum` is the beginning of the SHA-256 of all bytes before `,"sum":`, closed with `}`. */
function checkSum(data) {
  const bytes = Buffer.from(data);
  const tail = /,"sum":"([0-9a-f]{16})"}$/.exec(data);
  if (!tail) throw new Error("a commit without its sum");
  const body = Buffer.concat([bytes.subarray(0, bytes.length - Buffer.byteLength(tail[0])), Buffer.from("}")]);
  if (sha256(body).slice(0, 16) !== tail[1]) throw new Error("a commit was changed: its sum does not match");
}

// --- the observable state --------------------------------------------------------------------------------------------

const TERMINAL = new Set(["completed", "error", "cancelled"]);
const NO_USAGE = {
  input_tokens: 0,
  output_tokens: 0,
  total_tokens: 0,
  cached_input_tokens: 0,
  reasoning_tokens: 0,
};
const KNOWN = new Set(
  (
    "status step text reasoning file usage tool_call mcp_progress tool_result approval_requested approval_resolved " +
    "wait_started wait_ended context " +
    "message_injected budget error ralph_iteration ralph_stop child_started child_finished custom submitted claimed " +
    "released left_to_others restored offloaded memory_hydrated knowledge_found prepared model_requested model_failed " +
    "reply_state planner_replied planner_tool_returned plan_made cut_begun summary_made signal_received signal_dropped " +
    "tool_started tool_attempt_failed result_recorded parked output_rejected " +
    "timer_fired message_queued pause_requested cancel_requested approval_revoked late_outcome lane_updated key_recorded " +
    "child_returned child_ready evaluated output_made memoized token_issued token_revoked tools_refresh_requested " +
    "tools_refresh_failed tools_removed tool_partial breaker_updated budget_updated slots_updated buried " +
    "chosen marked diverged operation_skipped access_granted access_withdrawn answer_kept agent_saved agent_removed plan_updated policy_updated once_updated schedule_updated hook_advanced"
  ).split(" "),
);

function plus(a, b) {
  const names = [...Object.keys(NO_USAGE), ...["cache_write_tokens"].filter((name) => a[name] || b?.[name])];
  return Object.fromEntries(names.map((name) => [name, (a[name] ?? 0) + (b?.[name] ?? 0)]));
}

function initialState(commit) {
  return {
    run: commit.run,
    root: commit.root,
    agent_path: commit.path,
    kind: "",
    session: null,
    input: "",
    status: "queued",
    reason: "",
    revision: 0,
    epoch: 0,
    step: 0,
    step_open: false,
    steps_completed: 0,
    usage: NO_USAGE,
    output: "",
    error: null,
    cancel_reason: null,
    calls: [],
    approvals: [],
    open_children: [],
    queue: [],
    messages: [],
    newer_events: 0,
    $: { paused: null, text: "", instructions: "", knowledge: "", plan: "", summary: "" },
  };
}

/** The state behind one more commit. */
export function evolve(state, commit) {
  state ??= initialState(commit);
  for (const event of commit.events) {
    if (!KNOWN.has(event.type)) state.newer_events += 1; // of a newer writer: skipped, never an error
    else if (!event.agent_path) apply(state, event); // else an inner agent's event, which the run only passed on
  }
  state.revision = commit.rev + commit.events.length - 1;
  if (!TERMINAL.has(state.status)) state.status = state.$.paused !== null ? "paused" : state.epoch ? "running" : "queued";
  return state;
}

function apply(state, event) {
  switch (event.type) {
    case "submitted":
      state.kind = event.kind;
      state.session = event.session ?? null;
      state.input = event.input;
      state.$.instructions = event.config.instructions ?? "";
      tellSystem(state);
      for (const message of event.messages ?? []) state.messages.push(told(message));
      state.messages.push({ role: "user", content: event.input });
      break;
    case "prepared": // a function of the agent gave its instructions
      if (event.instructions) {
        state.$.instructions = event.instructions;
        tellSystem(state);
      }
      break;
    case "claimed":
      state.epoch = event.epoch;
      break;
    case "status":
      onStatus(state, event);
      break;
    case "step":
      if (event.status === "started") {
        Object.assign(state, { step: event.step, step_open: true, calls: [] });
        state.$.text = "";
      } else completeStep(state);
      break;
    case "text":
      if (event.step == null) state.output = event.text; // why the run stops
      else state.$.text = event.text;
      break;
    case "usage":
    case "planner_replied":
      state.usage = plus(state.usage, event.usage);
      break;
    case "model_failed":
    case "late_outcome":
      if (event.usage) state.usage = plus(state.usage, event.usage); // of an answer that broke off
      break;
    case "summary_made":
      state.usage = plus(state.usage, event.usage);
      state.$.summary = event.text;
      break;
    case "memory_hydrated":
      remember(state, event.messages ?? []);
      break;
    case "knowledge_found":
      state.$.knowledge = knowledgeBlock(event.items ?? []);
      tellSystem(state);
      break;
    case "context":
      if (event.details?.kept) cut(state, event.details);
      break;
    case "plan_made":
      state.$.plan = event.plan ?? "";
      tellSystem(state);
      break;
    case "tool_call":
      if (event.executed_by) break; // the provider ran it within the reply: no message speaks of it
      state.calls.push({ id: event.tool_call_id, name: event.tool_name, status: "open" });
      break;
    case "tool_result":
      if (state.kind === "workflow") state.calls = state.calls.filter((call) => call.id !== event.tool_call_id);
      for (const call of state.calls) if (call.id === event.tool_call_id) call.status = event.metadata.status ?? "";
      break;
    case "approval_requested":
      state.approvals.push({
        id: event.approval_id,
        kind: event.kind,
        call: event.tool_call_id ?? null,
        state: "pending",
      });
      break;
    case "approval_resolved":
      decide(state, event.approval_id, event.decision);
      break;
    case "approval_revoked":
      decide(state, event.approval_id, "revoked");
      break;
    case "message_queued":
      state.queue.push(event.content);
      break;
    case "message_injected":
      state.queue.shift();
      state.messages.push({ role: "user", content: event.content });
      break;
    case "tools_removed":
      state.messages.push({ role: "user", content: `[no longer available, do not call: ${event.tools.join(", ")}]` });
      break;
    case "output_rejected":
      state.messages.push({ role: "user", content: event.message });
      break;
    case "cancel_requested":
      state.cancel_reason = event.reason ?? "";
      break;
    case "child_started":
      state.open_children = [...state.open_children, event.child_run].sort();
      break;
    case "child_finished":
      state.open_children = state.open_children.filter((run) => run !== event.child_run);
      break;
    case "output_made":
      state.output = event.output;
      break;
    case "error":
      state.error = { error_type: event.error_type, error: event.error };
      break;
  }
}

/** Put what the system message says now in its place. */
function tellSystem(state) {
  const plan = state.$.plan ? `<plan>\n${state.$.plan}\n</plan>` : "";
  const content = [state.$.instructions, state.$.knowledge, plan].filter(Boolean).join("\n\n");
  const rest = state.messages[0]?.role === "system" ? state.messages.slice(1) : state.messages;
  state.messages = content ? [{ role: "system", content }, ...rest] : rest;
}

/** Put what is remembered between the system message and the run's own history. */
function remember(state, messages) {
  const at = state.messages[0]?.role === "system" ? 1 : 0;
  state.messages.splice(at, 0, ...messages.map(told));
}

function knowledgeBlock(items) {
  const pieces = items.map(({ source, text }) => (source ? `[${source}]\n${text}` : text));
  return pieces.length ? `<knowledge>\n${pieces.join("\n\n")}\n</knowledge>` : "";
}

/** Keep the ranges that a cut keeps, with the summary, if there is one, before or behind them. */
function cut(state, details) {
  const system = state.messages.filter((message, index) => index === 0 && message.role === "system");
  const rest = state.messages.slice(system.length);
  const kept = details.kept.flatMap(([first, last]) => rest.slice(first, last));
  const summary = { role: "user", content: `Summary of what was said before:\n\n${state.$.summary}` };
  if (details.summary === "first") kept.unshift(summary);
  if (details.summary === "last") kept.push(summary);
  state.messages = [...system, ...kept];
}

function onStatus(state, event) {
  if (event.status === "paused") state.$.paused = event.reason ?? "";
  else if (event.status === "resumed") state.$.paused = null;
  else if (TERMINAL.has(event.status)) {
    state.$.paused = null;
    state.status = event.status;
    state.reason = event.reason ?? "";
    return;
  }
  state.reason = state.$.paused ?? "";
}

function completeStep(state) {
  state.step_open = false;
  state.steps_completed += 1;
  const calls = state.calls.map((call) => call.id);
  const message = { role: "assistant", content: state.$.text };
  state.messages.push(calls.length ? { ...message, calls } : message);
  for (const call of calls) state.messages.push({ role: "tool", call });
  if (!calls.length) state.output = state.$.text;
}

function told(message) {
  if (message.role === "tool") return { role: "tool", call: message.tool_call_id };
  const { role, content = "", tool_calls: calls = [] } = message;
  return calls.length ? { role, content, calls: calls.map((call) => call.id) } : { role, content };
}

function decide(state, id, decision) {
  for (const approval of state.approvals) if (approval.id === id && approval.state === "pending") approval.state = decision;
}

/** The state without what only the fold needs. */
export function observable({ $, ...state }) {
  return state;
}

/** JSON with sorted keys and no white space; all numbers in a state are integers. */
export function canonicalJson(value) {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const fields = Object.keys(value).sort();
  return `{${fields.map((name) => `${JSON.stringify(name)}:${canonicalJson(value[name])}`).join(",")}}`;
}

// --- the row of the run list -----------------------------------------------------------------------------------------

export function evolveRow(row, commit) {
  row ??= {
    run_id: commit.run,
    root_id: commit.root,
    parent: null,
    forked_from: null,
    forked_at: null,
    trigger: null,
    lane: null,
    priority: "normal",
    shard: commit.shard,
    kind: "",
    agent: commit.path.split("/").at(-1),
    agent_path: commit.path,
    session: null,
    user: null,
    metadata: {},
    status: "queued",
    reason: "",
    waiting_for: null,
    executor: "",
    submitted_at: commit.at,
    steps: 0,
    usage: NO_USAGE,
    cost_usd: "0",
    error: "",
    error_type: "",
    worker: "",
    epoch: 0,
  };
  for (const event of commit.events) if (!event.agent_path) applyToRow(row, event);
  const revision = commit.rev + commit.events.length - 1;
  return Object.assign(row, { updated_at: commit.at, revision, digest: commit.digest, position: commit.position });
}

function applyToRow(row, event) {
  switch (event.type) {
    case "submitted":
      Object.assign(row, { kind: event.kind, session: event.session ?? null, executor: event.executor ?? "local" });
      row.parent = event.parent?.run ?? null;
      Object.assign(row, { trigger: event.trigger ?? null, lane: event.lane ?? null, priority: event.priority ?? "normal" });
      Object.assign(row, { forked_from: event.fork?.run ?? null, forked_at: event.fork?.revision ?? null });
      row.metadata = event.metadata ?? {};
      row.user = event.parent || event.fork ? null : (event.user ?? event.metadata?.memory?.scope?.user_id ?? null);
      break;
    case "claimed":
      Object.assign(row, { worker: event.worker, epoch: event.epoch, waiting_for: null });
      if (row.status === "queued") row.status = "running";
      break;
    case "parked":
      row.waiting_for = event.reason;
      break;
    case "timer_fired":
      row.waiting_for = null;
      break;
    case "approval_resolved":
      if (["approval", "unverifiable", "budget"].includes(row.waiting_for)) row.waiting_for = null;
      break;
    case "status":
      if (event.status === "paused") Object.assign(row, { status: "paused", reason: event.reason ?? "" });
      else if (event.status === "resumed") Object.assign(row, { status: "running", reason: "", waiting_for: null });
      else if (TERMINAL.has(event.status))
        Object.assign(row, { status: event.status, reason: event.reason ?? "", waiting_for: null });
      break;
    case "step":
      if (event.status === "completed") row.steps += 1;
      break;
    case "usage":
    case "planner_replied":
    case "summary_made":
      row.usage = plus(row.usage, event.usage);
      row.cost_usd = row.cost_usd === null || event.cost_usd == null ? null : addDecimals(row.cost_usd, event.cost_usd);
      break;
    case "model_failed":
    case "late_outcome":
      if (event.usage) {
        row.usage = plus(row.usage, event.usage);
        row.cost_usd = row.cost_usd === null || event.cost_usd == null ? null : addDecimals(row.cost_usd, event.cost_usd);
      }
      break;
    case "error":
      Object.assign(row, { error: event.error, error_type: event.error_type });
      break;
  }
}

/** Money is a decimal as text: never a float. */
function addDecimals(a, b) {
  const places = Math.max(...[a, b].map((each) => each.split(".")[1]?.length ?? 0));
  const scaled = ([whole, fraction = ""]) => BigInt(whole + fraction.padEnd(places, "0"));
  const sum = (scaled(a.split(".")) + scaled(b.split("."))).toString().padStart(places + 1, "0");
  return places ? `${sum.slice(0, -places)}.${sum.slice(-places)}` : sum;
}

// --- the proof -------------------------------------------------------------------------------------------------------

/** The state, its digest and the row of each run. */
export function fold(commits) {
  const states = new Map();
  const rows = new Map();
  for (const commit of commits) {
    if (isTombstone(commit)) {
      for (const run of [commit.run, ...(commit.events.at(-1).members ?? [])]) states.delete(run);
      continue;
    }
    states.set(commit.run, evolve(states.get(commit.run), commit));
    rows.set(commit.run, evolveRow(rows.get(commit.run), commit));
  }
  const runs = {};
  for (const [run, folded] of states) {
    const state = observable(folded);
    runs[run] = { state, state_digest: sha256(canonicalJson(state)), row: rows.get(run) };
  }
  return runs;
}

/** What differs from the expectation, in lines; a reader may know more than was expected, never less. */
export function differences(found, expected, where = "") {
  if (expected !== null && typeof expected === "object" && !Array.isArray(expected))
    return Object.keys(expected).flatMap((name) => differences(found?.[name], expected[name], `${where}.${name}`));
  if (isDeepStrictEqual(found, expected)) return [];
  return [`${where.slice(1)}: ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`];
}

function main(files) {
  let wrong = 0;
  for (const file of files) {
    const lines = [];
    let runs = {};
    try {
      runs = fold(read(readFileSync(file, "utf8")));
      const expectation = file.replace(/\.jsonl$/, ".expected.json");
      if (existsSync(expectation)) lines.push(...differences(runs, JSON.parse(readFileSync(expectation, "utf8")).runs));
    } catch (error) {
      lines.push(error.message);
    }
    console.log(`${lines.length ? "✗" : "✓"} ${file}: ${Object.keys(runs).length} runs`);
    for (const line of lines) console.log(`    ${line}`);
    wrong += lines.length ? 1 : 0;
  }
  return wrong ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main(process.argv.slice(2));
