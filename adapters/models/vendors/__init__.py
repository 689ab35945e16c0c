"""Models of other vendors, through the model classes of pydantic-ai-slim (extra `foldlog[models]`).

    anthropic:claude-...   google:gemini-...   bedrock:...   mistral:...   groq:...   cohere:...
    xai:...   openrouter:...   azure:...   huggingface:...   ollama:...

Each has an extra of its own (`foldlog[anthropic]`). Neither the library nor an SDK is imported before the first call,
so a process that never uses a vendor pays nothing for it.
"""

from functools import partial

from .provider import VendorProvider

anthropic = partial(VendorProvider, "anthropic")
azure = partial(VendorProvider, "azure")
bedrock = partial(VendorProvider, "bedrock")
cohere = partial(VendorProvider, "cohere")
google = partial(VendorProvider, "google")
groq = partial(VendorProvider, "groq")
huggingface = partial(VendorProvider, "huggingface")
mistral = partial(VendorProvider, "mistral")
ollama = partial(VendorProvider, "ollama")
openrouter = partial(VendorProvider, "openrouter")
xai = partial(VendorProvider, "xai")

__all__ = [
    "VendorProvider",
    "anthropic",
    "azure",
    "bedrock",
    "cohere",
    "google",
    "groq",
    "huggingface",
    "mistral",
    "ollama",
    "openrouter",
    "xai",
]
