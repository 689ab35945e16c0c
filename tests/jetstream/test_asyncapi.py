"""The AsyncAPI document of the log: valid, and true of a log in use."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import nats
import pytest
from foldlog.eventlog.asyncapi import asyncapi_document, channel_of
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Host, Runtime, Worker

from tests.javascript.packages import installed_packages
from tests.processes import workshop

READ_S = 60.0
OURS = ("fl.", "live.", "draft.", "lease.", "alive.", "died.", "artifact.", "snapshot.")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


async def test_the_document_is_valid_asyncapi(anyio_backend: str) -> None:
    packages = await installed_packages()
    path = packages.directory / "node_modules/@asyncapi/specs/schemas/3.0.0-without-$id.json"
    validator = jsonschema.Draft7Validator(json.loads(path.read_text()))
    document = json.loads(json.dumps(asyncapi_document("1.0")))
    assert [error.message for error in validator.iter_errors(document)] == []
    document["channels"]["runs"]["address"] = 1
    assert not validator.is_valid(document)
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_parameter_of_an_address_is_described_and_every_reference_leads_somewhere() -> None:
    document = asyncapi_document("1.0")
    for name, channel in document["channels"].items():
        wanted = {token[1:-1] for token in channel["address"].split(".") if token.startswith("{")}
        assert wanted == set(channel["parameters"]), name
        assert not any(token.isupper() for token in channel["address"].split(".")), name
    assert channel_of(document, "fl.default.00.run.r.r") == "runs"
    assert channel_of(document, "live.fl.default.00.over.r.r") == "over"
    assert channel_of(document, "fl.default.00.run.r") is None
    references = [ref for ref in _references(document) if _found(document, ref) is None]
    assert references == []


async def test_each_message_of_a_log_in_use_is_in_the_document(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    monkeypatch.setattr("foldlog.eventlog.offload.FIELD_BYTES_MAX", 24)  # so that there are artifacts
    document = json.loads(json.dumps(asyncapi_document("1.0")))
    seen: list[tuple[str, bytes]] = []

    async def note(message: Any) -> None:
        seen.append((message.subject, message.data))

    async with EphemeralServer() as server:
        connection = await nats.connect(server.url)
        await connection.subscribe(">", cb=note)
        await connection.flush()
        async with Runtime.open(server.url, namespace="told", registry=workshop.registry) as runtime:
            host = Host(log=runtime.log, registry=workshop.registry, worker="w-1")
            worker = Worker(host)
            serving = asyncio.create_task(worker.serve())
            for agent in ("clerk", "chief", "walker"):
                run = await runtime.start(
                    workshop.registry.agent(agent),
                    "question",
                    session="ada",
                    idempotency_key=agent,
                    executor="durable",
                )
                await run.result(timeout_s=READ_S)
            worker.stop()
            await serving
        await connection.drain()
    ours = [(subject, data) for subject, data in seen if subject.startswith(OURS)]
    channels = {subject: channel_of(document, subject) for subject, _ in ours}
    assert [subject for subject, channel in channels.items() if channel is None] == []
    assert {"runs", "live", "over", "lane", "key", "wake", "lease", "here", "drafts", "artifacts"} <= set(
        channels.values()
    )
    validators = {name: _validator(document, name) for name in set(channels.values())}
    for subject, data in ours:
        validator = validators[channels[subject]]
        if validator is not None and data:
            assert [error.message for error in validator.iter_errors(json.loads(data))] == [], subject


def _validator(document: dict[str, Any], channel: str | None) -> Any:
    """Return a validator of a channel's messages; null if they are not JSON."""
    (name,) = document["channels"][channel]["messages"]
    message = document["components"]["messages"][name]
    if message["contentType"] != "application/json":
        return None
    return jsonschema.Draft202012Validator({**message["payload"], "components": document["components"]})


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return [*found, *(ref for each in value.values() for ref in _references(each))]
    return [ref for each in value for ref in _references(each)] if isinstance(value, list) else []


def _found(document: dict[str, Any], reference: str) -> Any:
    value: Any = document
    for token in reference.removeprefix("#/").split("/"):
        value = value.get(token) if isinstance(value, dict) else None
    return value
