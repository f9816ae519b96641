"""The licences of what is compiled in are in the package: of exactly the crates that Cargo.lock has."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from typing import Any

from tests.support.folders import ROOT

NOTICES = (ROOT / "THIRD-PARTY-NOTICES").read_text("utf-8")


def notices_module() -> Any:
    spec = importlib.util.spec_from_file_location("notices", ROOT / "rust" / "notices.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_linked_crate_has_its_licence_in_the_package() -> None:
    listed = re.findall(r"^={80}\n(\S+) (\S+) \(.+\)$", NOTICES, re.MULTILINE)
    assert len(listed) == len(set(listed))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text("utf-8"))
    locked = {(package["name"], package["version"]) for package in lock["package"] if "source" in package}
    assert set(listed) <= locked, "run ./x notices"
    # What was downloaded to build this very package, so that nothing is now.
    assert set(listed) == set(notices_module().linked("--offline")), "run ./x notices"


def test_the_texts_are_there() -> None:
    parts = NOTICES.split("=" * 80)[1:]
    for part in parts:
        assert re.search(r"permission|redistribution|warranty|public domain", part, re.IGNORECASE), part[:200]


def test_the_notices_are_in_wheel_and_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "THIRD-PARTY-NOTICES" in project["project"]["license-files"]
    included = [entry["path"] for entry in project["tool"]["maturin"]["include"]]
    assert included == ["LICENSE", "THIRD-PARTY-NOTICES"]
