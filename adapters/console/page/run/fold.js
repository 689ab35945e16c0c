// From the events of a run and the runs below it to what is drawn: a row each, and bars with a beginning and an end.
// It is a total fold: an event that it does not know is a row with its fields.
import { compact, count, span } from "../text.js";

const ENGINE = new Set("prepared model_requested tool_started tool_attempt_failed parked released left_to_others result_recorded memoized timer_fired key_recorded lane_updated slots_updated breaker_updated policy_updated once_updated child_ready child_returned offloaded late_outcome reply_state cut_begun evaluated output_made token_issued token_revoked approval_revoked hook_advanced knowledge_found memory_hydrated planner_replied planner_tool_returned".split(" "));
const KEY = new Set("submitted status tool_call tool_result text approval_requested approval_resolved error child_started child_finished wait_started wait_ended signal_received message_injected budget file cancel_requested buried".split(" "));
const COMMON = new Set(["type", "run_id", "root_id", "agent", "agent_path", "step", "tool_call_id", "revision", "cursor", "at", "is_end", "inner_step", "inner_tool_call_id"]);
const OVER = new Set(["completed", "error", "cancelled"]);

/** @typedef {{id: string, lane: string, name: string, start: number, end: number|null, state: string, detail: string, revision: number|null, run_id: string}} Bar */

export class Fold {
  /** @param {string} run  the run whose bars are drawn */
  constructor(run) {
    this.run = run;
    /** @type {any[]} */
    this.rows = [];
    /** @type {Map<string, Bar>} */
    this.bars = new Map();
    this.depth = 0;
    this.claim = "";
    this.epoch = 0;
    this.lostAt = 0;
    this.state = "";
    this.model = "";
    this.steps = 0;
    /** @type {Map<string, string>} */
    this.names = new Map();
  }

  /** @param {any} event */
  take(event) {
    const own = event.run_id === this.run && !event.inner_step, depth = (event.agent_path ?? "").split("/").length - 1;
    if (!this.rows.length) this.depth = depth;
    const { what, detail = "", style = "" } = this.words(event);
    const claim = event.type === "claimed";
    const level = ENGINE.has(event.type) || (claim && !what.includes("takes")) ? "engine" : KEY.has(event.type) ? "key" : "normal";
    this.rows.push({ at: event.at, revision: event.revision, run_id: event.run_id, agent: event.agent || (event.agent_path ?? "").split("/").pop(), depth: Math.max(0, depth - this.depth), type: event.type, step: event.step ?? null, what, detail, style, level });
    if (!own) return;
    this.draw(event);
  }

  /** @param {any} event @param {string} id @param {string} lane @param {string} name @param {string} [state] @param {string} [detail] */
  begin(event, id, lane, name, state = "", detail = "") {
    this.bars.set(id, { id, lane, name, start: event.at, end: null, state, detail, revision: event.revision, run_id: event.run_id });
  }

  /** @param {any} event @param {string} id @param {string} [state] @param {string} [detail] */
  finish(event, id, state, detail) {
    const bar = this.bars.get(id);
    if (!bar || bar.end !== null) return;
    this.bars.set(id, { ...bar, end: event.at, state: state ?? bar.state, detail: detail ?? bar.detail });
  }

  /** The run's own bar goes on in another state. @param {any} event @param {string} name @param {string} state */
  become(event, name, state) {
    this.finish(event, this.state);
    this.state = `run ${event.revision}`;
    this.begin(event, this.state, "run", name, state);
  }

