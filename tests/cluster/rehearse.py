"""A rehearsal: servers fail in every way on a schedule, under fifty runs at once, and what went wrong is counted.

    python -m tests.cluster.rehearse --servers 3 --seconds 300

prints what was done and counted as JSON, and exits 1 unless nothing was lost, doubled, left open or out of order. What
is counted comes from outside of foldlog where it can: effects from a database that only the tools write to, appends
from a witness that notes each acknowledgement.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from foldlog.eventlog import AppendUnsure, Conflict, LogUnavailable
from foldlog.eventlog.conformance.suite import Writer, run_in
from foldlog.eventlog.errors import ApprovalError
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.replay import Watch
from foldlog.runtime import Runtime

from tests.cluster.networks import Network, network
from tests.cluster.nodes import CONFIG, ROOT, Cluster, Node, foldlog
from tests.cluster.work import opened, registry

RUNS_AT_ONCE = 50
WORKERS = 3
KILL_EVERY_S = 10.0
DOWN_S = 2.0
LOOK_S = 2.0
"""The time for which an operator waits before believing what the database says of a call in doubt."""
SCRIPT = {
    "turns": [
        {"tool_calls": [{"id": name, "name": name, "arguments": {}}]} for name in ("look", "keep", "pay")
    ]
    + [{"text": "Done."}]
}
RESTARTS = "restart node by node, each awaited until it is current"
CUT_S = 20.0
CUT = f"the leader cut off from all others for {CUT_S:g} s"


@dataclasses.dataclass(kw_only=True)
class Report:
    """The report: faults and counts. Durations are seconds."""

    servers: int
    seconds: float
    faults: dict[str, int] = dataclasses.field(default_factory=dict)
    runs_submitted: int = 0
    runs_ended: int = 0
    commits_acknowledged: int = 0
    commits_lost: int = 0
    calls: dict[str, int] = dataclasses.field(default_factory=dict)
    calls_executed: dict[str, int] = dataclasses.field(default_factory=dict)
    effects_doubled: int = 0
    effects_without_their_run: int = 0
    calls_asked_about: int = 0
    runs_without_one_terminal: int = 0
    runs_not_completed: int = 0
    violations: int = 0
    log_whole: bool = False
    longest_stall_s: float = 0.0
    longest_run_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Return whether everything that was promised held."""
        wrong = (
            self.commits_lost,
            self.effects_doubled,
            self.effects_without_their_run,
            self.runs_without_one_terminal,
            self.runs_not_completed,
            self.violations,
        )
        return not any(wrong) and self.log_whole and self.runs_submitted == self.runs_ended > 0

    def did(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1


class Rehearsal:
    """One rehearsal in a directory of its own."""

    def __init__(
        self, directory: Path, servers: int, seconds: float, disk: Path | None, apart: Network | None
    ) -> None:
        self.directory, self.report = directory, Report(servers=servers, seconds=seconds)
        self.cluster = Cluster(directory, CONFIG, count=servers, small=disk, apart=apart)
        self.disk, self.apart = disk, apart
        self.ending = asyncio.Event()
        self.witnesses: list[Writer] = []

    async def carry_out(self) -> Report:
        (self.directory / "script.json").write_text(json.dumps(SCRIPT))
        os.environ["REHEARSAL"] = os.environ["FOLDLOG_SCRIPT_DIR"] = str(self.directory)
        async with self.cluster, self._workers(), self._runtime() as runtime:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._faults())
                tasks.create_task(self._witness())
                tasks.create_task(self._answer(runtime))
                runs = [tasks.create_task(self._submit(runtime, place)) for place in range(RUNS_AT_ONCE)]
                tasks.create_task(self._end_after(runs))
            await self._count(runtime)
        return self.report

    @contextlib.asynccontextmanager
    async def _runtime(self) -> AsyncIterator[Runtime]:
        async with Runtime.open(self.cluster.url, registry=registry) as runtime:
            yield runtime

    @contextlib.asynccontextmanager
    async def _workers(self) -> AsyncIterator[None]:
        async with JetStreamLog.open(self.cluster.url, connect_timeout_s=60):
            pass  # the namespace is there before its workers
        processes = [self._worker(f"w{number}") for number in range(WORKERS)]
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def _worker(self, name: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "NATS_URL": self.cluster.url, "PYTHONPATH": str(ROOT)}
        command = [foldlog(), "worker", "tests.cluster.work:registry", "--name", name, "--grace-s", "5"]
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log, env=environment)

    # --- the load

    async def _submit(self, runtime: Runtime, place: int) -> None:
        """Keep one run open until the end; each has a key, so that it is submitted again after an outage."""
        agent, number = runtime.registry.agent("rehearsed"), 0
        while not self.ending.is_set():
            key, begun = f"{place}-{number}", time.monotonic()
            self.report.runs_submitted += 1
            while True:
                try:
                    run = await runtime.start(agent, "go", executor="durable", idempotency_key=key)
                    await run.result(timeout_s=600)
                except LogUnavailable:
                    await asyncio.sleep(0.5)
                else:
                    break
            self.report.runs_ended += 1
            self.report.longest_run_s = max(self.report.longest_run_s, time.monotonic() - begun)
            number += 1

    async def _end_after(self, runs: Sequence[asyncio.Task[None]]) -> None:
        await self.ending.wait()
        await asyncio.gather(*runs)
        self._runs_over = True

    _runs_over = False

    async def _answer(self, runtime: Runtime) -> None:
        """Be the operator: look into the database for calls in doubt, and say what came of them."""
        while not self._runs_over:
            await asyncio.sleep(1.0)
            with contextlib.suppress(LogUnavailable):
                for approval in await runtime.approvals():
                    if time.time() - approval.requested_at < LOOK_S:
                        continue
                    call = f"{approval.run_id}/{approval.tool_call_id}"
                    with contextlib.closing(opened()) as database:
                        there = database.execute("SELECT 1 FROM done WHERE call = ?", (call,)).fetchone()
                    outcome: Any = (
                        {"outcome": "succeeded", "result": "paid"} if there else {"outcome": "retry"}
                    )
                    with contextlib.suppress(ApprovalError):
                        run = runtime.get_run(approval.run_id)
                        await run.resolve(approval.approval_id, "approved", by="rehearsal", **outcome)
                        self.report.calls_asked_about += 1

    async def _witness(self) -> None:
        """Append to two logs of another namespace, and note what is acknowledged."""
        async with JetStreamLog.open(self.cluster.url, namespace="witness", connect_timeout_s=60) as log:
            self.witnesses = [run_in(log, shard) for shard in range(2)]
            while not self._runs_over:
                for writer in self.witnesses:
                    await self._append(writer)
                await asyncio.sleep(0.02)
            for writer in self.witnesses:
                found = {stored.position: stored.data async for stored in log.events.read(writer.subject)}
                kept = [stored for stored in writer.stored if found.get(stored.position) == stored.data]
                self.report.commits_acknowledged += len(writer.stored)
                self.report.commits_lost += len(writer.stored) - len(kept)

    async def _append(self, writer: Writer) -> None:
        """Append the next commit; one whose acknowledgement was lost is looked for, and noted if it is there."""
        write = writer.write("witness")
        while True:
            try:
                await writer.store(write)
            except (AppendUnsure, Conflict, LogUnavailable):
                await asyncio.sleep(0.1)
                with contextlib.suppress(LogUnavailable):
                    head = await writer.log.events.head(writer.subject)
                    if head is not None and head.position > writer.head.position and head.data == write.data:
                        writer.accept(write, head.position)
                        return
            else:
                return

    # --- the faults

    async def _faults(self) -> None:
        end = time.monotonic() + self.report.seconds
        try:
            if self.report.servers == 1:
                await self._killing(end, self._only)
            else:
                await self._killing(time.monotonic() + 0.6 * self.report.seconds, self._leader)
                for fault in (self._pause, self._freeze, self._cut_off, self._fill, self._roll):
                    await fault()
                await self._killing(end, self._leader)
        finally:
            self.ending.set()

    async def _only(self) -> Node:
        return self.cluster.nodes[0]

    async def _leader(self) -> Node:
        """The server that leads a shard of the runs, else that of all streams."""
        return (
            await self.cluster.leader_of("FL_default_00")
            or await self.cluster.leader()
            or self.cluster.nodes[0]
        )

    async def _killing(self, end: float, whom: Callable[[], Awaitable[Node]]) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(max(0.0, min(KILL_EVERY_S - DOWN_S, end - time.monotonic())))
            node = await whom()
            node.kill()
            self.report.did(
                "kill -9 of the only server" if self.report.servers == 1 else "kill -9 of a leader"
            )
            await asyncio.sleep(DOWN_S)
            node.start()

    async def _pause(self) -> None:
        """Stop a follower for a while: it misses everything, and comes back late."""
        await self.cluster.settled()
        leader = await self._leader()
        node = next(each for each in self.cluster.nodes if each is not leader)
        await self._stopped(node, 15.0, "SIGSTOP of a follower for 15 s")

    async def _freeze(self) -> None:
        """Stop the leader for longer than an election takes: it comes back and believes that it leads."""
        await self.cluster.settled()
        await self._stopped(await self._leader(), 20.0, "SIGSTOP of a leader for 20 s")

    async def _cut_off(self) -> None:
        """Cut the network between the leader, its clients and all others; it goes on, and believes that it leads."""
        if self.apart is None:
            return
        await self.cluster.settled()
        far = self.cluster.nodes[1]
        async with JetStreamLog.open(self.cluster.nodes[0].url, connect_timeout_s=60) as log:
            wanted = {"placement": {"preferred": far.name}}
            while await self.cluster.leader_of("FL_default_00") is not far:
                with contextlib.suppress(LogUnavailable):
                    await log._wire.api("STREAM.LEADER.STEPDOWN.FL_default_00", wanted, dict)
                await asyncio.sleep(0.5)
        self.apart.cut()
        await asyncio.sleep(CUT_S)
        self.apart.mend()
        self.report.did(CUT)
        await self.cluster.settled()

    async def _stopped(self, node: Node, for_s: float, fault: str) -> None:
        node.pause()
        await asyncio.sleep(for_s)
        node.go_on()
        self.report.did(fault)
        await self.cluster.settled()

    async def _fill(self) -> None:
        """Fill the disk of the first server, which has a small one; then free it, and start it again."""
        if self.disk is None:
            return
        node = self.cluster.nodes[0]
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        self.report.did("full disk of a server for 15 s")
        await asyncio.sleep(15.0)
        ballast.unlink()
        node.kill()
        node.start()
        await self.cluster.settled()

    async def _roll(self) -> None:
        for node in self.cluster.nodes:
            await node.terminate()
            node.start()
            await self.cluster.settled()
        self.report.did(RESTARTS)

    # --- the counting

    async def _count(self, runtime: Runtime) -> None:
        watch, times, terminals, completed = Watch(), [], {}, 0
        async for recorded in watched(runtime, watch, self.report):
            times.append(recorded.commit.at)
            for event in recorded.commit.events:
                status = getattr(event, "status", None)
                if event.type == "status" and status in {"completed", "error", "cancelled"}:
                    run = recorded.commit.run
                    terminals[run] = terminals.get(run, 0) + 1
                    completed += status == "completed"
        times.sort()
        self.report.longest_stall_s = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
        runs = [row.run_id for row in await (await runtime.index()).runs(limit=-1)]
        self.report.runs_without_one_terminal = sum(terminals.get(run, 0) != 1 for run in runs)
        self.report.runs_not_completed = len(runs) - completed
        with contextlib.closing(opened()) as database:
            tally = dict(
                database.execute("SELECT tool, count(DISTINCT call) FROM tries GROUP BY tool").fetchall()
            )
            tries = dict(database.execute("SELECT tool, count(*) FROM tries GROUP BY tool").fetchall())
            doubled = database.execute(
                "SELECT count(*) FROM (SELECT call FROM done GROUP BY call HAVING count(*) > 1)"
            )
            self.report.effects_doubled = doubled.fetchone()[0]
            paid = {call.partition("/")[0] for (call,) in database.execute("SELECT call FROM done")}
        self.report.calls, self.report.calls_executed = tally, tries
        self.report.effects_without_their_run = len(paid ^ set(runs))
        verified = await asyncio.to_thread(
            subprocess.run,
            [foldlog(), "--server", self.cluster.url, "events", "verify", "--all", "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.report.log_whole = verified.returncode == 0


async def watched(runtime: Runtime, watch: Watch, report: Report) -> AsyncIterator[Any]:
    """Yield all commits of runs, and count the rules that they break."""
    from foldlog.eventlog import Chain, Shard

    for shard in range(runtime.log.events.shards):
        chain = Chain()
        async for stored in runtime.log.events.read(Shard(shard)):
            recorded = chain.verify(stored)
            report.violations += len(watch.feed(stored))
            yield recorded


@contextlib.contextmanager
def small_disk(directory: Path) -> Any:
    """A file system of 192 MiB for one server, or None where it cannot be made."""
    place = directory / "small"
    place.mkdir(parents=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=192m", "none", str(place)], check=False
    ).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


async def rehearse(servers: int, seconds: float) -> Report:
    directory = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    try:
        if servers == 1:
            return await Rehearsal(directory, servers, seconds, None, None).carry_out()
        with small_disk(directory) as disk, network() as apart:
            return await Rehearsal(directory, servers, seconds, disk, apart).carry_out()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, choices=(1, 3), default=3)
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    report = asyncio.run(rehearse(given.servers, given.seconds))
    sys.stdout.write(json.dumps({**dataclasses.asdict(report), "clean": report.is_clean}, indent=1) + "\n")
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
