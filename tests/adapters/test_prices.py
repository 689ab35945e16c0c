"""Prices of calls and context windows of models: the project's own prices first, then the installed data."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from foldlog.adapters.configuration.project_file import project_tables
from foldlog.adapters.models import ModelPrices, load_providers
from foldlog.eventlog import TokenUsage
from foldlog.eventlog.errors import ConfigError
from foldlog.eventlog.events import Usage
from foldlog.runtime import Agent, Registry, Runtime
from foldlog.runtime.ports.models import Delta, Finished, ModelRequest, TextDelta

from ..fakes.openai_server import Reply, serve

OPENAI = "https://api.openai.com/v1"
TOKENS = TokenUsage(input_tokens=2_000, output_tokens=100, total_tokens=2_100, cached_input_tokens=1_000)
PRICES = '[prices."house:m"]\ninput_usd = 0.1\noutput_usd = 2\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FOLDLOG_CONFIG", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / ".foldlog").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(project: Path, text: str) -> str:
    (project / "foldlog.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        ModelPrices()
    return str(caught.value)


def test_a_model_of_the_data_has_a_price_in_which_cached_input_is_cheaper_and_a_window():
    prices = ModelPrices()
    cached = prices.price("openai:gpt-4o", TOKENS, OPENAI)
    fresh = prices.price("openai:gpt-4o", TokenUsage(input_tokens=2_000, output_tokens=100), OPENAI)
    assert cached is not None
    assert fresh is not None
    assert 0 < cached < fresh
    assert prices.window_tokens("openai:gpt-4o", OPENAI) == 128_000


def test_the_data_prices_what_goes_into_a_cache_for_minutes_and_for_an_hour():
    tokens = TokenUsage(
        input_tokens=1_000, output_tokens=70, cached_input_tokens=400, cache_writes=300, cache_writes_1h=100
    )
    price = ModelPrices().price("anthropic:claude-sonnet-4-5", tokens, "https://api.anthropic.com")
    by_hand = 300 * 3 + 400 * Decimal("0.3") + 200 * Decimal("3.75") + 100 * 6 + 70 * 15
    assert price == by_hand / 1_000_000
    fresh = 600 * Decimal("1.25") + 400 * Decimal("0.125") + 70 * 10  # OpenAI charges nothing for writes
    gpt = TokenUsage(input_tokens=1_000, output_tokens=70, cached_input_tokens=400)
    assert ModelPrices().price("openai:gpt-5", gpt, OPENAI) == fresh / 1_000_000


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (TokenUsage(input_tokens=10, cached_input_tokens=90, cache_writes=90, cache_writes_1h=90), "0.00001"),
        (TokenUsage(input_tokens=10, cache_writes=4, cache_writes_1h=90), "0.000026"),
    ],
)
def test_more_cached_tokens_than_were_read_cost_no_more_than_all(project: Path, usage: TokenUsage, told: str):
    (project / "foldlog.toml").write_text(
        '[prices."house:m"]\ninput_usd = 3\noutput_usd = 1\ncached_input_usd = 1\ncache_write_1h_usd = 2\n'
    )
    assert ModelPrices().price("house:m", usage, None) == Decimal(told)


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8000/v1", "https://llm.example/v1"])
def test_a_server_that_the_data_does_not_know_has_no_price_whatever_its_models_are_called(url: str | None):
    assert ModelPrices().price("openai:gpt-4o", TOKENS, url) is None
    assert ModelPrices().window_tokens("house:gpt-4o", url) is None


def test_a_model_of_openai_has_its_window_behind_a_gateway_too():
    gateway = "https://llm.example/v1"
    for model in ("openai:gpt-4o", "openai-responses:gpt-4o"):
        assert ModelPrices().window_tokens(model, gateway) == 128_000
    assert ModelPrices().window_tokens("openai:our-own", gateway) is None


def test_an_unknown_model_of_a_known_server_has_no_price():
    assert ModelPrices().price("openai:gpt-of-tomorrow", TOKENS, OPENAI) is None


def test_the_price_of_the_project_goes_before_the_data_and_is_exact(project: Path):
    text = '[prices."openai:gpt-4o"]\ninput_usd = 0.1\ncached_input_usd = 0.01\noutput_usd = 2\n'
    (project / "foldlog.toml").write_text(text)
    assert ModelPrices().price("openai:gpt-4o", TOKENS, OPENAI) == Decimal("0.00031")
    (project / "foldlog.toml").write_text(text.replace("cached_input_usd = 0.01\n", ""))
    assert ModelPrices().price("openai:gpt-4o", TOKENS, OPENAI) == Decimal("0.0004")


def test_each_reader_of_the_projects_file_has_tables_of_its_own(project: Path):
    (project / "foldlog.toml").write_text("[limits.a]\nruns = 1")
    project_tables("limits").tables["a"]["runs"] = 2
    assert project_tables("limits").tables == {"a": {"runs": 1}}


def test_the_prices_may_stand_in_the_pyproject(project: Path):
    (project / "pyproject.toml").write_text(PRICES.replace("prices.", "tool.foldlog.prices."))
    assert ModelPrices().price("house:m", TOKENS, None) == Decimal("0.0004")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[prices."gpt-4o"]\ninput_usd = 1\noutput_usd = 1', "[prices.gpt-4o]: prices belong to a model"),
        ('[prices."a:b"]\ninput_usd = 1', "[prices.a:b]: output_usd: Field required"),
        (PRICES + "outputs_usd = 1", "unknown key 'outputs_usd'; did you mean 'output_usd'?"),
        (PRICES.replace("0.1", "-0.1"), "input_usd: Input should be greater than or equal to 0"),
        (PRICES.replace("0.1", "nan"), "input_usd: Input should be a finite number"),
        (PRICES.replace("0.1", "true"), "input_usd: "),
        ("prices = 3", "prices must be a table"),
    ],
)
def test_a_price_that_is_written_wrongly_is_refused_with_its_place(project: Path, text: str, told: str):
    message = refusal(project, text)
    assert message.startswith(str(project / "foldlog.toml"))
    assert told in message


def test_the_registry_asks_by_the_address_that_the_models_provider_calls(monkeypatch: pytest.MonkeyPatch):
    registry = Registry()
    assert registry.price_known("openai:gpt-4o")
    assert registry.price_known("openai-responses:gpt-4o")
    assert registry.window_tokens("openai:gpt-4o") == 128_000
    assert not registry.price_known("scripted:any.json")
    assert registry.window_tokens("scripted:any.json") is None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert not registry.price_known("openai:gpt-4o")


async def usage_of(agent: Agent, registry: Registry | None = None) -> Usage:
    async with Runtime.open("memory://", registry=registry) as rt:
        handle = await rt.start(agent, "hi")
        await handle.result()
        (found,) = [event async for event in handle.stream(detailed=True) if isinstance(event, Usage)]
        (row,) = await rt.list_runs()
        assert row.cost_usd == found.cost_usd
    return found


async def test_a_run_stores_what_each_round_cost(project: Path):
    async with serve(Reply(text=("hello",))) as server:
        table = f'[providers.house]\nbase_url = "{server.url}"\n'
        (project / "foldlog.toml").write_text(table + PRICES)
        assert list(load_providers()) == ["house"]
        found = await usage_of(Agent("a", model="house:m"))
    assert found.usage.input_tokens == 11
    assert found.cost_usd == "0.0000151"


async def test_a_round_whose_usage_the_provider_keeps_to_itself_is_counted_priced_and_says_so(project: Path):
    async with serve(Reply(text=("hello" * 8,), usage=None)) as server:
        table = f'[providers.house]\nbase_url = "{server.url}"\n'
        (project / "foldlog.toml").write_text(table + PRICES)
        found = await usage_of(Agent("a", model="house:m", instructions="x" * 400))
    assert (found.source, found.usage) == (
        "estimate",
        TokenUsage(input_tokens=101, output_tokens=10, total_tokens=111),
    )
    assert found.cost_usd == "0.0000301"


@pytest.mark.parametrize("reported", [True, False])
async def test_what_a_tokenizer_counted_is_an_estimate_to_the_reader_of_a_run(
    reported: bool, monkeypatch: pytest.MonkeyPatch
):
    class Counter:
        source = "tiktoken"

        def count(self, text: str) -> int:
            return len(text)

    class Silent:
        def check(self, model: str) -> None: ...

        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            yield TextDelta("four")
            yield Finished(reason="stop", usage=TOKENS if reported else None, usage_source="tiktoken")

        async def aclose(self) -> None: ...

    monkeypatch.setattr(Registry, "token_counter", lambda *_: Counter())
    found = await usage_of(Agent("a", model="silent:m"), Registry(providers={"silent": Silent()}))
    assert (found.source, found.usage.output_tokens) == ("estimate", 100 if reported else 4)


async def test_a_provider_that_says_what_it_cost_is_believed():
    class Billing:
        def check(self, model: str) -> None: ...

        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            yield TextDelta("x")
            yield Finished(reason="stop", usage=TOKENS, cost_usd="0.5")

        async def aclose(self) -> None: ...

    async with Runtime.open("memory://", registry=Registry(providers={"billing": Billing()})) as rt:
        await rt.run(Agent("a", model="billing:m"), "hi")
        (row,) = await rt.list_runs()
    assert row.cost_usd == "0.5"


@pytest.mark.parametrize("broken", ["prices", "tokens"])
async def test_a_plugin_that_fails_costs_no_answer(
    broken: str, monkeypatch: pytest.MonkeyPatch, project: Path
):
    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Registry, {"prices": "price", "tokens": "token_counter"}[broken], fails)
    async with serve(Reply(text=("hello",), usage=None)) as server:
        (project / "foldlog.toml").write_text(f'[providers.house]\nbase_url = "{server.url}"\n')
        found = await usage_of(Agent("a", model="house:m"))
    assert (found.source, found.usage.total_tokens, found.cost_usd) == ("estimate", 3, None)


async def test_a_round_whose_price_nobody_knows_costs_null(project: Path):
    (project / "s.json").write_text(json.dumps({"turns": [{"text": "hi", "usage": {"input_tokens": 5}}]}))
    assert (await usage_of(Agent("a", model=f"scripted:{project / 's.json'}"))).cost_usd is None


async def test_a_broken_price_list_ends_the_run_before_any_call(project: Path):
    (project / "s.json").write_text(json.dumps({"turns": [{"text": "hi"}]}))
    (project / "foldlog.toml").write_text('[prices."a:b"]\ninput_usd = 1')
    async with Runtime.open("memory://") as rt:
        handle = await rt.start(Agent("a", model=f"scripted:{project / 's.json'}"), "hi")
        with pytest.raises(Exception, match="output_usd: Field required"):
            await handle.result()
        assert "usage" not in {event.type async for event in handle.stream(detailed=True)}