  /** @param {any} e */
  draw(e) {
    switch (e.type) {
      case "submitted":
        this.become(e, "queued", "queued");
        break;
      case "claimed": {
        const taken = this.bars.get(this.claim)?.end === null;
        if (taken) this.finish(e, this.claim, "lost", `lost; ${e.worker} took over`);
        this.claim = `claim ${e.epoch}`;
        this.begin(e, this.claim, "worker", e.worker, "", `epoch ${e.epoch}`);
        if (/^(queued|parked)$/.test(this.bars.get(this.state)?.state ?? "")) this.become(e, "driven", "");
        break;
      }
      case "released":
      case "parked":
        this.finish(e, this.claim, undefined, e.reason);
        if (e.type === "parked" && this.bars.get(this.state)?.state === "") this.become(e, `parked: ${e.reason}`, "parked");
        break;
      case "status":
        if (e.status === "paused") this.become(e, `paused: ${e.reason}`, "paused");
        else if (e.status === "resumed") this.become(e, "driven", "");
        else if (OVER.has(e.status)) {
          this.finish(e, this.state);
          for (const [id, bar] of this.bars) if (bar.end === null) this.finish(e, id, e.status === "completed" ? undefined : bar.lane === "worker" ? undefined : e.status);
        }
        break;
      case "step":
        if (e.status === "started") {
          this.steps = e.step;
          this.begin(e, `step ${e.step}`, "step", `step ${e.step}`);
        } else this.finish(e, `step ${e.step}`);
        break;
      case "model_requested":
        this.model = `model ${e.revision}`;
        this.begin(e, this.model, "model", `${e.model}${e.attempt > 1 ? `, attempt ${e.attempt}` : ""}`, "", e.phase ?? "");
        break;
      case "model_failed":
        this.finish(e, this.model, "failed", `${e.error_type}: ${e.error}`);
        break;
      case "usage":
      case "summary_made":
      case "planner_replied":
        this.finish(e, this.model, undefined, e.usage ? `${count(e.usage.total_tokens ?? 0)} tokens` : "");
        break;
      case "tool_call":
        this.names.set(e.tool_call_id, e.tool_name);
        this.begin(e, `tool ${e.tool_call_id}`, "tool", e.tool_name, "", compact(e.arguments ?? e.raw_arguments ?? {}));
        break;
      case "approval_requested":
        if (!e.tool_call_id) break;
        if (this.bars.get(`tool ${e.tool_call_id}`)?.start === e.at) this.bars.delete(`tool ${e.tool_call_id}`);
        else this.finish(e, `tool ${e.tool_call_id}`);
        this.begin(e, `ask ${e.approval_id}`, "tool", `${e.tool_name || e.kind}: approval`, "approval", compact(e.arguments ?? {}));
        break;
      case "approval_resolved":
        if (this.bars.get(`ask ${e.approval_id}`)?.end !== null) break;
        this.finish(e, `ask ${e.approval_id}`, undefined, `${e.decision}${e.by ? ` by ${e.by}` : ""}`);
        if (e.decision === "approved") this.begin(e, `tool ${e.tool_call_id}`, "tool", this.names.get(e.tool_call_id) ?? "");
        break;
      case "tool_attempt_failed":
        this.finish(e, `tool ${e.tool_call_id}`, "failed", e.error);
        this.bars.set(`tool ${e.tool_call_id} ${e.attempt}`, /** @type {Bar} */ ({ ...this.bars.get(`tool ${e.tool_call_id}`), id: `tool ${e.tool_call_id} ${e.attempt}` }));
        this.begin(e, `tool ${e.tool_call_id}`, "tool", this.names.get(e.tool_call_id) ?? "", "", `attempt ${e.attempt + 1}`);
        break;
      case "tool_result":
        this.finish(e, `tool ${e.tool_call_id}`, e.success ? undefined : "failed", e.success ? "" : e.error ?? "");
        break;
      case "wait_started":
        this.begin(e, `wait ${e.tool_call_id}`, "tool", `waits for ${e.name || (e.kind === "callback" ? "a callback" : "a time")}`, "waiting");
        break;
      case "wait_ended":
        this.finish(e, `wait ${e.tool_call_id}`, undefined, e.outcome);
        break;
      case "child_started":
        this.begin(e, `child ${e.child_run}`, "child", e.name, "", e.child_run);
        break;
      case "child_finished":
        this.finish(e, `child ${e.child_run}`, e.status === "completed" ? undefined : "failed");
        break;
      default:
    }
  }

