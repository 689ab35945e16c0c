"""The suite for `Artifacts`."""

from __future__ import annotations

import hashlib

import pytest

from ..ports import Log
from .suite import Suite, new_name

_LARGE_BYTES = 3 * 1024 * 1024


class ArtifactsSuite(Suite):
    """Subclass it and override `log` and `reopened`."""

    def content(self, size_bytes: int = 0) -> bytes:
        """Return bytes that no other test stores."""
        return new_name("content").encode() + b"\x00\xff" + bytes(range(256)) * (size_bytes // 256)

    @pytest.mark.parametrize("size_bytes", [0, 40_000, 1_100_000, _LARGE_BYTES])
    async def test_bytes_of_any_size_are_found_under_the_sha_256_of_their_content(
        self, log: Log, size_bytes: int
    ) -> None:
        data = self.content(size_bytes)
        digest = await log.artifacts.put(data)
        assert digest == hashlib.sha256(data).hexdigest()
        assert await log.artifacts.get(digest) == data

    async def test_no_bytes_are_bytes_too(self, log: Log) -> None:
        digest = await log.artifacts.put(b"")
        assert digest == hashlib.sha256(b"").hexdigest()
        assert await log.artifacts.get(digest) == b""

    async def test_storing_the_same_bytes_again_changes_nothing(self, log: Log) -> None:
        data, other = self.content(), self.content()
        digests = [await log.artifacts.put(content) for content in (data, other, data)]
        assert digests[0] == digests[2] != digests[1]
        assert [await log.artifacts.get(digest) for digest in digests] == [data, other, data]

    async def test_an_unknown_digest_is_a_key_error(self, log: Log) -> None:
        with pytest.raises(KeyError):
            await log.artifacts.get(hashlib.sha256(self.content()).hexdigest())

    async def test_artifacts_survive_as_declared(self, log: Log) -> None:
        data = self.content()
        digest = await log.artifacts.put(data)
        assert await log.artifacts.get(digest) == data
        async with self.reopened(log) as again:
            if self.durable:
                assert await again.artifacts.get(digest) == data
            else:
                with pytest.raises(KeyError):
                    await again.artifacts.get(digest)
