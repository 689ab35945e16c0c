"""Vendors before their first call: what is installed, what is set, and what an import costs."""

import subprocess
import sys
from importlib.metadata import entry_points, metadata

import pytest
from foldlog import Registry
from foldlog.adapters.models.vendors import VendorProvider
from foldlog.adapters.models.vendors.vendors import VENDORS
from foldlog.eventlog.errors import ConfigError


def test_every_vendor_is_found_by_its_name_and_has_an_extra_of_it():
    providers = {entry.name for entry in entry_points(group="foldlog.providers")}
    extras = set(metadata("foldlog").get_all("Provides-Extra") or ())
    assert VENDORS.keys() <= providers
    assert VENDORS.keys() | {"models"} <= extras
    for name in VENDORS:
        provider, model = Registry().provider(f"{name}:some-model")
        assert isinstance(provider, VendorProvider)
        assert (provider.name, model) == (name, "some-model")


@pytest.mark.parametrize("name", VENDORS)
def test_a_missing_extra_is_one_message_that_names_it(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, VENDORS[name].sdk, None)  # as if it were not installed
    with pytest.raises(ConfigError) as caught:
        VendorProvider(name).check("m")
    assert str(caught.value) == (
        f"{name}:m cannot be called: it needs an extra: pip install 'foldlog[{name}]' (or 'foldlog[models]')"
    )


def test_a_missing_variable_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch):
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"google:m cannot be called: .*GOOGLE_API_KEY"):
        VendorProvider("google").check("m")
    with pytest.raises(ConfigError, match=r"azure:m cannot be called: .*AZURE_OPENAI_ENDPOINT"):
        VendorProvider("azure").check("m")
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    VendorProvider("google").check("m")


def test_a_model_on_this_machine_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    VendorProvider("ollama").check("llama")


def test_prices_are_looked_up_by_the_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    assert Registry().window_tokens("anthropic:claude-sonnet-4-5") is not None
    elsewhere = Registry(providers={"house": VendorProvider("anthropic", base_url="http://127.0.0.1:1")})
    assert elsewhere.window_tokens("house:claude-sonnet-4-5") is None


def test_who_calls_no_vendor_imports_neither_the_library_nor_an_sdk():
    script = (
        "import sys; from foldlog import Registry; import foldlog.runtime\n"
        "Registry().provider('anthropic:claude')\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "foldlog.adapters.models.vendors.provider" in loaded
    assert {"pydantic_ai", "anthropic", "google.genai", "openai", "agents"}.isdisjoint(loaded)
