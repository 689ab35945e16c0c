"""Sources of secrets."""

import sys
from pathlib import Path

import pytest
from foldlog.adapters.secrets import CommandSecret, EnvironmentSecret, FileSecret
from foldlog.runtime.ports.tools import ToolFailed

pytestmark = pytest.mark.anyio


async def test_a_secret_is_read_again_for_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    sources = (
        EnvironmentSecret(variable="KEY", tools=()),
        FileSecret(path=str(path), tools=()),
        CommandSecret(command=(sys.executable, "-c", f"print(open({str(path)!r}).read())"), tools=()),
    )
    for value in ("first one", "second"):
        monkeypatch.setenv("KEY", value)
        path.write_text(f"{value}\n")
        assert [await source.read() for source in sources] == [value] * 3


async def test_what_cannot_be_read_is_named_without_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"hush\xff")
    hush = (sys.executable, "-c", "import sys; print('hush'); sys.exit('hush')")
    for source, problem in (
        (EnvironmentSecret(variable="NOT_SET", tools=()), "NOT_SET of a secret is not set"),
        (FileSecret(path=str(tmp_path / "none"), tools=()), "none of a secret cannot be read: No such file"),
        (
            FileSecret(path=str(tmp_path / "binary"), tools=()),
            "binary of a secret cannot be read: it is not UTF-8",
        ),
        (CommandSecret(command=hush, tools=()), "failed: exit code 1"),
        (CommandSecret(command=("no-such-program",), tools=()), "'no-such-program' of a secret failed"),
    ):
        with pytest.raises(ToolFailed, match=problem) as failure:
            await source.read()
        assert "hush" not in str(failure.value)
