"""Writes THIRD-PARTY-NOTICES: the licences of what the package contains. Run by ``./x notices``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NOTICES = ROOT / "THIRD-PARTY-NOTICES"
BEGINNING = """semlex contains compiled code of the crates below, and of the Rust standard library
(https://github.com/rust-lang/rust, MIT OR Apache-2.0). Where a crate is offered under several licences, semlex uses
it under the one whose text follows. Made by `./x notices`.

Data of others come with these crates: the Snowball stemmers (frostem, BSD-3-Clause), the stop words of NLTK's corpus,
most of them from the Snowball project (stop-words; the corpus names its sources below and states no licence of its
own), and tables of Unicode (regex-syntax, unicode-normalization-alignments and unicode-segmentation; the licence of
Unicode's data files is below regex-syntax).

The page of the HTTP server has no scripts, styles, fonts or pictures of others. semlex contains no weights of models.
"""
# On Linux, macOS and Windows the same crates are linked.
PLATFORM = "x86_64-unknown-linux-gnu"
BEGINNINGS_OF_LICENCES = ("LICEN", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE")
# Of the data that crates bring: where it comes from, and its licence.
DATA = {"regex-syntax": "src/unicode_tables/LICENSE-UNICODE", "stop-words": "src/nltk/README"}


def linked(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The crates that are linked into the extension module: by name and version, as cargo tells of them.

    Args:
        options: More of ``cargo metadata``.
    """
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM, *options]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] == "semlex-python"]
    seen: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key in seen or any("proc-macro" in target["kind"] for target in packages[key]["targets"]):
            continue
        seen.add(key)
        normal = (d["pkg"] for d in nodes[key]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"]))
        waiting += normal
    own = (packages[key] for key in seen if packages[key]["source"] is not None)
    return {(package["name"], package["version"]): package for package in own}


def licence_texts(package: dict[str, Any]) -> list[str]:
    """The texts that a crate brings; of several licences the shortest that it may be used under."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.name.upper().startswith(BEGINNINGS_OF_LICENCES))
    plain = [path for path in files if "MIT" in path.name.upper()]
    others = [path for path in files if "APACHE" not in path.name.upper()]
    chosen = list(plain or others or files)
    if not chosen:
        raise SystemExit(f"error: {package['name']} {package['version']} has no text of its licence in {folder}")
    if package["name"] in DATA:
        chosen.append(folder / DATA[package["name"]])
    return [path.read_text("utf-8").strip() for path in chosen]


def notices() -> str:
    """The whole file."""
    parts = [BEGINNING]
    for (name, version), package in sorted(linked().items()):
        parts.append(f"{'=' * 80}\n{name} {version} ({package['license']})\n{package['repository'] or ''}\n")
        parts += [text + "\n" for text in licence_texts(package)]
    return "\n".join(parts)


if __name__ == "__main__":
    NOTICES.write_text(notices(), "utf-8")
    sys.stdout.write(f"{NOTICES}\n")
