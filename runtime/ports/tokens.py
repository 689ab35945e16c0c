"""The port to a tokenizer: how a model's provider would count a text, where that is known on this machine.

Found under entry point group `foldlog.tokens`, name `default`: a function of the model's name (without its provider)
that returns a counter, or null for a model that it does not know. It never loads anything from elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from ...projections.tokens import TokenSource, estimate_tokens


class TokenCounter(Protocol):
    """Counts text; `source` says how."""

    @property
    def source(self) -> TokenSource:
        """What the counts rest on."""
        ...

    def count(self, text: str) -> int:
        """How many tokens the text takes."""
        ...


class Estimate:
    """Four bytes of UTF-8 are a token."""

    source: TokenSource = "estimate"

    def count(self, text: str) -> int:
        """The estimate, rounded up."""
        return estimate_tokens(text)
