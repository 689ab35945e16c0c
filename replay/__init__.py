"""The proof: canonical traces, the monitor of their rules and parity between executors."""

__all__: list[str] = []
