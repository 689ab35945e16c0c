"""Assemble tool calls from pieces: numbered from 0 as they appear, each with an id from its first piece on."""

from __future__ import annotations

import hashlib

import msgspec

from ....runtime.ports.models import CallDelta


class _Call(msgspec.Struct):
    number: int
    server_id: str
    named: bool = False
    any_arguments: bool = False


class CallAssembly:
    """The calls of one answer. `seed` is used for the id of a call that gets none from the server."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._open: dict[int | str | None, _Call] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of calls that have begun."""
        return self._count

    def __contains__(self, key: object) -> bool:
        """Return whether the call with the server's `key` has begun."""
        return key in self._open

    def piece(
        self, key: int | str | None, *, call_id: str = "", name: str = "", arguments: str = ""
    ) -> CallDelta:
        """Return the next piece of the call with the server's `key`.

        Some servers give every call the same key, or none: then another id, or without a key another name, begins a new
        call.
        """
        call = self._open.get(key)
        first = call is None or _is_another(call, key, call_id, name)
        if call is None or first:
            call = self._open[key] = _Call(self._count, call_id)
            self._count += 1
        shown_name = "" if call.named else name
        call.named = call.named or bool(name)
        call.any_arguments = call.any_arguments or bool(arguments)
        shown_id = (call_id or self._made_up_id(call.number)) if first else ""
        return CallDelta(index=call.number, id=shown_id, name=shown_name, arguments=arguments)

    def number(self, key: int | str | None) -> int | None:
        """The number of the call that the server knows by `key`; None if it has not begun."""
        call = self._open.get(key)
        return None if call is None else call.number

    def has_arguments(self, key: int | str | None) -> bool:
        """Return whether any arguments of this call have arrived."""
        call = self._open.get(key)
        return call is not None and call.any_arguments

    def _made_up_id(self, number: int) -> str:
        return f"call_{hashlib.sha256(f'{self._seed}/{number}'.encode()).hexdigest()[:24]}"


def _is_another(call: _Call, key: int | str | None, call_id: str, name: str) -> bool:
    if call_id and call.server_id:
        return call_id != call.server_id
    return key is None and bool(name) and call.named
