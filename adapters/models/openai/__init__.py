"""Models with OpenAI's HTTP API: OpenAI itself, and every compatible server.

    OpenAIProvider()                                           # chat completions, OPENAI_API_KEY, OPENAI_BASE_URL
    OpenAIProvider(name="groq", base_url="https://...", api_key_env="GROQ_API_KEY")
    responses_provider()                                       # the same account through the Responses API

The official SDK is imported with the first call, so that importing this package is cheap.
"""

from ..endpoint import Api, HttpOptions
from .provider import OpenAIProvider, responses_provider

__all__ = ["Api", "HttpOptions", "OpenAIProvider", "responses_provider"]
