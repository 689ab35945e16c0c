"""`VendorProvider`: one request of pydantic-ai's model class per model request, without its retries or the SDK's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import anyio.to_thread
import msgspec

from ....eventlog.errors import ConfigError
from ....eventlog.parts import FilePart, files_of
from ....runtime.ports.media_types import is_text
from ....runtime.ports.models import (
    HEARD,
    AuthenticationFailed,
    Delta,
    InvalidRequest,
    ModelError,
    ModelRequest,
    NativeTool,
)
from ....runtime.ports.settings import ModelSettings
from .. import prices
from ..endpoint import Endpoint, HttpOptions, filled
from ..failures import Callee
from ..uploads import Files, Uploads
from . import answers, files, requests
from .answers import AnswerReader
from .connection import OPENED, Connection
from .errors import failed_upload, translated
from .vendors import VENDORS, ModelOf


class _Link(msgspec.Struct, frozen=True):
    """A vendor's SDK on one event loop."""

    connection: Connection
    model: ModelOf
    uploads: Uploads


class VendorProvider:
    """Calls a vendor's models (`foldlog.runtime.ports.models.ModelProvider`).

    `vendor` is the part of a model's name before the colon. `base_url` None is the vendor's own address, or that of its
    SDK's environment variable; `api_key_env` None is the variable that its SDK reads. One client is kept per event
    loop, until `aclose`.
    """

    def __init__(
        self,
        vendor: str,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        self.vendor = VENDORS[vendor]
        self.name = vendor
        self._base_url, self._api_key_env = base_url, api_key_env
        self.options = options or HttpOptions()
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, _Link] = WeakKeyDictionary()

    @property
    def endpoint(self) -> Endpoint:
        """Return the address and the key from the current environment."""
        return Endpoint(
            base_url=self._base_url or self.vendor.address,
            api_key_env=self._api_key_env or self.vendor.key_env,
            options=self.options,
        )

    @property
    def api_url(self) -> str | None:
        """Return the vendor's address, by which prices are looked up."""
        return self.endpoint.base_url or None

    def check(self, model: str) -> None:
        """Raise `ConfigError` if the extra is not installed, or the key or address is not set or not usable."""
        try:
            self.vendor.check()
            endpoint = self.endpoint
            if endpoint.base_url:
                endpoint.check()
            endpoint.key()
            endpoint.headers()
        except ConfigError as error:
            raise ConfigError(f"{self.name}:{model} cannot be called: {error}") from None

    def refuses(self, model: str, media_type: str) -> bool:
        """Return whether the vendor is known not to take such files for the model."""
        return files.refuses(self.name, model, media_type)

    def file_problem(self, model: str, file: FilePart, data: bytes | None) -> str | None:
        """Return why a single file is known to be too large for the model; None if it is not."""
        return files.problem(self.name, model, file, data)

    def files_problem(
        self, model: str, messages: Sequence[Sequence[FilePart]], data: Mapping[str, bytes]
    ) -> str | None:
        """Return why the files of a request, by message, are known to be too many for the model; None if not."""
        return files.together_problem(self.name, model, messages, data)

    def file_tokens(self, model: str, file: FilePart, data: bytes | None) -> int | None:
        """Return the tokens of a file by the published rule for the model; None if there is none."""
        return files.tokens(self.name, model, file, data)

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        """Return why the vendor cannot offer a native tool to the model; None if it can."""
        return self.vendor.native_tool_problem(model, tool, tools=tools)

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        """Return the given settings that the vendor does not know, each with the reason."""
        return self.vendor.unknown_settings(settings)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Yield the answer in pieces, then `Finished`. Raises `ModelError`, which names the model, never the key."""
        callee = self._callee(request)
        reader, parts, opened = AnswerReader(request, callee), list[Any](), list[Any]()
        OPENED.set(opened)
        try:
            async with aclosing(self._receive(request, callee, reader, parts)) as deltas:
                async for delta in deltas:
                    yield delta
        except ModelError:
            raise
        except Exception as error:
            failure = translated(callee, error, begun=bool(parts))
            if failure is None:
                raise
            # Data after the end of the answer is not worth another call.
            if not parts or parts[-1].finish_reason is None:
                raise failure from None
        finally:
            for each in opened:
                await each.aclose()
        whole = answers.joined([part.get() for part in parts])
        finished = reader.finished(whole)
        for delta in answers.made(whole):
            yield delta
        yield finished

    async def _receive(
        self, request: ModelRequest, callee: Callee, reader: AnswerReader, parts: list[Any]
    ) -> AsyncGenerator[Delta, None]:
        """Yield the pieces of the answer; append its responses to `parts`. The vendor paused all but the last one."""
        heard = HEARD.get()
        model = (await self._link()).model(request.model)
        history, settings, parameters = self._request(
            request, model, await self._files(request, model, callee)
        )
        while not parts or reader.goes_on(parts):
            asked = model.prepare_messages([*history, *(part.get() for part in parts)], parameters)
            async with model.request_stream(asked, settings, parameters) as response:
                parts.append(answers.with_calls_apart(answers.with_last_usage(response)))
                async for event in response:
                    heard()
                    for delta in reader.feed(event):
                        yield delta

    async def aclose(self) -> None:
        """Close this event loop's client. Safe to repeat; a later call opens a new one."""
        link = self._links.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.connection.aclose()

    def _callee(self, request: ModelRequest) -> Callee:
        asked = request.settings.headers or {}
        try:
            self.check(request.model)
            secrets = self.endpoint.secrets(asked)
        except ConfigError as error:
            raise AuthenticationFailed(str(error)) from None
        url = self.endpoint.base_url or self.name
        return Callee(f"{self.name}:{request.model}", url, self.options.idle_timeout_s, secrets)

    def _request(self, request: ModelRequest, model: Any, given: Files) -> tuple[Any, Any, Any]:
        parameters = requests.parameters(request, model.profile)
        settings = requests.settings(request, self.options, self.vendor)
        if headers := self.endpoint.headers() | filled(request.settings.headers or {}):
            settings["extra_headers"] = headers
        history = requests.history(request, model.system, given, self.vendor)
        return history, settings, parameters

    async def _files(self, request: ModelRequest, model: Any, callee: Callee) -> Files:
        """Return the files of the request, after uploading those that exceed its limit."""

        async def upload(file: FilePart, data: bytes) -> str:
            try:
                return await self.vendor.uploaded(model, file, data)
            except ModelError:
                raise
            except Exception as error:  # noqa: BLE001 - of the SDK, without the library around it
                raise failed_upload(callee, file, error) from None

        given = {file.artifact: file for message in request.messages for file in files_of(message.parts)}
        held = await request.file_bytes() if any(given) else {}
        for artifact, file in given.items():
            why = self.file_problem(request.model, file, held.get(artifact or ""))
            if why is not None:
                raise InvalidRequest(callee.says(f"the model does not take {file}: {why}"))
        turns = [
            [file for message in turn for file in files_of(message.parts)]
            for _, turn in groupby(request.messages, key=lambda message: message.role == "assistant")
        ]
        if why := self.files_problem(request.model, turns, held):
            raise InvalidRequest(callee.says(f"the model does not take so many files: {why}"))
        return await (await self._link()).uploads.files(
            request,
            self.options.inline_bytes_max or self.vendor.inline_bytes_max,
            upload,
            lambda file: self.vendor.upload is not None and not is_text(file.media_type),
        )

    async def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            await anyio.to_thread.run_sync(self._load, abandon_on_cancel=True)
        if loop not in self._links:  # another task may have been faster
            connection = Connection(self.endpoint)
            self._links[loop] = _Link(connection, self.vendor.connect(connection), Uploads())
        return self._links[loop]

    def _load(self) -> None:
        """Import the library in a thread, so that it does not block the event loop."""
        self.vendor.load()
        prices.load_data()
