"""An S3 server on loopback, with a bucket named `bucket`."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Serve `s3://bucket` from this process while open; yield the environment variables that lead to it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with socket.create_connection((host, port)) as connection:
            connection.sendall(f"PUT /bucket HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n".encode())
            assert b" 200 " in connection.recv(4096)
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.stop()
