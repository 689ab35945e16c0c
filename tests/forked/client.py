"""A command for tests: another process is forked for it, which has its arguments, streams, surroundings and signals.

Installed beside the server's socket as an executable. What it is killed by, SIGKILL too, ends the other one. It is
most of what a short command costs, so it imports only what is built in: of `os`, `signal` and `socket` what lies below.
"""

import _signal
import _socket
import marshal
import posix
import sys

PASSED_ON = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)


def main() -> None:
    directory, _, name = __file__.rpartition("/")
    order = {"name": name, "argv": sys.argv[1:], "cwd": posix.getcwd(), "environ": posix.environ}
    sent = marshal.dumps(order)
    server = _socket.socket(_socket.AF_UNIX)
    server.connect(f"{directory}/socket")
    streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
    server.sendmsg([len(sent).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    server.sendall(sent)
    process = number_from(server)

    def pass_on(number: int, _: object) -> None:
        try:  # noqa: SIM105 - no contextlib: quick
            posix.kill(process, number)
        except ProcessLookupError:
            pass

    for number in PASSED_ON:
        _signal.signal(number, pass_on)
    code = number_from(server)
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        posix.kill(posix.getpid(), -code)
    sys.exit(code)


def number_from(server: _socket.socket) -> int:
    """The number that the server's next line holds."""
    line = b""
    while not line.endswith(b"\n"):
        byte = server.recv(1)
        if not byte:
            raise EOFError("the server of forked commands has ended")
        line += byte
    return int(line)


if __name__ == "__main__":
    main()
