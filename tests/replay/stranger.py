"""A fold in plain Python, written from docs/how-to/prove-your-subscriber.md and the pages that it names alone.

It imports nothing of foldlog. What it cannot know from those pages, no stranger can.
"""

from __future__ import annotations

import base64
import hashlib
import json
from decimal import Decimal
from typing import Any

Json = dict[str, Any]
COUNTED = ("usage", "planner_replied", "summary_made")
BROKEN = ("model_failed", "late_outcome")
USAGE = ("input_tokens", "output_tokens", "total_tokens", "cached_input_tokens", "reasoning_tokens")
ENDS = ("completed", "error", "cancelled")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Reader:
    """The states and rows of the runs of an archive. `types`: all event types that the documents have."""

    def __init__(self, text: str, types: set[str]) -> None:
        self.types = types
        self.artifacts: dict[str, bytes] = {}
        self.states: dict[str, Json] = {}
        self.rows: dict[str, Json] = {}
        self._private: dict[str, Json] = {}
        for line in text.splitlines():
            self._read(json.loads(line))

    def _read(self, line: Json) -> None:
        if "artifact" in line:
            data = base64.b64decode(line["base64"])
            assert sha256(data) == line["artifact"]
            self.artifacts[line["artifact"]] = data
            return
        text: str = line["data"]
        body, _, rest = text.rpartition(',"sum":"')
        assert sha256((body + "}").encode())[:16] == rest.removesuffix('"}')
        commit = json.loads(text)
        run = commit["run"]
        assert line["subject"] == f"run.{commit['root']}.{run}"
        if commit["events"][-1]["type"] == "buried":  # the family was erased: what was before it may be gone
            for gone in (run, *commit["events"][-1].get("members", ())):
                self.states.pop(gone, None)
                self.rows.pop(gone, None)
            return
        if run not in self.states:
            self._begin(commit)
        row, state = self.rows[run], self.states[run]
        assert commit["rev"] == state["revision"] + 1
        assert commit["prev"] == row.get("digest", "")
        for event in commit["events"]:
            self._fold(run, self._whole(event), commit)
        state["revision"] = row["revision"] = commit["rev"] + len(commit["events"]) - 1
        row |= {
            "shard": line["shard"],
            "position": line["position"],
            "digest": sha256(text.encode()),
            "updated_at": commit["at"],
        }

    def _begin(self, commit: Json) -> None:
        run, path = commit["run"], commit["path"]
        self._private[run] = {"text": "", "instructions": "", "knowledge": "", "plan": "", "summary": ""}
        self.states[run] = {
            "run": run, "root": commit["root"], "agent_path": path, "kind": "", "input": "", "session": None,
            "status": "queued", "reason": "", "revision": 0, "epoch": 0, "step": 0, "steps_completed": 0,
            "step_open": False, "usage": dict.fromkeys(USAGE, 0), "output": "", "error": None,
            "cancel_reason": None, "calls": [], "approvals": [], "open_children": [], "queue": [],
            "messages": [], "newer_events": 0,
        }  # fmt: skip
        self.rows[run] = {
            "run_id": run, "root_id": commit["root"], "agent_path": path, "agent": path.split("/")[-1],
            "submitted_at": commit["at"], "kind": "", "session": None, "executor": "local", "metadata": {},
            "lane": None, "trigger": None,
            "parent": None, "forked_from": None, "forked_at": None, "user": None, "worker": "", "epoch": 0,
            "status": "queued", "reason": "", "waiting_for": None, "steps": 0,
            "usage": dict.fromkeys(USAGE, 0), "cost_usd": "0", "error": "", "error_type": "",
        }  # fmt: skip

    def _whole(self, event: Json) -> Json:
        """The event with what lies beside the log."""
        if event["type"] == "offloaded":
            data = self.artifacts.get(event["artifact"])
            whole = event["outline"] if data is None else json.loads(data)
            return {**whole, "agent_path": event.get("agent_path", "")}
        field = {"memory_hydrated": "messages", "knowledge_found": "items"}.get(event["type"], "")
        value = event.get(field)
        if isinstance(value, dict):
            return {**event, field: json.loads(self.artifacts.get(value["$artifact"], b"[]"))}
        return event

    def _fold(self, run: str, event: Json, commit: Json) -> None:
        if event["type"] not in self.types:
            self.states[run]["newer_events"] += 1
        elif not event.get("agent_path"):
            self._to_state(self.states[run], self._private[run], event)
            self._to_row(self.rows[run], event)

    def _to_state(self, state: Json, mine: Json, event: Json) -> None:  # noqa: C901, PLR0912, PLR0915 - a table
        match event["type"]:
            case "submitted":
                state |= {"kind": event["kind"], "session": event.get("session"), "input": event["input"]}
                mine["instructions"] = event["config"].get("instructions", "")
                state["messages"] = [*map(told, event.get("messages", [])), user(event["input"])]
            case "prepared" if event.get("instructions"):
                mine["instructions"] = event["instructions"]
            case "claimed":
                state["epoch"] = event["epoch"]
                if state["status"] == "queued":
                    state["status"] = "running"
            case "status" if event["status"] == "resumed":
                state |= {"status": "running" if state["epoch"] else "queued", "reason": ""}
            case "status" if event["status"] == "paused" or event["status"] in ENDS:
                state |= {"status": event["status"], "reason": event.get("reason", "")}
            case "step" if event["status"] == "started":
                state |= {"step": event["step"], "step_open": True, "calls": []}
                mine["text"] = ""
            case "step":
                state |= {"step_open": False, "steps_completed": state["steps_completed"] + 1}
                ids = [call["id"] for call in state["calls"]]
                state["messages"].append(
                    told({"role": "assistant", "content": mine["text"], "tool_calls": state["calls"]})
                )
                state["messages"] += [{"role": "tool", "call": each} for each in ids]
                if not ids:
                    state["output"] = mine["text"]
            case "text" if event.get("step") is None:
                state["output"] = event.get("text", "")
            case "text":
                mine["text"] = event.get("text", "")
            case "output_made":
                state["output"] = event.get("output", "")
            case "memory_hydrated":
                behind = 1 if state["messages"][0]["role"] == "system" else 0
                state["messages"][behind:behind] = map(told, event.get("messages", []))
            case "knowledge_found":
                mine["knowledge"] = "\n\n".join(
                    f"[{item['source']}]\n{item['text']}" if item.get("source") else item["text"]
                    for item in event.get("items", [])
                )
            case "plan_made":
                mine["plan"] = event.get("plan", "")
            case "context" if "kept" in event.get("details", {}):
                cut(state, event["details"], mine["summary"])
            case "summary_made":
                mine["summary"] = event["text"]
            case "tool_call" if event.get("executed_by"):
                pass  # the provider ran it within the reply: no message speaks of it
            case "tool_call":
                state["calls"].append(
                    {"id": event["tool_call_id"], "name": event["tool_name"], "status": "open"}
                )
            case "tool_result" if state["kind"] == "workflow":
                state["calls"] = [call for call in state["calls"] if call["id"] != event["tool_call_id"]]
            case "tool_result":
                for call in state["calls"]:
                    if call["id"] == event["tool_call_id"]:
                        call["status"] = event.get("metadata", {}).get("status", "")
            case "approval_requested":
                approval = {
                    "id": event["approval_id"],
                    "kind": event["kind"],
                    "call": event.get("tool_call_id"),
                }
                state["approvals"].append({**approval, "state": "pending"})
            case "approval_resolved" | "approval_revoked":
                for each in state["approvals"]:
                    if each["id"] == event["approval_id"] and each["state"] == "pending":
                        each["state"] = event.get("decision", "revoked")
            case "message_queued":
                state["queue"].append(event["content"])
            case "message_injected":
                state["queue"] = state["queue"][1:]
                state["messages"].append(user(event["content"]))
            case "tools_removed":
                gone = ", ".join(event["tools"])
                state["messages"].append(user(f"[no longer available, do not call: {gone}]"))
            case "output_rejected":
                state["messages"].append(user(event["message"]))
            case "child_started":
                state["open_children"] = sorted([*state["open_children"], event["child_run"]])
            case "child_finished":
                state["open_children"].remove(event["child_run"])
            case "cancel_requested":
                state["cancel_reason"] = event.get("reason", "")
            case "error":
                state["error"] = {"error_type": event["error_type"], "error": event["error"]}
        if event["type"] in COUNTED or event["type"] in BROKEN:
            add(state["usage"], event.get("usage") or {})
        if event["type"] in ("submitted", "prepared", "knowledge_found", "plan_made"):
            say_system(state, mine)

    def _to_row(self, row: Json, event: Json) -> None:  # noqa: C901, PLR0912 - a table
        match event["type"]:
            case "submitted":
                parent, fork = event.get("parent") or {}, event.get("fork") or {}
                row |= {
                    "kind": event["kind"],
                    "session": event.get("session"),
                    "lane": event.get("lane"),
                    "trigger": event.get("trigger"),
                    "executor": event.get("executor", "local"),
                    "metadata": event.get("metadata", {}),
                    "parent": parent.get("run"),
                    "forked_from": fork.get("run"),
                    "forked_at": fork.get("revision"),
                }
                if not parent and not fork:
                    scope = event.get("metadata", {}).get("memory", {}).get("scope", {})
                    remembered = scope.get("user_id") if isinstance(scope, dict) else None
                    row["user"] = event.get("user", remembered)
            case "claimed":
                row |= {"worker": event["worker"], "epoch": event["epoch"], "waiting_for": None}
                if row["status"] == "queued":
                    row["status"] = "running"
            case "parked":
                row["waiting_for"] = event["reason"]
            case "timer_fired":
                row["waiting_for"] = None
            case "approval_resolved" if row["waiting_for"] in ("approval", "unverifiable", "budget"):
                row["waiting_for"] = None
            case "status" if event["status"] == "paused":
                row |= {"status": "paused", "reason": event.get("reason", "")}
            case "status" if event["status"] == "resumed":
                row |= {"status": "running", "reason": "", "waiting_for": None}
            case "status" if event["status"] in ENDS:
                row |= {"status": event["status"], "reason": event.get("reason", ""), "waiting_for": None}
            case "step" if event["status"] == "completed":
                row["steps"] += 1
            case "model_failed" | "late_outcome" if event.get("usage") is None:
                pass
            case "usage" | "planner_replied" | "summary_made" | "model_failed" | "late_outcome":
                add(row["usage"], event.get("usage", {}))
                cost = event.get("cost_usd")
                known = row["cost_usd"] is not None and cost is not None
                row["cost_usd"] = f"{Decimal(row['cost_usd']) + Decimal(cost):f}" if known else None
            case "error":
                row |= {"error": event["error"], "error_type": event["error_type"]}

    def digest(self, run: str) -> str:
        """SHA-256 of the canonical JSON of a state."""
        text = json.dumps(self.states[run], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return sha256(text.encode())


def user(content: str) -> Json:
    return {"role": "user", "content": content}


def told(message: Json) -> Json:
    if message["role"] == "tool":
        return {"role": "tool", "call": message["tool_call_id"]}
    ids = [call["id"] for call in message.get("tool_calls", [])]
    return {"role": message["role"], "content": message.get("content", "")} | ({"calls": ids} if ids else {})


def add(total: Json, usage: Json) -> None:
    for name in USAGE:
        total[name] += usage.get(name, 0)
    for name in ("cache_write_tokens", "cache_write_1h_tokens"):
        if usage.get(name):
            total[name] = total.get(name, 0) + usage[name]


def cut(state: Json, details: Json, summary: str) -> None:
    behind = 1 if state["messages"][0]["role"] == "system" else 0
    head, rest = state["messages"][:behind], state["messages"][behind:]
    kept = [message for first, last in details["kept"] for message in rest[first:last]]
    said = [user(f"Summary of what was said before:\n\n{summary}")]
    match details.get("summary"):
        case "first":
            kept = said + kept
        case "last":
            kept = kept + said
    state["messages"] = head + kept


def say_system(state: Json, mine: Json) -> None:
    paragraphs = [mine["instructions"]]
    paragraphs += [f"<{tag}>\n{mine[tag]}\n</{tag}>" for tag in ("knowledge", "plan") if mine[tag]]
    content = "\n\n".join(filter(None, paragraphs))
    if state["messages"] and state["messages"][0]["role"] == "system":
        state["messages"] = state["messages"][1:]
    if content:
        state["messages"] = [{"role": "system", "content": content}, *state["messages"]]
