"""What is next: agents, tools, the pure core that decides and the executors that drive runs."""

__all__: list[str] = []
