"""Decisions about the next iteration of a ralph loop, from the stored iterations, scores and reflections alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from ....eventlog.events import RalphIteration, RalphStop
from ....projections.run_state import NodeState, RunState
from ..effects import Evaluate, RunNode
from ..turn import Turn
from .config import REFLECT, LoopRules, Reflection, Scored
from .stop import Iteration, StopType, stop_after


class RalphCoordinator:
    """Runs iterations one after another: run, score, reflect, then stop or continue."""

    def wanted(self, state: RunState) -> Sequence[RunNode | Evaluate]:
        """Return the open iteration's run, or the evaluations that are due for it."""
        config, number = _config(state), len(state.iterations)
        if not number or state.iterations[-1].status != "started":
            return []
        node = _node(state, number)
        if node is None or node.status is None:
            name = config.member
            text = _input(state, config)
            return [RunNode(name=name, ordinal=number - 1, input=text, first=number == 1, files=True)]
        if node.status == "cancelled":
            return []
        unscored = [] if node.status == "error" else _unscored(state, config)
        if unscored:
            scored = Scored(input=_own_input(state), iteration=number, output=node.output)
            argument = msgspec.json.encode(scored).decode()
            ordinal = _completed(state)
            return [Evaluate(name=name, ordinal=ordinal, argument=argument) for name in unscored]
        if _reflects(state, config) and not _problem(state, config):
            return [_reflection(state, config, node)]
        return []

    def advance(self, turn: Turn) -> None:
        """Start and end iterations, and end the run when a stop condition holds."""
        state, config = turn.state, _config(turn.state)
        if not state.iterations:
            turn.add(RalphIteration(iteration=1, status="started"))
            return
        node = _node(state, len(state.iterations))
        if state.iterations[-1].status != "started" or node is None or node.status is None:
            return
        if node.status == "cancelled":
            self._interrupted(turn)
        elif node.status == "error" or not _unscored(state, config):
            self._judge(turn, config, node)

    def _judge(self, turn: Turn, config: LoopRules, node: NodeState) -> None:
        state, number = turn.state, len(turn.state.iterations)
        problem = _problem(state, config)
        if problem is not None:
            turn.add(RalphIteration(iteration=number, status="failed"))
            _end(turn, "system_error", problem)
            return
        stop = _stop(state, config)
        if stop is None and _reflects(state, config):
            return  # the reflection is due and has not returned yet
        scores = _scores(state, config) if node.status == "completed" else {}
        failed = node.status != "completed"
        turn.add(RalphIteration(iteration=number, status="failed" if failed else "completed", scores=scores))
        if stop is None:
            turn.add(RalphIteration(iteration=number + 1, status="started"))
        else:
            _end(turn, *stop)

    def _interrupted(self, turn: Turn) -> None:
        number = len(turn.state.iterations)
        turn.add(RalphIteration(iteration=number, status="failed"))
        _end(turn, "user_interrupted", f"iteration {number} was cancelled")


def _end(turn: Turn, stop_type: StopType, reason: str) -> None:
    """Add the loop's stop and its terminal event: completed if any iteration completed and nothing broke."""
    state = turn.state
    done = [each for each in state.iterations if each.status == "completed"]
    final = dict(done[-1].scores) if done else {}
    turn.add(
        RalphStop(stop_type=stop_type, reason=reason, iterations=len(state.iterations), final_scores=final)
    )
    output = _last_output(state)
    if stop_type == "system_error":
        turn.fail("ralph_system_error", reason, recoverable=False, step=None)
    elif output is None:
        last = state.nodes[-1].returned
        why = last.error if last is not None and last.error else "cancelled"
        turn.fail(
            "ralph_failed",
            f"no iteration completed ({reason}); the last: {why}",
            recoverable=False,
            step=None,
        )
    else:
        turn.complete(output)


@lru_cache(maxsize=256)
def _read(config: bytes) -> LoopRules:
    return msgspec.json.decode(config, type=LoopRules)


def _config(state: RunState) -> LoopRules:
    assert state.submitted is not None  # noqa: S101 - coordinators only see stored runs
    return _read(msgspec.json.encode(state.submitted.config))


