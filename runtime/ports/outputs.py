"""The error that validators of outputs raise."""

from __future__ import annotations


class OutputRefused(Exception):
    """Raise it in a validator of an agent's output: the model reads the message and answers again."""
