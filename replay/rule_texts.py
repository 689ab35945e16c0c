"""The rules that comparisons, monitors and proofs name, each in a sentence and with the page that explains it."""

from __future__ import annotations

PAGE = "docs/reference/ordering-rules.md"
RULES = {
    "R1": "a run begins with `status(starting)`, and a failed preparation ends it without a step",
    "R2": "all of a step stands between its `started` and its `completed`, and steps follow one another",
    "R3": "in a step, reasoning and text come first, then usage, then the tool calls in the model's order",
    "R4": "each tool call of a completed step has exactly one result, behind its approval and its progress",
    "R5": "results are stored as each call ends, and the model reads them in call order",
    "R6": "a run has exactly one terminal status, its last observable event",
    "R7": "a child's events stand between the `child_started` and the `child_finished` of the call above it",
    "R8": "once a cancel is stored, only `status(cancelled)` follows",
    "R9": "all of an iteration stands between its start and its end, and `ralph_stop` follows the last one",
    "R10": "a model's reply is one commit in a fixed order, and a paused run starts no step and no model call",
    "R11": "revisions are dense, and no two writers share an epoch",
    "R12": "equal runs ask the model the same: messages, tools, parameters and model",
    "R13": "an injected message stands directly before the step whose request carries it first",
    "P20": "an unsafe call is never started twice without a decision",
    "section 2": "a live stream shows what is stored",
    "section 3": "what a call emits is shown while the call is under way",
    "section 6": "no tool is started more often than its trace accounts for",
}
"""What each rule demands. A section is one of the observable contract."""


def link(rule: str) -> str:
    """The page and the heading that explain a rule; the page alone for one without a heading."""
    return f"{PAGE}#{rule.lower().replace(' ', '-')}" if rule in RULES else PAGE


def explain(rule: str) -> str:
    """The rule in words, with the link."""
    return f"rule {rule}: {RULES[rule]} ({link(rule)})" if rule in RULES else f"rule {rule} ({link(rule)})"
