"""The command `foldlog` as a process of its own, in a project of its own; the one that the PATH leads to."""

import json
import os
import pty
import queue
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDLOG = "foldlog"
WAIT_S = 100.0
# What the surroundings of the test run may not decide.
_FOREIGN = ("NATS_", "OPENAI_", "FOLDLOG_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")


class Done:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> str:
        """The one line that says what is wrong; there is no traceback beside it."""
        assert "Traceback" not in self.err
        (line,) = [line for line in self.err.splitlines() if line.startswith("error: ")]
        return line


class Project:
    """A directory with agents; commands run in it, on one server."""

    def __init__(self, place: Path, server: str | None, namespace: str = "default") -> None:
        self.place, self.server = place, server
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        self.environ |= {
            "FOLDLOG_HOME": str(place / "home"),
            "FOLDLOG_NAMESPACE": namespace,
            "TMPDIR": str(place),
        }
        if server is not None:
            self.environ["NATS_URL"] = server

    def run(self, *args: str, stdin: str = "", **environ: str) -> Done:
        """A command from its beginning to its end."""
        done = subprocess.run(
            [FOLDLOG, *args],
            cwd=self.place,
            env={**self.environ, **environ},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def python(self, script: str) -> Done:
        """A Python script in the same surroundings."""
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=self.place,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def unread(self, *args: str) -> Done:
        """A command whose standard output nobody reads: the pipe is closed before it writes."""
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [FOLDLOG, *args],
                cwd=self.place,
                env=self.environ,
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
        finally:
            os.close(writer)
        return Done(done.returncode, "", done.stderr)

    def on_terminal(self, *args: str, width: int = 80, until: str | None = None) -> str:
        """Return the output of a command on a terminal `width` cells wide; it is interrupted once it wrote `until`."""
        terminal, end = pty.openpty()
        termios.tcsetwinsize(end, (40, width))
        environ = {**self.environ, "TERM": "xterm-256color"}
        with subprocess.Popen(
            [FOLDLOG, *args], cwd=self.place, env=environ, stdin=end, stdout=end, stderr=end
        ) as process:
            os.close(end)
            written = b""
            try:
                with suppress(OSError):  # Linux: the other end was closed
                    while piece := os.read(terminal, 65_536):
                        written += piece
                        if until is not None and until.encode() in written:
                            process.send_signal(signal.SIGTERM)
                            until = None
                assert process.wait(WAIT_S) == 0
            finally:
                process.kill()
                os.close(terminal)
        return written.decode().replace("\r\n", "\n")

    def start(self, *args: str, **environ: str) -> "Running":
        """A command that is left running."""
        return Running([FOLDLOG, *args], self.place, {**self.environ, **environ})

    def only_run(self) -> str:
        """The id of the one run that the namespace holds."""
        (row,) = self.run("runs", "list", "--json").document
        return str(row["run_id"])


class Running:
    """A command under way; what it writes can be waited for."""

    def __init__(self, command: Sequence[str], place: Path, environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=place,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._said: dict[str, list[str]] = {"out": [], "err": []}
        self._news: queue.Queue[tuple[str, str | None]] = queue.Queue()
        for name, stream in (("out", self.process.stdout), ("err", self.process.stderr)):
            threading.Thread(target=self._read, args=(name, stream), daemon=True).start()

    def _read(self, name: str, stream: Any) -> None:
        with stream:
            for line in stream:
                self._news.put((name, line))
        self._news.put((name, None))

    def until(self, text: str, of: str = "err") -> str:
        """The first line that holds the text, waited for."""
        for line in self._said[of]:
            if text in line:
                return line
        for name, line in self._coming():
            if name == of and text in line:
                return line
        raise AssertionError(f"ended without {text!r}; it said {self._said}")

    def _coming(self) -> Iterator[tuple[str, str]]:
        open_streams = 2
        while open_streams:
            name, line = self._news.get(timeout=WAIT_S)
            if line is None:
                open_streams -= 1
                continue
            self._said[name].append(line)
            yield name, line

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, if it still runs, and nothing of it stays."""
        self.process.kill()
        self.process.wait()

    def end(self) -> Done:
        """Wait for its end."""
        code = self.process.wait(WAIT_S)
        for _ in self._coming():
            pass
        return Done(code, "".join(self._said["out"]), "".join(self._said["err"]))
