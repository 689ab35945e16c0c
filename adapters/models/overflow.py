"""Recognize the errors of many servers for a request that is too long, and extract the numbers in them.

The patterns are for OpenAI and Azure, vLLM, SGLang, llama.cpp, LM Studio, Ollama, TGI, Anthropic, Gemini, Mistral,
Cohere, DeepSeek, xAI, Groq, Cerebras, Fireworks, Together, Moonshot, DashScope and OpenRouter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

_TOLD = re.compile(
    r"maximum context|context (length|window|size|limit)|(prompt|input) (is )?too long|too long for the (model|context)"
    r"|max(imum)? (prompt|model|input|allowed|sequence) length|input token(s| count).* exceed|token count .*exceeds"
    r"|too many (input tokens|tokens:)|too large for model|exceeded model token limit|prompt exceeds max"
    r"|range of input length|longer than the model|reduce the length of the (messages|input|prompt)"
    r"|`inputs` (tokens \+|must have less)",
    re.IGNORECASE,
)
_COMMA = re.compile(r"(?<=\d)[,_](?=\d{3}\b)")


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)


_WINDOW = _patterns(
    r"maximum input length of (\d+)",
    r"(?:context|prompt|model) (?:length|window|size)(?: is| of| only|:|\s|\()*(\d+)",
    r"with (\d+) maximum context",
    r"(?:configured|the|token) limit(?: is| of|:)? ?(\d+)",
    r"while limit is (\d+)",
    r"> (\d+) maximum",
    r"context limit: \d+ \+ \d+ > (\d+)",
    r"(?:tokens allowed|maximum allowed length) \(?(\d+)",
    r"supports up to (\d+)",
    r"must be <= (\d+)",
    r"must have less than (\d+)",
    r"cannot exceed (\d+)",
    r"should be \[\d+, ?(\d+)\]",
    r"n_ctx[:= ]+(\d+)",
    r"\bLimit:? (\d+), Requested",
)
_TOTAL = _patterns(r"requested(?: about| a total of)? (\d+) tokens")
"""The total of request and answer."""
_REQUEST = _patterns(
    r"(\d+) tokens from the input messages",
    r"resulted in (\d+) tokens",
    r"(?:request contains|prompt contains|passed|has) (\d+)(?: input)? tokens",
    r"prompt is too long:? (\d+)",
    r"token count(?: is| of)? \(?(\d+)",
    r"\(length (\d+)\)",
    r"(?:request|input|input length) \((\d+) tokens\)",
    r"given: (\d+)",
    r"received (\d+)",
    r"requested:? (\d+)\b(?! (?:tokens|output))",
    r"length is (\d+) while",
    r"context limit: (\d+) \+",
    r"keep the first (\d+)",
    r"n_keep[:= ]+(\d+)",
)
_ANSWER = _patterns(
    r"(\d+)(?: tokens)? (?:in the completion|in the output|for the completion|output tokens|`max_new_tokens`)",
    r"context limit: \d+ \+ (\d+)",
    r"max_(?:completion_)?tokens'? is too large: (\d+)",
)
_TOKENS_MAX = 10**10


class Stated(msgspec.Struct, frozen=True):
    """The token counts that a server states: the limit of a request (without the answer), and the size of this one."""

    window_tokens: int | None = None
    request_tokens: int | None = None


def is_told(text: str) -> bool:
    """Return whether the text says that a request is too long."""
    return _TOLD.search(text) is not None


def stated(text: str, body: Any = None) -> Stated:
    """Return the numbers in the text or the body of an error; None for one that is missing or implausible."""
    fields = body if isinstance(body, dict) else {}
    text = _COMMA.sub("", text)
    window = _field(fields, "n_ctx") or _number(_WINDOW, text)
    answer = _number(_ANSWER, text) or 0
    request = _field(fields, "n_prompt_tokens") or _number(_REQUEST, text)
    total = _number(_TOTAL, text)
    if request is None and total is not None:
        request = total - answer if total > answer else None
    if window is not None and answer < window and "maximum input length" not in text:
        window -= answer
    if window is None or (request is not None and request <= window):
        request = (
            request if window is None else None
        )  # it would have fitted, so one of them is something else
    return Stated(window, request)


def _number(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    found = next((match for each in patterns if (match := each.search(text))), None)
    return _sensible(int(found[1][:20])) if found is not None else None


def _field(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return _sensible(value) if isinstance(value, int) else None


def _sensible(tokens: int) -> int | None:
    return tokens if 0 < tokens <= _TOKENS_MAX else None
