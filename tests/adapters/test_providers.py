"""Named providers from a project's configuration."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest
from foldlog.adapters.models import load_providers
from foldlog.eventlog.errors import ConfigError
from foldlog.projections.messages import Message
from foldlog.runtime.ports.models import Finished, ModelRequest, TextDelta

from ..fakes.openai_server import Reply, serve

CEREBRAS = '[providers.cerebras]\nbase_url = "https://api.cerebras.ai/v1"\napi_key_env = "CEREBRAS_API_KEY"\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project directory, and a working directory below it."""
    monkeypatch.delenv("FOLDLOG_CONFIG", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / ".foldlog").mkdir()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def refusal(project: Path, text: str) -> str:
    (project / "foldlog.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_providers()
    return str(caught.value)


def test_a_project_without_configuration_has_no_named_providers():
    assert load_providers() == {}


def test_a_pyproject_that_says_nothing_of_foldlog_has_no_named_providers(project: Path):
    (project / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert load_providers() == {}


async def test_a_named_provider_calls_its_server_with_all_that_its_table_says(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOUSE_KEY", "key-1")
    async with serve(Reply(text=("hi",))) as server:
        (project / "foldlog.toml").write_text(
            f"""
            [providers.house]
            base_url = "{server.url}"
            api_key_env = "HOUSE_KEY"
            api = "responses"
            headers = {{ X-Team = "blue" }}
            extra_body = {{ reasoning = {{ summary = "auto" }} }}
            idle_timeout_s = 5
            """
        )
        house = load_providers()["house"]
        house.check("m")
        request = ModelRequest(model="m", messages=(Message(role="user", content="Hi"),))
        deltas = [delta async for delta in house.stream(request)]
        await house.aclose()
    (sent,) = server.requests
    assert deltas[0] == TextDelta("hi")
    assert isinstance(deltas[-1], Finished)
    assert sent.path == "/v1/responses"
    assert sent.body["reasoning"] == {"summary": "auto"}
    assert (sent.headers["authorization"], sent.headers["x-team"]) == ("Bearer key-1", "blue")
    assert house.endpoint.options.idle_timeout_s == 5.0


def test_the_files_are_looked_for_in_this_order(project: Path, monkeypatch: pytest.MonkeyPatch):
    (project / "pyproject.toml").write_text(CEREBRAS.replace("providers", "tool.foldlog.providers"))
    assert set(load_providers()) == {"cerebras"}
    (project / "foldlog.toml").write_text(CEREBRAS.replace("cerebras]", "second]"))
    assert set(load_providers()) == {"second"}
    (project / "elsewhere.toml").write_text(CEREBRAS.replace("cerebras]", "third]"))
    monkeypatch.setenv("FOLDLOG_CONFIG", str(project / "elsewhere.toml"))
    assert set(load_providers()) == {"third"}


def test_a_configuration_that_is_named_but_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOLDLOG_CONFIG", "none.toml")
    with pytest.raises(ConfigError, match=r"FOLDLOG_CONFIG is set to none\.toml"):
        load_providers()


def test_a_missing_key_is_told_with_provider_model_and_variable(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CEREBRAS_API_KEY", raising=False)
    (project / "foldlog.toml").write_text(CEREBRAS)
    with pytest.raises(ConfigError, match=r"cerebras:llama cannot be called: .*CEREBRAS_API_KEY"):
        load_providers()["cerebras"].check("llama")


def test_a_header_that_needs_a_variable_which_is_not_set_is_told_with_its_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CEREBRAS_API_KEY", "k")
    monkeypatch.delenv("TEAM", raising=False)
    (project / "foldlog.toml").write_text(CEREBRAS + 'headers = { X-Team = "${TEAM}" }\n')
    with pytest.raises(ConfigError, match="TEAM"):
        load_providers()["cerebras"].check("llama")


def test_openais_key_never_goes_to_another_server_unless_the_table_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    (project / "foldlog.toml").write_text(
        """
        [providers.other]
        base_url = "https://models.example.com/v1"
        [providers.gateway]
        base_url = "https://gateway.example.com/v1"
        api_key_env = "OPENAI_API_KEY"
        [providers.mine]
        api = "responses"
        """
    )
    found = load_providers()
    assert {name: "sk-mine" in provider.endpoint.secrets() for name, provider in found.items()} == {
        "other": False,
        "gateway": True,
        "mine": True,
    }
    for name, provider in found.items():
        provider.check("m")
        assert provider.name == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CEREBRAS + "base_ur = 'x'", "[providers.cerebras]: unknown key 'base_ur'; did you mean 'base_url'?"),
        (CEREBRAS + "api = 'chatty'", "[providers.cerebras]: api: Input should be 'chat' or 'responses'"),
        (
            CEREBRAS + "idle_timeout_s = '5'",
            "[providers.cerebras]: idle_timeout_s: Input should be a valid number",
        ),
        (
            CEREBRAS + "idle_timeout_s = 0",
            "[providers.cerebras]: idle_timeout_s: Input should be greater than 0",
        ),
        (CEREBRAS + "headers = { a = 1 }", "[providers.cerebras]: headers.a: Input should be a valid string"),
        ("[providers.x]\nbase_url = 'localhost:8000'", "[providers.x]: base_url: String should match"),
        ("[providers.'a:b']", "[providers.a:b]: a provider's name has letters"),
        ("[providers.openai]", "[providers.openai]: 'openai' is the name of an installed provider"),
        ("[providers.scripted]", "[providers.scripted]: 'scripted' is the name of an installed provider"),
        ("providers = 5", "providers must be a table"),
        ("[providers]\ncerebras = 5", "[providers.cerebras]: Input should be"),
        ("[providers\n", "cannot be read: Expected"),
    ],
)
def test_a_mistake_is_told_with_file_table_and_key(project: Path, text: str, told: str):
    message = refusal(project, text)
    assert message.startswith(str(project / "foldlog.toml"))
    assert told in message


def test_the_runtime_finds_the_configured_providers_by_their_entry_point():
    (found,) = entry_points(group="foldlog.provider_configs")
    assert found.load() is load_providers
