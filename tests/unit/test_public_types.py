"""Each type in the signature of a public name can be imported from a documented package or module."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
import typing_extensions

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("foldlog", "foldlog.runtime", "foldlog.eventlog", "foldlog.replay")
"""The packages whose names programs use; their signatures are looked at whole."""
HAVE_TYPES = (*PACKAGES, "foldlog.types", "foldlog.runtime.ports")
"""The packages from which the types are imported. Of `foldlog.runtime.ports` each module is public."""


@functools.cache
def importable() -> dict[str, list[Any]]:
    """The public things by name."""
    ports = importlib.import_module("foldlog.runtime.ports")
    modules = [importlib.import_module(name) for name in HAVE_TYPES]
    modules += [
        importlib.import_module(each.name)
        for each in pkgutil.iter_modules(ports.__path__, "foldlog.runtime.ports.")
    ]
    found: dict[str, list[Any]] = {}
    for module in modules:
        for name in getattr(module, "__all__", [each for each in vars(module) if not each.startswith("_")]):
            found.setdefault(name, []).append(getattr(module, name))
    return found


def functions(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the functions that users of a thing call: itself, or the methods and properties of a class."""
    if not inspect.isclass(thing):
        yield getattr(thing, "__name__", ""), thing
        return
    for name, member in vars(thing).items():
        if not name.startswith("_") or name == "__init__":
            made = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            yield f"{thing.__name__}.{name}", made


def names_in(annotation: object) -> Iterator[str]:
    if not isinstance(annotation, str):
        return
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


@functools.cache
def resolved(name: str, module: ModuleType) -> Any:
    """The thing that a name in an annotation of a module means, also if only type checkers import it."""
    if hasattr(module, name):
        return getattr(module, name)
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    package = module.__name__ if hasattr(module, "__path__") else module.__package__
                    source = importlib.import_module("." * node.level + (node.module or ""), package)
                    return getattr(source, alias.name)
    return None


def is_ours(thing: Any, name: str) -> bool:
    """A class of foldlog, or an alias of one; type variables and what others define are not."""
    if isinstance(thing, TypeVar | typing_extensions.TypeVar | typing_extensions.ParamSpec) or thing is None:
        return False
    if inspect.isclass(thing):
        return thing.__module__.startswith("foldlog.")
    return (
        name[0].isupper()
        and getattr(thing, "__module__", "typing") in {"typing", "types", "collections.abc"}
        and (
            name not in vars(importlib.import_module("typing"))
            and name not in vars(importlib.import_module("collections.abc"))
        )
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_every_type_in_a_public_signature_can_be_imported_from_a_documented_package(package: str) -> None:
    module, looked_at, hidden = importlib.import_module(package), 0, dict[str, str]()
    for public in module.__all__:
        for label, function in functions(getattr(module, public)):
            plain = inspect.unwrap(function) if callable(function) else None
            if not inspect.isfunction(plain) or not plain.__module__.startswith("foldlog."):
                continue
            for annotation in plain.__annotations__.values():
                for name in names_in(annotation):
                    thing = resolved(name, sys.modules[plain.__module__])
                    looked_at += 1
                    if is_ours(thing, name) and not any(
                        each is thing or each == thing for each in importable().get(name, ())
                    ):
                        hidden.setdefault(name, f"{package}.{label}")
    assert looked_at > 100
    assert hidden == {}


def test_the_list_of_types_is_documented_and_has_each_once() -> None:
    types = importlib.import_module("foldlog.types")
    text = (ROOT / "docs/reference/python.md").read_text()
    assert "`foldlog.types`" in text
    assert types.__all__ == sorted(set(types.__all__))
    assert [name for name in types.__all__ if f"`{name}`" not in text] == []
