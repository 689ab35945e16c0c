"""Counting by tiktoken where its encoding is on disk, and by an estimate everywhere else."""

import hashlib
import sys
import types
from pathlib import Path

import pytest
from foldlog.adapters.models import tokenizer
from foldlog.runtime import Registry
from foldlog.runtime.ports.tokens import Estimate


@pytest.fixture
def fake_tiktoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A tiktoken that would go to the network for an encoding that is not in its cache."""

    class Encoding:
        def encode_ordinary(self, text: str) -> list[str]:
            return text.split()

    module = types.ModuleType("tiktoken")
    module.__dict__["encoding_name_for_model"] = {"gpt-4o": "o200k_base", "old": "p50k_base"}.__getitem__
    module.__dict__["get_encoding"] = lambda _: Encoding()
    monkeypatch.setitem(sys.modules, "tiktoken", module)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(tokenizer.ENCODINGS, "o200k_base", hashlib.sha256(b"the encoding").hexdigest())
    tokenizer.tiktoken_counter.cache_clear()
    return module


def cached_file(directory: Path) -> Path:
    url = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    return directory / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.usefixtures("fake_tiktoken")
def test_tiktoken_counts_when_its_encoding_is_on_disk_whole(tmp_path: Path):
    cached_file(tmp_path).write_bytes(b"the encoding")
    counter = Registry().token_counter("openai:gpt-4o")
    assert (counter.source, counter.count("one two three")) == ("tiktoken", 3)


@pytest.mark.usefixtures("fake_tiktoken")
@pytest.mark.parametrize("content", [None, b"half the enc"])
def test_an_encoding_that_tiktoken_would_have_to_fetch_is_not_used(tmp_path: Path, content: bytes | None):
    if content is not None:
        cached_file(tmp_path).write_bytes(content)
    assert isinstance(Registry().token_counter("openai:gpt-4o"), Estimate)


@pytest.mark.usefixtures("fake_tiktoken")
@pytest.mark.parametrize("model", ["old", "unknown"])
def test_a_model_without_a_known_encoding_is_estimated(model: str):
    assert isinstance(Registry().token_counter(f"openai:{model}"), Estimate)


def test_without_tiktoken_tokens_are_estimated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    tokenizer.tiktoken_counter.cache_clear()
    counter = Registry().token_counter("openai:gpt-4o")
    assert (counter.source, counter.count("abcdefgh")) == ("estimate", 2)
