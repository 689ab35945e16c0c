"""Telemetry of real runs, sent to a collector that speaks OTLP over HTTP, and read as Prometheus reads it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from foldlog.adapters.cli.judging import Judge
from foldlog.adapters.telemetry import Told, subscribe
from foldlog.adapters.telemetry.metrics import Metrics
from foldlog.adapters.telemetry.otlp import OtlpExporter
from foldlog.eventlog import ConfigError
from foldlog.eventlog.commits import Commit, encode
from foldlog.eventlog.events import Step
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import At, CommitWrite
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.journal.journal import Journal
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]


class Collector:
    """A collector: all that it was sent, in order; while `refusing`, it answers 503."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.records: list[Any] = []
        self.metrics: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.refusing = False
        self.refused = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if collector.refusing:
                    collector.refused.set()
                    self.send_response(503)
                else:
                    collector.take(self.path, body)
                    self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/logs":
            for of_logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                for logs in of_logs.scope_logs:
                    self.records += logs.log_records
            return
        if path == "/v1/metrics":
            for of_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metrics in of_metrics.scope_metrics:
                    self.metrics += metrics.metrics
            return
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            self.resources.append({a.key: a.value.string_value for a in of_resource.resource.attributes})
            for of_scope in of_resource.scope_spans:
                self.spans += of_scope.spans

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    started = Collector()
    yield started
    started.close()


@tool(effect="pure")
def search(query: str) -> str:
    """Search."""
    return f"found {query}"


@tool(effect="unsafe")
def pay(eur: int) -> str:
    """Pay."""
    return f"paid {eur}"


@contextlib.asynccontextmanager
async def runtime_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Runtime, Agent[str]]]:
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))
    turns = [
        {"tool_calls": [{"id": "c1", "name": "search", "arguments": {"query": "x"}}]},
        {"text": "done", "usage": {"input_tokens": 5, "output_tokens": 2}},
    ]
    (tmp_path / "script.json").write_text(json.dumps({"turns": turns}))
    agent = Agent("finder", model="scripted:script.json", tools=[search])
    async with Runtime.open(log=MemoryLog(shards=2), registry=Registry(agents=[agent])) as rt:
        yield rt, agent


