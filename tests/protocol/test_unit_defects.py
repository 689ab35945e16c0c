"""Defects that unit tests find: each is put into a copy of the source, and the test that is named must fail there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from tests.protocol.defects.hunt import patched

ROOT = Path(__file__).resolve().parents[2]


class UnitDefect(msgspec.Struct, frozen=True):
    """`old` stands once in the file, and becomes `new`; then `test` fails."""

    name: str
    file: str
    old: str
    new: str
    test: str


TABLE = Path(__file__).parent / "defects" / "unit_defects.toml"
DEFECTS = msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8"))["defect"], tuple[UnitDefect, ...])


def test_each_defect_applies_and_names_a_test_that_is_there() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    for defect in DEFECTS:
        text = (ROOT / defect.file).read_text(encoding="utf-8")
        assert text.count(defect.old) == 1, f"{defect.name}: mend unit_defects.toml"
        file, _, test = defect.test.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), defect.name


@pytest.mark.nightly
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_the_named_test_fails_with_each_defect(defect: UnitDefect, tmp_path: Path) -> None:
    package = importlib.util.find_spec("foldlog.runtime")
    assert package is not None
    assert package.origin is not None
    shutil.copytree(Path(package.origin).parents[1], tmp_path / "foldlog")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-x",
        "-q",
        "-o",
        f"cache_dir={tmp_path}",
        defect.test,
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    with patched(tmp_path / "foldlog" / defect.file, defect.old, defect.new):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert f"FAILED {defect.test}" in done.stdout, done.stdout
