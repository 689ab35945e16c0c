"""Approvals: what waits for people, and their answers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ....eventlog.errors import ApprovalError
from ....eventlog.events import ToolEffect
from ....projections.approvals import ApprovalRow
from ....projections.run_list import RunRow
from ...http.answers import Refused
from ..paging import parse_place, place_of
from ..problems import Problem
from ..routing import LIMIT_MAX, Call, Nothing, Route


class ApprovalsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of approvals: `pending=0` for the decided ones, which come newest first."""

    pending: bool = True
    kind: str | None = None
    agent: str | None = None
    tool: str | None = None
    session: str | None = None
    run: str | None = None
    limit: int = 50
    before: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise ValueError(f"limit is from 1 to {LIMIT_MAX}, not {self.limit}")

    def takes(self, row: ApprovalRow) -> bool:
        """Return whether an approval meets the filters that need no other row."""
        return (
            self.kind in {None, row.kind}
            and self.agent in {None, row.agent_path.rpartition("/")[2]}
            and self.tool in {None, row.tool_name}
        )


class ApprovalDetail(ApprovalRow, frozen=True, kw_only=True):
    """One approval, with what the run knows of the tool: its effect, and the JSON Schema of its arguments."""

    effect: ToolEffect | None = None
    schema: dict[str, Any] | None = None


class Decide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer. `arguments` replace those of the call; `outcome` and `result` tell what became of it (see the docs).

    `always`: exactly the same call needs no approval again.
    """

    decision: Literal["approved", "rejected"]
    note: str = ""
    arguments: dict[str, Any] | None = None
    outcome: Literal["retry", "succeeded", "failed"] | None = None
    result: Any = None
    always: bool = False


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The stored answer; that of the first who gave it, if it was given before. Its words are in the run."""

    approval_id: str
    run_id: str
    decision: str
    by: str


class IssueToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time for which a resume token is valid, in seconds."""

    expires_s: float = 24 * 3600.0


class ResumeToken(msgspec.Struct, frozen=True):
    """A resume token, which is shown this once: its holder may answer the approval."""

    token: str


class Revoked(msgspec.Struct, frozen=True):
    """The number of resume tokens that are void from now on."""

    revoked: int


class ListedApprovals(msgspec.Struct, frozen=True):
    """A page of approvals. `next` is the `before` of the page after it, null on the last one.

    `damaged` are the runs of the namespace whose logs are damaged, at most 100: nobody knows what they ask for.
    """

    rows: list[ApprovalRow]
    next: str | None
    damaged: list[RunRow]


async def list_approvals(call: Call[ApprovalsQuery, Nothing]) -> ListedApprovals:
    """List approvals: pending ones, oldest first; or decided ones, newest first."""
    index, query = await call.door.index(), call.query
    found = [row for row in await index.approvals(query.pending, query.run) if query.takes(row)]
    if query.session is not None:
        roots = {row.root_id for row in await index.runs(-1, session=query.session)} if found else set()
        found = [row for row in found if row.root_id in roots]
    if not query.pending:
        found = found[::-1]
    place = parse_place(query.before)
    if place is not None:
        # A page goes on after the row where the one before ended, also if that was answered meanwhile.
        seen = [n for n, row in enumerate(found) if _is_until(row, place, newest_first=not query.pending)]
        found = found[seen[-1] + 1 :] if seen else found
    page = found[: query.limit]
    more = len(found) > query.limit
    following = place_of(page[-1].requested_at, page[-1].approval_id) if more else None
    return ListedApprovals(page, following, await index.damaged())


def _is_until(row: ApprovalRow, place: tuple[float, str], *, newest_first: bool) -> bool:
    at, name = place
    if row.requested_at == at:
        return row.approval_id == name
    return row.requested_at > at if newest_first else row.requested_at < at


async def show_approval(call: Call[Nothing, Nothing]) -> ApprovalDetail:
    """Show one approval, with the effect of its tool and the schema of the arguments."""
    row = await approval_of(call)
    spec = (await call.runtime.get_run(row.run_id).state()).tools.get(row.tool_name)
    return ApprovalDetail(
        **msgspec.structs.asdict(row),
        effect=None if spec is None else spec.effect,
        schema=None if spec is None else spec.parameters,
    )


async def decide(call: Call[Nothing, Decide]) -> Decided:
    """Answer an approval. The same answer again is answered as the first; another one is refused with who was first."""
    row, given = await approval_of(call), call.body
    try:
        stored = await call.runtime.get_run(row.run_id).resolve(
            row.approval_id,
            given.decision,
            given.note,
            given.arguments,
            given.outcome,
            given.result,
            by=call.author,
            always=given.always,
        )
    except ApprovalError as error:
        first = await approval_of(call)
        if first.decision is None:
            raise Problem(422, str(error), error="ApprovalError") from None
        raise Problem(
            409, str(error), error="ApprovalError", by=first.by, decision=first.decision, at=first.resolved_at
        ) from None
    return Decided(
        approval_id=row.approval_id,
        run_id=row.run_id,
        decision=stored.decision,
        by=stored.by,
    )


async def issue_token(call: Call[Nothing, IssueToken]) -> ResumeToken:
    """Issue a resume token for an approval. It is shown once."""
    row = await approval_of(call)
    run = call.runtime.get_run(row.run_id)
    return ResumeToken(
        await run.issue_token(row.approval_id, expires_s=call.body.expires_s, by=call.actor.name)
    )


async def revoke_tokens(call: Call[Nothing, Nothing]) -> Revoked:
    """Revoke all resume tokens of an approval."""
    row = await approval_of(call)
    return Revoked(await call.runtime.get_run(row.run_id).revoke_tokens(row.approval_id, by=call.actor.name))


async def approval_of(call: Call[Any, Any]) -> ApprovalRow:
    """Return the approval of the path. Raises `Refused` (404)."""
    wanted = call.path("approval")
    for row in await (await call.door.index()).approvals_named(wanted):
        if row.approval_id == wanted:
            return row
    raise Refused(404, f"there is no approval {wanted!r:.80}")


ROUTES = (
    Route(
        method="GET",
        path="/approvals",
        role="viewer",
        endpoint=list_approvals,
        query=ApprovalsQuery,
        answer=ListedApprovals,
    ),
    Route(
        method="GET",
        path="/approvals/{approval}",
        role="viewer",
        endpoint=show_approval,
        answer=ApprovalDetail,
    ),
    Route(
        method="POST",
        path="/approvals/{approval}/decision",
        role="operator",
        endpoint=decide,
        body=Decide,
        answer=Decided,
    ),
    Route(
        method="POST",
        path="/approvals/{approval}/tokens",
        role="operator",
        endpoint=issue_token,
        body=IssueToken,
        answer=ResumeToken,
        status=201,
        keyed=False,
    ),
    Route(
        method="DELETE",
        path="/approvals/{approval}/tokens",
        role="operator",
        endpoint=revoke_tokens,
        answer=Revoked,
    ),
)
