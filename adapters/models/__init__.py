"""Model providers: OpenAI's HTTP APIs, servers from the project's configuration, and scripts for tests.

Also the price book, the token counter and the errors of model calls.
"""

import typing

from ...eventlog.lazy_names import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from .configured import load_providers
    from .endpoint import Api, HttpOptions
    from .openai import OpenAIProvider, responses_provider
    from .prices import ModelPrices
    from .scripted import ScriptedProvider

__all__ = [
    "Api",
    "HttpOptions",
    "ModelPrices",
    "OpenAIProvider",
    "ScriptedProvider",
    "load_providers",
    "responses_provider",
]

# Scripts and price books are usable without the SDKs of providers.
_LOADED_LATER = {
    "Api": "endpoint",
    "HttpOptions": "endpoint",
    "ModelPrices": "prices",
    "OpenAIProvider": "openai",
    "ScriptedProvider": "scripted",
    "load_providers": "configured",
    "responses_provider": "openai",
}

if not typing.TYPE_CHECKING:  # for a checker, a name that is not imported above does not exist
    __getattr__ = _lazy_names(__name__, _LOADED_LATER)
