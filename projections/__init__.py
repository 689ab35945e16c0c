"""What it means: pure folds over the log and the projector that keeps their results."""

__all__: list[str] = []
