"""The port to tokenizers: counts of a text as the model's provider would count it, if known on this machine.

Found under entry point group `foldlog.tokens`, name `default`: a function of the model's name (without its provider)
that returns a counter, or null for a model that it does not know. It never downloads anything.
"""

from __future__ import annotations

from typing import Protocol

from ...projections.tokens import TokenSource, estimate_tokens


class TokenCounter(Protocol):
    """Counts the tokens of text; `source` says how."""

    @property
    def source(self) -> TokenSource:
        """The basis of the counts."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens in the text."""
        ...


class Estimate:
    """Counts four bytes of UTF-8 as a token."""

    source: TokenSource = "estimate"

    def count(self, text: str) -> int:
        """Return the estimate, rounded up."""
        return estimate_tokens(text)
