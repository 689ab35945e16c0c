"""The suite for `KeyWrapper`, the port to a key management service (W58)."""

from __future__ import annotations

import os

import pytest

from ..errors import KeyMissing
from ..sealing.cipher import KEY_BYTES
from ..sealing.wrapping import KeyWrapper


class KeyWrapperSuite:
    """Subclass it and override `wrapper`, `rotated` and `other`."""

    @pytest.fixture
    def wrapper(self) -> KeyWrapper:
        """Return the wrapper under test."""
        raise NotImplementedError("override the fixture `wrapper`")

    def rotated(self, wrapper: KeyWrapper) -> KeyWrapper:
        """Return the wrapper after its key was rotated: a new one wraps, and the old one still unwraps."""
        raise NotImplementedError("override `rotated`")

    def other(self) -> KeyWrapper:
        """Return a wrapper that has none of the keys of the one under test."""
        raise NotImplementedError("override `other`")

    async def test_a_wrapped_key_comes_back_and_is_not_in_what_is_stored(self, wrapper: KeyWrapper) -> None:
        key = os.urandom(KEY_BYTES)
        wrapped = await wrapper.wrap(key, "user:ada")
        assert key not in wrapped
        assert await wrapper.unwrap(wrapped, "user:ada", wrapper.name) == key

    async def test_a_key_is_unwrapped_only_for_its_owner(self, wrapper: KeyWrapper) -> None:
        wrapped = await wrapper.wrap(os.urandom(KEY_BYTES), "user:ada")
        with pytest.raises(KeyMissing):
            await wrapper.unwrap(wrapped, "user:bob", wrapper.name)

    async def test_altered_bytes_are_no_key(self, wrapper: KeyWrapper) -> None:
        wrapped = await wrapper.wrap(os.urandom(KEY_BYTES), "user:ada")
        for altered in (b"", wrapped[:-1], bytes((*wrapped[:-1], wrapped[-1] ^ 1))):
            with pytest.raises(KeyMissing):
                await wrapper.unwrap(altered, "user:ada", wrapper.name)

    async def test_after_a_rotation_old_keys_come_back_and_new_ones_have_another_name(
        self, wrapper: KeyWrapper
    ) -> None:
        key, before = os.urandom(KEY_BYTES), wrapper.name
        wrapped = await wrapper.wrap(key, "user:ada")
        after = self.rotated(wrapper)
        assert after.name != before
        assert await after.unwrap(wrapped, "user:ada", before) == key
        again = await after.wrap(key, "user:ada")
        assert await after.unwrap(again, "user:ada", after.name) == key

    async def test_a_wrapper_without_the_key_says_so(self, wrapper: KeyWrapper) -> None:
        wrapped = await wrapper.wrap(os.urandom(KEY_BYTES), "user:ada")
        other = self.other()
        for name in (wrapper.name, other.name):
            with pytest.raises(KeyMissing):
                await other.unwrap(wrapped, "user:ada", name)
