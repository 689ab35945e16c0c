"""Knowledge in a SQLite file: any text is a query, the order is fixed, and a broken file is told as one."""

import asyncio
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from foldlog.adapters.knowledge import SqliteKnowledge, knowledge_file, pieces_of, store
from foldlog.eventlog.errors import ConfigError
from foldlog.projections.prompt import knowledge_block
from foldlog.runtime import Registry
from foldlog.runtime.ports.knowledge import KnowledgeItem, KnowledgeUnavailable, NoKnowledge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "below" / "knowledge.sqlite3"


def is_there(file: Path) -> bool:
    return file.exists()


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def content(file: Path) -> bytes:
    return file.read_bytes()


def texts(items: object) -> list[str]:
    assert isinstance(items, list | tuple)
    return [item.text for item in items]


async def test_the_best_match_comes_first_and_words_match_in_every_form(file: Path):
    knowledge = SqliteKnowledge(file=file)
    for text in (
        "Deploys happen on Tuesday.",
        "The café serves tea.",
        "Deploy, deploy, then roll back a deploy.",
    ):
        await knowledge.add(text, source="handbook")
    found = await knowledge.search("When do we deploy on a tuesday?", 5)
    assert texts(found) == ["Deploys happen on Tuesday.", "Deploy, deploy, then roll back a deploy."]
    assert found[0].score > found[1].score > 0
    assert found[0].source == "handbook"
    assert texts(await knowledge.search("CAFE", 5)) == ["The café serves tea."]
    assert len(await knowledge.search("deploy", 1)) == 1
    assert await knowledge.search("deploy", 0) == ()
    assert texts(await knowledge.search("lunch", 5)) == []


@pytest.mark.parametrize("query", ["首都", "日本の首都はどこですか", "東京タワー", "capital首都?"])
async def test_scripts_without_spaces_are_found_by_any_part_of_what_they_say(file: Path, query: str):
    knowledge = SqliteKnowledge(file=file)
    for text in ("東京は日本の首都です。", "猫は魚が好きです。", "Oslo is cold."):
        await knowledge.add(text, source="notes")
    assert (await knowledge.search(query, 1))[0].text == "東京は日本の首都です。"
    assert texts(await knowledge.search("猫", 5)) == ["猫は魚が好きです。"]
    assert texts(await knowledge.search("牛肉", 5)) == []
    assert await knowledge.remove(source="notes") == 3
    assert texts(await knowledge.search("首都 cold", 5)) == []


async def test_an_index_of_an_earlier_release_is_rebuilt_with_all_its_pieces(file: Path):
    knowledge = SqliteKnowledge(file=file)
    await knowledge.add("東京は日本の首都です。", source="a")
    await knowledge.add("Deploys happen on Tuesday.", source="b")
    with sqlite3.connect(file) as db:
        db.executescript(
            """
            DROP TRIGGER piece_added; DROP TRIGGER piece_removed;
            CREATE TRIGGER piece_added AFTER INSERT ON pieces BEGIN SELECT 1; END;
            CREATE TRIGGER piece_removed AFTER DELETE ON pieces BEGIN SELECT 1; END;
            INSERT INTO words (words) VALUES ('rebuild');
            PRAGMA user_version = 1;
            """
        )
    db.close()
    assert texts(await knowledge.search("首都", 5)) == ["東京は日本の首都です。"]
    assert texts(await knowledge.search("deploy", 5)) == ["Deploys happen on Tuesday."]
    assert await knowledge.remove(source="a") == 1
    assert texts(await knowledge.search("首都 deploy", 5)) == ["Deploys happen on Tuesday."]


async def test_pieces_that_fit_equally_well_keep_one_order_however_they_were_added(tmp_path: Path):
    same = [f"word {letter}" for letter in "abcdefgh"]
    orders = []
    for name, added in (("one", same), ("two", same[::-1])):
        knowledge = SqliteKnowledge(file=tmp_path / name)
        for text in added:
            await knowledge.add(text)
        found = await knowledge.search("word", 8)
        assert len({item.score for item in found}) == 1
        orders.append(texts(found))
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == same


