"""A command for tests: another process is forked for it, which has its arguments, streams, surroundings and signals.

Installed beside the server's socket as an executable. What it is killed by, SIGKILL too, ends the other one.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    directory, name = os.path.split(__file__)
    order = {
        "name": name,
        "argv": sys.argv[1:],
        "cwd": os.getcwd(),  # noqa: PTH109 - no pathlib: quick
        "environ": dict(os.environ),
    }
    sent = json.dumps(order).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"{directory}/socket")
        socket.send_fds(server, [len(sent).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(sent)
        with server.makefile("rb") as answers:
            process = int(answers.readline())

            def pass_on(number: int, _: object) -> None:
                with suppress(ProcessLookupError):
                    os.kill(process, number)

            for number in PASSED_ON:
                signal.signal(number, pass_on)
            code = int(answers.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
