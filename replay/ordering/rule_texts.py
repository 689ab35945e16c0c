"""The rules that comparisons, the monitor and simulations report: a sentence and a link for each."""

from __future__ import annotations

CONTRACT = "docs/maintainers/contract.md"
PROTOCOL = "docs/maintainers/protocol.md"
RULES = {
    "R1": "a run begins with `status(starting)`, and a failed preparation ends it without a step",
    "R2": "all of a step is between its `started` and its `completed`, and steps follow one another",
    "R3": "in a step, reasoning, text and files come first, then usage, then the tool calls in the model's order",
    "R4": "each tool call of a completed step has exactly one result, after its approval and its progress",
    "R5": "results are stored as each call ends, and the model reads them in call order",
    "R6": "a run has exactly one terminal status, its last observable event",
    "R7": "a child's events are between the `child_started` and the `child_finished` of the call above it",
    "R8": "after a cancel is stored, only `status(cancelled)` follows",
    "R9": "all of an iteration is between its start and its end, and `ralph_stop` follows the last one",
    "R10": "a model's reply is one commit in a fixed order, and a paused run starts no step and no model call",
    "R11": "revisions are dense, and no two writers share an epoch",
    "R12": "equal runs ask the model the same: messages, tools, parameters and model",
    "R13": "an injected message is directly before the step whose request carries it first",
    "R14": "a live stream shows what is stored",
    "R15": "what a call emits is shown while the call is under way",
    "R16": "no tool is started more often than its trace accounts for",
    "R26": "the waits of a call come one after the other, before its result, and a signal ends at most one",
    "R33": "a call that the policy denies never runs, and no approval is requested for it",
    "R27": "a provider's own tool call and its result are in the reply, and the run does nothing about them",
    "R39": "a partial result that replaces a whole one is the last that its call reported",
    "R35": "a tombstone comes after the ends of all runs of a family, and is the last commit of its root for ever",
    "R28": "events of a workflow are ordered by their branches, and a race is decided before what follows from it",
    "R29": "a workflow goes on after a gather or a race only when nothing in its branches is open",
    "R30": "a step of a table that is skipped asks for nothing, and is skipped once",
    "R31": "a call whose step needs an approval starts only after it was given one",
    "P20": "an unsafe call is never started twice without a decision",
}
"""The sentence at the head of each rule, as on its page."""


def link(rule: str) -> str:
    """Return the page and heading that explain a rule; only the page for a rule that has no sentence here."""
    page = CONTRACT if rule.startswith("R") else PROTOCOL
    return f"{page}#{rule.lower()}" if rule in RULES else page


def explain(rule: str) -> str:
    """Return the rule's sentence with its link."""
    return f"rule {rule}: {RULES[rule]} ({link(rule)})" if rule in RULES else f"rule {rule} ({link(rule)})"
