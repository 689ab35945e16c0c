"""Exit codes, and the one line on stderr for each error.

0  ok
1  the answer is no: the run failed or was cancelled, traces differ, something is not found
2  usage or configuration
3  no connection to the log
4  timeout
5  the run is paused (`--no-wait`)
130 interrupted (143: by SIGTERM)
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

from .output.escaping import clean

OK, NO, USAGE, NO_CONNECTION, TIMED_OUT, PAUSED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 5, 130, 143
DEBUG = "FOLDLOG_DEBUG"
_WORKER = "AnyIO worker thread"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk, or a quota, that is full."""
_IDLE_S = 0.2
"""The time an idle thread may take to end."""


def report(error: BaseException) -> int:
    """Print an error on stderr in one line, and return its exit code."""
    from ...eventlog.errors import FoldlogError, RunFailed

    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case BrokenPipeError():
            _silence_stdout()
            return NO
        case OSError() if error.errno in _FULL:
            _silence_stdout()
            say_error(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
        case RunFailed():
            say_error(f"{error.error_type}: {error.message}")
        case FoldlogError() | TimeoutError():
            say_error(str(error) or "it took too long")
        case Exception() if files := _files_read():  # a file may hold anything, whatever its checksums say
            say_error(
                f"{' and '.join(files)} cannot be used here ({type(error).__name__}: {error}); "
                f"{DEBUG}=1 shows where"
            )
        case _:
            say_error(f"{type(error).__name__}: {error}: this is a bug in foldlog; {_told(error)}")
    return code_of(error)


def code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    from ...eventlog.errors import (
        ArchiveInvalid,
        ConfigError,
        KeyMissing,
        LogUnavailable,
        PayloadTooLarge,
        UnsupportedByExecutor,
    )

    match error:
        case ArchiveInvalid():
            return NO
        case ConfigError() | KeyMissing() | UnsupportedByExecutor() | PayloadTooLarge():
            return USAGE
        case LogUnavailable():
            return NO_CONNECTION
        case TimeoutError():
            return TIMED_OUT
        case _:
            return NO


def say_error(message: str) -> None:
    """Write `error: ...` on one line, with control characters removed."""
    lines = [line.strip() for line in clean(message).splitlines()]
    print(f"error: {'; '.join(filter(None, lines))}", file=sys.stderr)  # noqa: T201 - this is the place that prints


def _files_read() -> list[str]:
    """Return the archives that the command has read: an unexpected error is attributed to them."""
    traces = sys.modules.get(f"{__package__}.traces")
    return list(dict.fromkeys(traces.READ)) if traces is not None else []


def _told(error: BaseException) -> str:
    """Write the traceback to a file, and return a sentence that says where it is."""
    if os.environ.get(DEBUG):
        return "the traceback is above"
    import tempfile

    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="foldlog-error-", suffix=".log", delete=False
        ) as file:
            file.write(text)
            return f"the traceback is in {Path(file.name)}; please report it"
    except OSError:
        return f"set {DEBUG}=1 for the traceback"


def _silence_stdout() -> None:
    """Discard further output: the reader is gone, and the interpreter must not fail again when it flushes at exit."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())


def leave(code: object) -> None:
    """Exit at once if a synchronous function is still running in a thread: Python would wait for it without limit.

    Its call was abandoned, and is settled as after a crash.
    """
    for thread in threading.enumerate():
        if thread.name.startswith(_WORKER):
            thread.join(_IDLE_S)
            if thread.is_alive():
                _flush()
                os._exit(code if isinstance(code, int) else NO if code else OK)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader may be gone
            stream.flush()
