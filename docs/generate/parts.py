"""The pages that have generated parts, and what writes each part."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from docs.generate import command_line, errors, http, metrics, modules, peers, python_api, settings

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent.parent
README = FOLDER.parent / "README.md"
PARTS: dict[str, Callable[[], str]] = {
    "commands": command_line.commands,
    "errors": errors.classes,
    "metrics": metrics.metrics,
    "settings": settings.settings,
    "spans": metrics.spans,
    "objects": http.objects,
    "routes": http.routes,
    "statuses": http.statuses,
    "exit codes": errors.exit_codes,
    "modules": modules.modules,
    **python_api.parts(),
    "peers": peers.peers,
    "peers in short": peers.in_short,
}
_PART = re.compile(r"(?<=<!-- begin )(?P<name>[\w ]+)( -->\n\n?).*?(?=<!-- end -->)", re.DOTALL)


def generated() -> dict[Path, str]:
    """Return the pages with generated parts, each with the text that it should have."""
    pages = {path: path.read_text(encoding="utf-8") for path in [README, *sorted(FOLDER.rglob("*.md"))]}
    return {path: _PART.sub(_filled, text) for path, text in pages.items() if _PART.search(text)}


def _filled(found: re.Match[str]) -> str:
    return f"{found['name']} -->\n\n{PARTS[found['name']]().strip()}\n\n"
