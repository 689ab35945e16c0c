"""The public API is what each package's `__init__` names in `__all__`."""

import ast
import importlib
import importlib.metadata
import pkgutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("adapters", "eventlog", "projections", "replay", "runtime")
# Names that other code depends on; one that goes is a breaking change.
PROMISED = {
    "runtime": {"Agent", "Custom", "Registry", "RunHandle", "RunResult", "Runtime", "ToolContext", "tool"},
}


def imported_names(folder: str) -> set[str]:
    tree = ast.parse((ROOT / folder / "__init__.py").read_text())
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_public_name_exists_once_and_is_not_private(folder: str) -> None:
    package = importlib.import_module(f"foldlog.{folder}")
    public = package.__all__
    assert len(public) == len(set(public))
    assert [name for name in public if name.startswith("_") or not hasattr(package, name)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_whatever_a_package_re_exports_is_declared_public(folder: str) -> None:
    package = importlib.import_module(f"foldlog.{folder}")
    assert {name for name in imported_names(folder) if not name.startswith("_")} <= set(package.__all__)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_that_is_loaded_later_is_that_of_a_module(folder: str) -> None:
    """Importing the module would put it in the place of the name."""
    package = importlib.import_module(f"foldlog.{folder}")
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert modules.isdisjoint(getattr(package, "_LOADED_LATER", ()))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_public_class_and_function_says_what_it_is(folder: str) -> None:
    package = importlib.import_module(f"foldlog.{folder}")
    things = {name: getattr(package, name) for name in package.__all__}
    assert [
        name for name, thing in things.items() if callable(thing) and not (thing.__doc__ or "").strip()
    ] == []


@pytest.mark.parametrize(("folder", "names"), PROMISED.items(), ids=PROMISED)
def test_the_promised_names_are_public(folder: str, names: set[str]) -> None:
    assert names <= set(importlib.import_module(f"foldlog.{folder}").__all__)


def test_the_names_of_the_package_itself_are_those_of_the_runtime_and_its_version() -> None:
    foldlog, runtime = importlib.import_module("foldlog"), importlib.import_module("foldlog.runtime")
    assert set(foldlog.__all__) - set(runtime.__all__) == {"__version__"}
    assert all(
        getattr(foldlog, name) is getattr(runtime, name) for name in foldlog.__all__ if name != "__version__"
    )
    assert foldlog.__version__ == importlib.metadata.version("foldlog")
    assert set(foldlog.__all__) <= set(dir(foldlog))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = foldlog.Nothing


def test_what_type_checkers_see_of_the_package_is_what_it_gives() -> None:
    tree = ast.parse((ROOT / "package" / "__init__.py").read_text())
    seen = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level and node.module == "runtime"
        for alias in node.names
    }
    assert {*seen, "__version__"} == set(importlib.import_module("foldlog").__all__)
