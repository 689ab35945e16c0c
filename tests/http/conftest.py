"""The secrets of the senders, and the answers of the model."""

import json
from pathlib import Path

import pytest

from tests.http.door import SECRETS


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "triage.json").write_text(json.dumps({"turns": [{"text": "triaged"}]}))
    call = {"id": "c1", "name": "refund", "arguments": {"order": "17", "euros": 40}}
    desk = {"turns": [{"tool_calls": [call]}, {"text": "It is refunded."}]}
    (tmp_path / "desk.json").write_text(json.dumps(desk))
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
