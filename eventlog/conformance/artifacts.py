"""The suite for `Artifacts` (W52)."""

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
        root = new_name("run")
        data = self.content(size_bytes)
        digest = await log.artifacts.of(root).put(data)
        assert digest == hashlib.sha256(data).hexdigest()
        assert await log.artifacts.of(root).get(digest) == data

    async def test_no_bytes_are_bytes_too(self, log: Log) -> None:
        root = new_name("run")
        digest = await log.artifacts.of(root).put(b"")
        assert digest == hashlib.sha256(b"").hexdigest()
        assert await log.artifacts.of(root).get(digest) == b""

    async def test_storing_the_same_bytes_again_changes_nothing(self, log: Log) -> None:
        root = new_name("run")
        data, other = self.content(), self.content()
        digests = [await log.artifacts.of(root).put(content) for content in (data, other, data)]
        assert digests[0] == digests[2] != digests[1]
        assert [await log.artifacts.of(root).get(digest) for digest in digests] == [data, other, data]

    async def test_an_unknown_digest_is_a_key_error(self, log: Log) -> None:
        root = new_name("run")
        with pytest.raises(KeyError):
            await log.artifacts.of(root).get(hashlib.sha256(self.content()).hexdigest())

    async def test_artifacts_survive_as_declared(self, log: Log) -> None:
        root = new_name("run")
        data = self.content()
        digest = await log.artifacts.of(root).put(data)
        assert await log.artifacts.of(root).get(digest) == data
        async with self.reopened(log) as again:
            if self.durable:
                assert await again.artifacts.of(root).get(digest) == data
            else:
                with pytest.raises(KeyError):
                    await again.artifacts.of(root).get(digest)

    async def test_families_share_no_artifact_and_each_goes_alone(self, log: Log) -> None:
        root, other, data = new_name("run"), new_name("run"), self.content(1_100_000)
        digest = await log.artifacts.of(root).put(data)
        with pytest.raises(KeyError):
            await log.artifacts.of(other).get(digest)
        assert await log.artifacts.find(digest) == data
        await log.artifacts.of(other).put(data)
        await log.artifacts.purge(root)
        await log.artifacts.purge(root)
        assert await log.artifacts.of(other).get(digest) == data
        with pytest.raises(KeyError):
            await log.artifacts.of(root).get(digest)
        await log.artifacts.purge(other)
        with pytest.raises(KeyError):
            await log.artifacts.find(digest)
        assert await log.artifacts.of(root).put(data) == digest
        assert await log.artifacts.of(root).get(digest) == data