def _own_input(state: RunState) -> str:
    return state.submitted.input if state.submitted is not None else ""


def _node(state: RunState, number: int) -> NodeState | None:
    """Return the run of an iteration: a loop has one member, so its n-th node runs the n-th iteration."""
    return state.nodes[number - 1] if number <= len(state.nodes) else None


def _completed(state: RunState) -> int:
    """Return the number of iterations completed before the open one."""
    return sum(1 for each in state.iterations if each.status == "completed")


def _unscored(state: RunState, config: LoopRules) -> list[str]:
    done = _completed(state)
    return [name for name in config.scorers if len(state.evaluations.get(name, ())) <= done]


def _scores(state: RunState, config: LoopRules) -> dict[str, float]:
    """Return the scores of the open iteration, in the order of the scorers."""
    done = _completed(state)
    return {name: float(state.evaluations[name][done].value or 0.0) for name in config.scorers}


def _reflects(state: RunState, config: LoopRules) -> bool:
    """Return whether the open iteration needs a reflection: one is configured, not yet stored, and the loop goes on."""
    stored = len(state.evaluations.get(REFLECT, ()))
    due = config.reflects and stored < len(state.iterations)
    return due and _stop(state, config) is None


def _stop(state: RunState, config: LoopRules) -> tuple[StopType, str] | None:
    return stop_after(config.stop, _iterations(state, config))


def _problem(state: RunState, config: LoopRules) -> str | None:
    """Return the failure of a scorer or of the reflection function in the open iteration."""
    node = _node(state, len(state.iterations))
    if node is not None and node.status == "completed":
        done = _completed(state)
        for name in config.scorers:
            if len(state.evaluations.get(name, ())) > done and (error := state.evaluations[name][done].error):
                return f"scorer {name}: {error}"
    reflections = state.evaluations.get(REFLECT)
    if reflections is not None and len(reflections) == len(state.iterations) and reflections[-1].error:
        return f"reflect: {reflections[-1].error}"
    return None


def _iterations(state: RunState, config: LoopRules) -> list[Iteration]:
    """Return all iterations up to the open one, whose run is over and scored."""
    result: list[Iteration] = []
    for known, node in zip(state.iterations, state.nodes, strict=False):
        failed = node.status != "completed"
        scores = known.scores
        if known.status == "started" and not failed:
            scores = _scores(state, config)
        returned = node.returned
        result.append(
            Iteration(
                failed=failed,
                output=node.output,
                scores=scores,
                cost_usd=returned.cost_usd if returned is not None else None,
                started_at=node.started_at,
                ended_at=node.ended_at,
            )
        )
    return result


def _last_output(state: RunState) -> str | None:
    completed = [node for node in state.nodes if node.status == "completed"]
    return completed[-1].output if completed else None


def _reflection(state: RunState, config: LoopRules, node: NodeState) -> Evaluate:
    failed = node.status != "completed"
    error = node.returned.error if failed and node.returned is not None else ""
    reflection = Reflection(
        input=_own_input(state),
        iteration=len(state.iterations),
        output=error if failed else node.output,
        scores={} if failed else _scores(state, config),
        error=error,
    )
    argument = msgspec.json.encode(reflection).decode()
    return Evaluate(name=REFLECT, ordinal=len(state.iterations) - 1, argument=argument)


def _input(state: RunState, config: LoopRules) -> str:
    """Return the open iteration's input: the loop's own, plus feedback from the iteration before."""
    number = len(state.iterations)
    own = _own_input(state)
    if number == 1:
        return own
    if config.reflects:
        return f"{own}\n\n{state.evaluations[REFLECT][number - 2].value}"
    before, node = state.iterations[number - 2], state.nodes[number - 2]
    return f"{own}\n\n{_feedback(number - 1, before.scores, node)}"


def _feedback(number: int, scores: dict[str, float], node: NodeState) -> str:
    if node.status != "completed":
        error = node.returned.error if node.returned is not None else ""
        return f"Iteration {number} failed: {error}"
    graded = ", ".join(f"{name} {score:g}" for name, score in scores.items())
    verdict = f"scored {graded}" if graded else "is done"
    return f"Iteration {number} {verdict}; do better. Its answer was:\n{node.output}"
