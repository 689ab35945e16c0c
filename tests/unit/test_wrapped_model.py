"""A provider in front of another one can and lacks what the other does."""

import copy
from collections.abc import AsyncIterator

import pytest
from foldlog.runtime.ports.models import Delta, Finished, ModelRequest, WrappedModel


class _Inner:
    lacks = ("tools",)
    api_url = "https://models.example"

    def check(self, model: str) -> None:
        """Accept any model."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield Finished(reason="stop")

    async def aclose(self) -> None:
        """Nothing is held open."""

    def refuses(self, model: str, media_type: str) -> bool:
        return media_type == "image/tiff"


def test_a_wrapped_provider_has_the_optional_attributes_of_the_one_behind() -> None:
    wrapped = WrappedModel(_Inner())
    assert wrapped.lacks == ("tools",)
    assert wrapped.api_url == "https://models.example"
    assert wrapped.refuses("any", "image/tiff")


def test_a_wrapped_provider_has_no_attribute_that_the_one_behind_has_not() -> None:
    assert getattr(WrappedModel(_Inner()), "file_tokens", None) is None


def test_a_wrapped_provider_can_be_copied() -> None:
    with pytest.raises(AttributeError, match="_inner"):
        _ = WrappedModel.__new__(WrappedModel)._inner
    assert copy.copy(WrappedModel(_Inner())).lacks == ("tools",)
