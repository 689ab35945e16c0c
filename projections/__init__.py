"""Projections: pure folds over the log, and the projector that stores their results."""

__all__: list[str] = []