  /** An event in words. @param {any} e @returns {{what: string, detail?: string, style?: string}} */
  words(e) {
    switch (e.type) {
      case "submitted":
        return { what: `to ${e.executor ?? "local"}`, detail: e.input };
      case "claimed": {
        const taken = e.run_id === this.run && this.bars.get(this.claim)?.end === null;
        return taken ? { what: `${e.worker} takes over`, detail: `from ${this.bars.get(this.claim)?.name}, epoch ${e.epoch}`, style: "ask" } : { what: `by ${e.worker}`, detail: `epoch ${e.epoch}`, style: "dim" };
      }
      case "left_to_others":
        return { what: `by ${e.worker}`, detail: e.reason, style: "ask" };
      case "parked":
      case "released":
        return { what: e.reason ?? "", style: "dim" };
      case "prepared":
        return { what: `${count((e.tools ?? []).length)} tools`, detail: (e.tools ?? []).map((/** @type {any} */ tool) => tool.name).join(", "), style: "dim" };
      case "step":
        return { what: `${e.status}`, style: "dim" };
      case "model_requested":
        return { what: e.model, detail: `${e.phase ? `for ${e.phase}, ` : ""}attempt ${e.attempt}, digest ${e.digest}`, style: "model" };
      case "model_failed":
        return { what: `attempt ${e.attempt}: ${e.error_type}`, detail: e.error + (e.next_model ? `; next: ${e.next_model}` : ""), style: "bad" };
      case "usage":
        return { what: `${count(e.usage?.total_tokens ?? 0)} tokens`, detail: `${e.model}: ${count(e.usage?.input_tokens ?? 0)} in, ${count(e.usage?.output_tokens ?? 0)} out${e.cost_usd ? `, $${e.cost_usd}` : ""}${e.finish_reason ? `, cut: ${e.finish_reason}` : ""}`, style: "dim" };
      case "text":
      case "reasoning":
        return { what: "", detail: e.text, style: "model" };
      case "tool_call":
        return { what: e.tool_name, detail: e.raw_arguments ?? compact(e.arguments ?? {}), style: "tool" };
      case "tool_started":
        return { what: this.names.get(e.tool_call_id) ?? "", detail: `attempt ${e.attempt}`, style: "dim" };
      case "tool_attempt_failed":
        return { what: `attempt ${e.attempt}`, detail: e.error, style: "bad" };
      case "tool_result":
        return { what: e.tool_name, detail: `${e.success ? compact(e.result ?? null) : e.error ?? "failed"}`, style: e.success ? "tool" : "bad" };
      case "mcp_progress":
        return { what: `${e.progress}${e.total ? ` of ${e.total}` : ""}`, detail: e.message ?? "", style: "dim" };
      case "approval_requested":
        return { what: `${e.tool_name || e.kind}`, detail: `${e.approval_id}${e.reason ? `: ${e.reason}` : ""}`, style: "ask" };
      case "approval_resolved":
        return { what: `${e.decision.replace("_", " ")}${e.by ? ` by ${e.by}` : ""}`, detail: e.note ?? "", style: "ask" };
      case "wait_started":
        return { what: `for ${e.name || (e.kind === "callback" ? "a callback" : "a time")}`, style: "ask" };
      case "wait_ended":
        return { what: e.outcome.replace("_", " "), detail: e.data === undefined ? "" : compact(e.data), style: "ask" };
      case "status":
        return { what: e.status, detail: [e.reason, e.message].filter(Boolean).join(": "), style: e.status === "completed" ? "good" : /error|cancelled/.test(e.status) ? "bad" : e.status === "paused" ? "ask" : "" };
      case "error":
        return { what: e.error_type, detail: e.error, style: "bad" };
      case "child_started":
      case "child_finished":
        return { what: `${e.name ?? ""} ${e.status ?? ""}`.trim(), detail: e.child_run, style: e.status === "error" ? "bad" : "" };
      case "message_queued":
      case "message_injected":
        return { what: "", detail: e.content, style: "ask" };
      case "cancel_requested":
      case "pause_requested":
        return { what: `${e.withdrawn ? "withdrawn" : ""}${e.by ? ` by ${e.by}` : ""}`.trim(), detail: e.reason ?? "", style: "ask" };
      case "budget":
        return { what: `${e.kind}: ${e.scope}`, detail: `${count(e.used)} of ${count(e.limit)}${e.message ? `, ${e.message}` : ""}`, style: e.kind === "limit" ? "bad" : "ask" };
      case "context":
        return { what: e.action, detail: `${e.before_count} to ${e.after_count} messages`, style: "dim" };
      default:
        return { what: "", detail: compact(Object.fromEntries(Object.entries(e).filter(([name]) => !COMMON.has(name)))).slice(0, 2000), style: "dim" };
    }
  }
}