@given(st.text(max_size=60))
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_text_can_be_added_and_asked(tmp_path: Path, text: str):
    async def ask() -> None:
        knowledge = SqliteKnowledge(file=tmp_path / "any")
        added = await knowledge.add(text)
        assert len(added) <= 1
        await knowledge.search(text, 3)

    asyncio.run(ask())


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NEAR(", "text:x", "x*", "-x", "\0", "\ud800", "( ) ^ {", "", "_"]
)
async def test_what_means_something_in_a_query_language_is_a_text_like_any_other(file: Path, query: str):
    knowledge = SqliteKnowledge(file=file)
    await knowledge.add("x and near text")
    found = await knowledge.search(query, 5)
    assert bool(found) == any(word in query.lower() for word in ("and", "near", "text", "x"))


async def test_the_same_text_is_stored_once_in_each_namespace(file: Path):
    one, other = SqliteKnowledge("one", file), SqliteKnowledge("other", file)
    assert len(await one.add("A fact.", "first")) == 1
    assert await one.add("A fact.", "second") == []
    assert await other.search("fact", 5) == []
    assert len(await other.add("A fact.")) == 1
    assert [item.source for item in await one.items()] == ["first"]
    assert await one.remove(source="first") == 1
    assert (texts(await one.search("fact", 5)), texts(await other.search("fact", 5))) == ([], ["A fact."])


async def test_pieces_are_removed_by_id_and_by_source(file: Path):
    knowledge = SqliteKnowledge(file=file)
    assert await knowledge.remove(["nope"]) == 0
    assert not is_there(file)
    for text, source in (("one", "a"), ("two", "a"), ("three", "b"), ("four", "c")):
        await knowledge.add(text, source)
    last = (await knowledge.items("c"))[0]
    assert await knowledge.remove([last.id, "nope"], source="a") == 3
    assert texts(await knowledge.items()) == ["three"]


async def test_a_file_that_does_not_exist_holds_nothing_and_is_made_private_by_the_first_text(file: Path):
    knowledge = SqliteKnowledge(file=file)
    assert await knowledge.search("anything", 5) == ()
    assert await knowledge.items() == ()
    assert await knowledge.add(" \n\n ") == ()
    assert not is_there(file)
    await knowledge.add("something")
    assert mode_of(file) == 0o600


async def test_writers_at_once_lose_nothing(file: Path):
    stores = [SqliteKnowledge(file=file) for _ in range(4)]
    await asyncio.gather(*[stores[number % 4].add(f"fact {number}") for number in range(20)])
    assert sorted(texts(await stores[0].items())) == sorted(f"fact {number}" for number in range(20))


async def test_a_locked_file_is_told_as_one_and_can_still_be_searched(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    knowledge = SqliteKnowledge(file=file)
    await knowledge.add("a fact")
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0.01)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(KnowledgeUnavailable, match="is locked by another process: try again"):
        await knowledge.add("another")
    assert texts(await knowledge.search("fact", 1)) == ["a fact"]
    other.close()
    assert len(await knowledge.add("another")) == 1


def garbage(file: Path) -> None:
    file.write_bytes(b"no database at all" * 100)


def torn(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [garbage, torn])
async def test_a_damaged_file_is_told_as_one_and_left_as_it_is(file: Path, damage: Callable[[Path], None]):
    knowledge = SqliteKnowledge(file=file)
    await knowledge.add("a fact about deploys")
    damage(file)
    before = content(file)
    with pytest.raises(KnowledgeUnavailable, match=r"is damaged .*: move it away"):
        await knowledge.search("fact", 1)
    assert content(file) == before


async def test_a_full_disk_is_told_as_one_and_nothing_is_half_added(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    knowledge = SqliteKnowledge(file=file)
    await knowledge.add("a fact")
    lay_out = store._lay_out

    def cramped(db: sqlite3.Connection, path: Path) -> None:
        lay_out(db, path)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(store, "_lay_out", cramped)
    with pytest.raises(KnowledgeUnavailable, match="is full: free some space"):
        await knowledge.add("\n\n".join(f"{number} " + "word " * 300 for number in range(40)))
    monkeypatch.setattr(store, "_lay_out", lay_out)
    assert texts(await knowledge.items()) == ["a fact"]


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (lambda db: db.execute("CREATE TABLE theirs (x)"), "is a database of another program"),
        (
            lambda db: db.executescript(
                f"CREATE TABLE x (y); PRAGMA application_id = {store.APPLICATION_ID}; PRAGMA user_version = 9"
            ),
            "has layout 9, this release reads 2",
        ),
    ],
)
async def test_a_file_that_is_not_ours_is_refused(
    tmp_path: Path, prepare: Callable[[sqlite3.Connection], object], told: str
):
    file = tmp_path / "other"
    with sqlite3.connect(file) as db:
        prepare(db)
    db.close()
    with pytest.raises(ConfigError, match=told):
        await SqliteKnowledge(file=file).add("x")


async def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be created"):
        await SqliteKnowledge(file=tmp_path / "file" / "below").add("x")


def test_the_file_is_the_one_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOLDLOG_KNOWLEDGE", str(tmp_path / "mine"))
    assert knowledge_file() == tmp_path / "mine"
    monkeypatch.delenv("FOLDLOG_KNOWLEDGE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert knowledge_file().name == "knowledge.sqlite3"


@given(st.text(st.sampled_from("ab. \n\t"), max_size=300), st.integers(1, 40))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_pieces_are_small_enough_and_hold_every_character_but_white_space_in_order(text: str, size: int):
    pieces = list(pieces_of(text, size))
    assert all(0 < len(piece) <= size and piece == piece.strip() for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_text_is_cut_between_paragraphs_else_after_a_sentence_else_after_a_word():
    assert list(pieces_of("one\n\ntwo\n \n three four", 10)) == ["one\n\ntwo", "three four"]
    assert list(pieces_of("First. Second one goes on", 12)) == ["First.", "Second one", "goes on"]
    assert list(pieces_of("x" * 25, 10)) == ["x" * 10, "x" * 10, "x" * 5]


async def test_the_registry_gives_the_installed_store_or_the_one_it_was_given(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FOLDLOG_KNOWLEDGE", str(file))
    await Registry().knowledge("n").add("a fact")
    assert texts(await SqliteKnowledge("n", file).items()) == ["a fact"]
    given_one = NoKnowledge()
    assert Registry(knowledge=given_one).knowledge("n") is given_one
    assert await given_one.search("fact", 1) == ()
    with pytest.raises(KnowledgeUnavailable):
        await given_one.add("x")


def test_what_was_found_becomes_one_block_of_the_prompt():
    items = [KnowledgeItem(id="1", text="A.", source="handbook"), KnowledgeItem(id="2", text="B.")]
    assert knowledge_block(msgspec.to_builtins(items)) == "<knowledge>\n[handbook]\nA.\n\nB.\n</knowledge>"
    assert knowledge_block([]) == ""
