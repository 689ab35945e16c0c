"""What happened: events, their codec, the ports of the log and the logs themselves."""

__all__: list[str] = []
