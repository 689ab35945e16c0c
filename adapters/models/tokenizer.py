"""Token counts by tiktoken, if it is installed and the model's encoding is already on this disk.

tiktoken downloads an encoding if its cache lacks it or holds a different file. So the cache is checked first, and an
encoding that is missing or incomplete is not used.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...projections.tokens import TokenSource

_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
# SHA-256 of each encoding's file, as tiktoken checks it.
ENCODINGS = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}


class TiktokenCounter:
    """Counts like OpenAI (`foldlog.runtime.ports.tokens.TokenCounter`); special tokens count as plain text."""

    source: TokenSource = "tiktoken"

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        return len(self._encoding.encode_ordinary(text))


@lru_cache(maxsize=64)
def tiktoken_counter(model: str) -> TiktokenCounter | None:
    """Return the counter for a model name; None without tiktoken, for an unknown model, or without its encoding."""
    try:
        tiktoken = importlib.import_module("tiktoken")
        name = str(tiktoken.encoding_name_for_model(model))
    except (ImportError, KeyError):
        return None
    return TiktokenCounter(tiktoken.get_encoding(name)) if _is_on_disk(name) else None


def _is_on_disk(encoding: str) -> bool:
    chosen = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    cache = Path(chosen) if chosen else Path(tempfile.gettempdir()) / "data-gym-cache"
    name = hashlib.sha1(_URL.format(encoding).encode(), usedforsecurity=False).hexdigest()
    try:
        data = (cache / name).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == ENCODINGS.get(encoding)