async def test_the_spans_of_runs_arrive_once_with_the_ids_that_follow_from_the_runs(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    state = tmp_path / "state" / "telemetry.json"
    async with runtime_of(tmp_path, monkeypatch) as (rt, agent):
        exporter = OtlpExporter(collector.url, rt.log.namespace)
        for _ in range(3):  # a restart each time
            await rt.run(agent, "find it", session="s", user="u")
            await subscribe(rt.log, [exporter], state=state, once=True)
        await subscribe(rt.log, [exporter], state=state, once=True)
        await exporter.aclose()
    names = [span.name for span in collector.spans]
    assert sorted(names) == sorted(
        3 * ["invoke_agent finder", "chat script.json", "chat script.json", "execute_tool search"]
    )
    ids = {(span.trace_id, span.span_id) for span in collector.spans}
    assert len(ids) == len(collector.spans)
    assert len({span.trace_id for span in collector.spans}) == 3
    run = next(span for span in collector.spans if span.name.startswith("invoke_agent"))
    told = {a.key: a.value.string_value for a in run.attributes}
    assert (told["gen_ai.conversation.id"], told["foldlog.user"], told["foldlog.status"]) == (
        "s",
        "u",
        "completed",
    )
    assert collector.resources[0]["service.name"] == "foldlog"


async def test_a_collector_that_is_away_loses_no_span(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("foldlog.adapters.telemetry.otlp.RETRY_S", 0.01)
    monkeypatch.setattr(
        "foldlog.adapters.telemetry.otlp.TIMEOUT_S", 0.2
    )  # the exporter's own retries end sooner
    collector.refusing = True
    async with runtime_of(tmp_path, monkeypatch) as (rt, agent):
        exporter = OtlpExporter(collector.url, rt.log.namespace)
        await rt.run(agent, "find it")
        sending = asyncio.create_task(subscribe(rt.log, [exporter], once=True))
        await asyncio.to_thread(collector.refused.wait)
        collector.refusing = False
        await sending
        await exporter.aclose()
    names = {span.span_id: span.name for span in collector.spans}  # one whose answer was late is sent again
    assert sorted(names.values()) == [
        "chat script.json",
        "chat script.json",
        "execute_tool search",
        "invoke_agent finder",
    ]


def told_of(record: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}


def counted(collector: Collector, name: str) -> dict[str, float]:
    """Return the last values of a counter, or how many a histogram has counted, by the attribute values."""
    metric = [each for each in collector.metrics if each.name == name][-1]
    points = metric.sum.data_points or metric.histogram.data_points
    assert (
        metric.sum if metric.sum.data_points else metric.histogram
    ).aggregation_temporality == 2  # cumulative
    return {
        "/".join(str(told_of(each)[key]) for key in sorted(told_of(each))): each.as_double
        if metric.sum.data_points
        else each.count
        for each in points
    }


async def test_records_and_counts_of_runs_arrive_and_a_restart_neither_loses_nor_doubles_them(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "telemetry.json"
    async with runtime_of(tmp_path, monkeypatch) as (rt, agent):
        exporter = OtlpExporter(collector.url, rt.log.namespace)
        for _ in range(2):  # a restart each time
            await rt.run(agent, "find it")
            await subscribe(rt.log, [exporter], state=state, once=True)
        before = state.read_bytes()
        await rt.run(agent, "find it")
        await subscribe(rt.log, [exporter], state=state, once=True)
        state.write_bytes(before)  # as if the process had died before it wrote the file
        await subscribe(rt.log, [exporter], state=state, once=True)
        await exporter.aclose()
    kinds = [record.event_name for record in collector.records]
    assert kinds == 4 * ["foldlog.submitted", "foldlog.claimed", "foldlog.ended"]
    uids = [told_of(record)["log.record.uid"] for record in collector.records]
    assert (len(set(uids)), uids[6:9]) == (
        9,
        uids[9:],
    )  # those of the third run were sent twice, as they were
    ended = collector.records[2]
    assert (ended.severity_text, told_of(ended)["foldlog.status"]) == ("INFO", "completed")
    assert ended.trace_id in {span.trace_id for span in collector.spans}
    assert counted(collector, "gen_ai.invoke_agent.duration") == {"completed/finder/invoke_agent": 3}
    assert counted(collector, "gen_ai.execute_tool.duration") == {"execute_tool/search": 3}
    assert counted(collector, "foldlog.tokens")["scripted/script.json/input"] == 15
    starts = {
        point.start_time_unix_nano
        for each in collector.metrics
        for point in (each.sum.data_points or each.histogram.data_points)
    }
    assert len(starts) == 1


async def test_a_violation_is_a_record_and_is_counted_also_of_a_run_that_began_before_a_restart(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "telemetry.json"
    async with runtime_of(tmp_path, monkeypatch) as (rt, agent):
        exporter, metrics = OtlpExporter(collector.url, rt.log.namespace), Metrics("default", ["R6"])
        run = await rt.start(agent, "find it")
        await run.result()
        await subscribe(rt.log, [exporter, metrics], state=state, once=True, judge=Judge(rt.log))
        assert samples(metrics)["foldlog_violations_total", ("R6",)] == 0
        last = await Journal(rt.log, await rt.locate(run.run_id)).load()
        await broken(rt.log, last, await rt.locate(run.run_id))
        await subscribe(rt.log, [exporter, metrics], state=state, once=True, judge=Judge(rt.log))
        await subscribe(rt.log, [exporter, metrics], state=state, once=True, judge=Judge(rt.log))
        await exporter.aclose()
    (record,) = [each for each in collector.records if told_of(each).get("foldlog.rule") == "R6"]
    assert record.event_name == "foldlog.violation"
    assert (record.severity_text, told_of(record)["foldlog.run.id"]) == ("ERROR", run.run_id)
    assert samples(metrics)["foldlog_violations_total", ("R6",)] == 1
    assert counted(collector, "foldlog.violations")["R6"] == 1


async def broken(log: MemoryLog, state: Any, subject: Any) -> None:
    """Append an event behind the end of a run, as no driver does."""
    commit = Commit(
        run=subject.id,
        root=subject.root,
        rev=state.head.rev + 1,
        append=log.clock.new_id(),
        prev=state.head.digest,
        epoch=state.epoch,
        at=log.clock.now(),
        path="finder",
        events=(Step(step=9, status="started"),),
    )
    await log.events.append(CommitWrite(subject, At(state.head.position), encode(commit)))


def inputs(spans: list[Any]) -> set[str]:
    """Return the inputs of the runs that are told."""
    return {span.attributes["gen_ai.input.messages"] for span in spans if "foldlog.run.id" in span.attributes}


async def test_a_subscriber_that_starts_now_tells_what_comes_and_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("foldlog.adapters.telemetry.subscriber.BATCH_S", 0.01)
    seen: list[Any] = []

    class Listener:
        async def send(self, told: Told) -> None:
            seen.extend(told.spans)

    async with runtime_of(tmp_path, monkeypatch) as (rt, agent):
        await rt.run(agent, "before")
        following = asyncio.create_task(subscribe(rt.log, [Listener()], content=True))
        while not inputs(seen):  # a run that came before the subscriber has no spans
            await rt.run(agent, "after")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert inputs(seen) == {"after"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a file of"),
        ('{"namespace":"other","cursor":null,"fold":{}}', "belongs to the namespace 'other'"),
    ],
)
async def test_a_file_that_is_not_its_own_is_refused_by_name(content: str, message: str, tmp_path: Path):
    state = tmp_path / "telemetry.json"
    state.write_text(content)
    with pytest.raises(ConfigError, match=message):
        await subscribe(MemoryLog(), [], state=state, once=True)
    assert state.read_text() == content


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="collector"):
        OtlpExporter("localhost:4318", "default")


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples that Prometheus would read, by name and labels other than the namespace."""
    found = text_string_to_metric_families(metrics.text().decode())
    each = [sample for family in found for sample in family.samples]
    return {(sample.name, _labels(sample.labels)): sample.value for sample in each}


def _labels(labels: dict[str, str]) -> tuple[str, ...]:
    return tuple(value for name, value in sorted(labels.items()) if name != "namespace")


async def test_metrics_count_runs_calls_and_tokens_and_tell_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))
    (tmp_path / "pay.json").write_text(
        json.dumps({"turns": [{"tool_calls": [{"id": "c1", "name": "pay", "arguments": {"eur": 4}}]}]})
    )
    payer = Agent("payer", model="scripted:pay.json", tools=[pay], hitl_tools=["pay"])
    async with runtime_of(tmp_path, monkeypatch) as (rt, agent):
        metrics = Metrics(rt.log.namespace)
        await rt.run(agent, "find it")
        handle = await rt.start(payer, "pay")
        async for event in handle.stream():
            if event.type == "status" and event.status == "paused":
                break
        await subscribe(rt.log, [metrics], once=True)
        await metrics.look(await rt.index(), rt.log.clock)
        await handle.cancel()
    found = samples(metrics)
    assert found["foldlog_runs_ended_total", ("finder", "completed")] == 1
    assert found["foldlog_model_calls_total", ("", "scripted:script.json")] == 2
    assert found["foldlog_tool_calls_total", ("", "search")] == 1
    assert found["foldlog_tokens_total", ("input", "scripted:script.json")] == 5
    assert found["foldlog_run_duration_seconds_count", ("finder",)] == 1
    assert found["foldlog_runs", ("paused",)] == 1
    assert found["foldlog_runs_waiting", ("approval",)] == 1
    assert found["foldlog_approvals_pending", ()] == 1


def test_every_metric_of_the_alert_rules_and_of_the_dashboard_is_one_that_is_served():
    served = {family.name for family in Metrics("default").registry.collect()}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/foldlog.rules.yml").read_text())
    dashboard = json.loads((ROOT / "deploy/grafana/foldlog.json").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > 15
    for expression in asked:
        words = [
            w
            for w in expression.replace("(", " ").replace("{", " ").replace("[", " ").split()
            if "foldlog_" in w
        ]
        assert words, expression
        for word in words:
            base = word.strip("),").removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
            assert base.removesuffix("_total") in served, word
