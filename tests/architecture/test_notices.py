"""The licences of what is compiled in are in the package: of exactly the crates that Cargo.lock has."""

import importlib.util
import re
import tomllib
from pathlib import Path

from tests.support.folders import ROOT

NOTICES = (ROOT / "THIRD-PARTY-NOTICES").read_text("utf-8")


def notices_module():
    spec = importlib.util.spec_from_file_location("notices", ROOT / "rust" / "notices.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_linked_crate_and_its_data_are_in_the_package():
    listed = re.findall(r"^={80}\n(\S+) (\S+) \(.+\)$", NOTICES, re.MULTILINE)
    assert len(listed) == len(set(listed))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text("utf-8"))
    locked = {(package["name"], package["version"]) for package in lock["package"] if "source" in package}
    assert set(listed) <= locked, "run ./x notices"
    # What was downloaded to build this very package, so that nothing is now.
    assert set(listed) == set(notices_module().linked("--offline")), "run ./x notices"
    parts = NOTICES.split("=" * 80)[1:]
    for part in parts:
        assert re.search(r"permission|redistribution|warranty|public domain", part, re.IGNORECASE), part[:200]
    # Crates that bring data are described, with its licence or its sources; the package itself has none.
    module = notices_module()
    for (name, _), package in module.linked("--offline").items():
        below = Path(package["manifest_path"]).parent / "src"
        found = [path for path in below.rglob("*") if path.name == "README" or path.name.startswith("LICEN")]
        assert [path for path in found if path.parent != below.parent] == (
            [below.parent / module.DATA[name]] if name in module.DATA else []
        )
    for name, file in module.DATA.items():
        part = NOTICES.partition(f"{'=' * 80}\n{name} ")[2].partition("=" * 80)[0]
        assert {"regex-syntax": "UNICODE, INC. LICENSE", "stop-words": "were obtained from"}[name] in part, file
    package = ROOT / "python" / "semlex"
    others = [
        path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".pyi", ".so")
    ]
    assert {path.parent for path in others} == {package, package / "server" / "page"}
    for path in others:
        text = path.read_text("utf-8")  # no font and no picture but a drawing
        assert not re.search(r"copyright|licen[cs]e|@preserve|sourceMappingURL|@font-face", text, re.IGNORECASE), path
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "THIRD-PARTY-NOTICES" in project["project"]["license-files"]
    included = [entry["path"] for entry in project["tool"]["maturin"]["include"]]
    assert included == ["LICENSE", "THIRD-PARTY-NOTICES"]
