"""Match a regular expression in a process of its own, which an alarm ends if it takes too long.

Python's `re` takes exponential time for a pattern like `(a+)+b`, holds the interpreter lock and cannot be interrupted:
in a worker it would stop the heartbeats. So a model's pattern runs here. Only the standard library is used, since the
file is run by its path. The alarm also fires if the waiting process is gone.

Standard input: a line of JSON `{"pattern", "lines_max", "characters_max", "timeout_s"}`, then for each file its size in
bytes on a line, and its bytes. Standard output: a line of JSON `[file, line, text, more]` for each matching line (files
are counted from 0, lines from 1; `more` is the number of characters after `text`), flushed at once; it ends with the
input, or after `lines_max` lines. A JSON string instead describes the error in the pattern.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO


def main() -> None:
    """Match the files given on standard input."""
    source = sys.stdin.buffer
    task = json.loads(source.readline())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler in Python would run only after the match
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, task["timeout_s"])
    try:
        matching = re.compile(task["pattern"]).search
    except (re.error, OverflowError, RecursionError) as error:
        sys.stdout.write(json.dumps(str(error)) + "\n")
        return
    left, most = task["lines_max"], task["characters_max"]
    for file, content in enumerate(_contents(source)):
        for number, line in enumerate(
            content.decode(errors="replace").removesuffix("\n").split("\n"), start=1
        ):
            text = line.removesuffix("\r")
            if matching(text):
                found = [file, number, text[:most], max(0, len(text) - most)]
                sys.stdout.write(json.dumps(found) + "\n")
                sys.stdout.flush()
                left -= 1
                if not left:
                    return


def _contents(source: BinaryIO) -> Iterator[bytes]:
    while size := source.readline():
        yield source.read(int(size))


if __name__ == "__main__":
    main()
