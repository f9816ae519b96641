"""Opens a hit in the editor that ``$VISUAL`` or ``$EDITOR`` names."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.cli.terminal import is_interactive, one_line
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.types.results import SearchResult

# Editors that take `+LINE FILE`, and (GOTO) those that take `-g FILE:LINE`; others get only the file.
PLUS_LINE = frozenset(
    {"vi", "vim", "nvim", "view", "gvim", "nano", "pico", "emacs", "emacsclient", "micro", "joe", "kak"}
)
# Formats that editors do not show, and programs that show a page of a PDF.
BINARY = frozenset({"pdf", "docx", "pptx", "xlsx", "epub", "odt", "msg"})
VIEWERS = {"evince": "--page-index={}", "okular": "--page {}", "zathura": "--page={}", "atril": "--page-index={}"}
GOTO = frozenset({"code", "code-insiders", "codium", "vscodium", "cursor"})


def require_editor() -> None:
    """Raise `ConfigurationError`, before any search, if no terminal is there or no editor is set."""
    if not is_interactive():
        raise ConfigurationError("--open needs a terminal as standard input and output")
    _editor()


def open_hit(hits: Sequence[SearchResult], number: int) -> None:
    """Open the file of a hit, numbered from 1, at its place, and wait until the editor ends."""
    if not 1 <= number <= len(hits):
        found = "nothing was found" if not hits else f"there are hits 1 to {len(hits)}"
        raise ConfigurationError(f"no hit {number} to open: {found}")
    hit = hits[number - 1]
    if not hit.root:
        raise ConfigurationError(
            f"hit {number} was not read from a file: semlex documents show {shlex.quote(hit.id)} prints it"
        )
    path = Path(hit.root) / hit.source_document
    if not path.is_file():
        raise ConfigurationError(
            f"the file {one_line(str(path))} is gone: semlex documents show {shlex.quote(hit.id)} prints what was read"
        )
    if path.suffix.lower().removeprefix(".") in BINARY:
        _run(viewer_command(path, hit.place, hit.page))
    else:
        _run(editor_command(_editor(), path, hit.match_line or hit.line))


def viewer_command(path: Path, place: str, page: int | None) -> list[str]:
    """Return the first installed program that can show a PDF at a page, with its arguments."""
    for program, flag in VIEWERS.items() if page is not None else ():
        if (found := shutil.which(program)) is not None:
            return [found, *flag.format(page).split(), str(path)]
    where = f" at {one_line(place)}" if place else ""
    known = f"; programs that open a page: {', '.join(VIEWERS)}" if page is not None else ""
    raise ConfigurationError(f"an editor cannot show {one_line(str(path))}: open it in its own program{where}{known}")


def editor_command(editor: Sequence[str], path: Path, line: int | None) -> list[str]:
    """Return the editor's command with arguments; `path` must be absolute, so that it cannot look like an option."""
    name = Path(editor[0]).name.removesuffix(".exe")
    if line is not None and name in PLUS_LINE:
        return [*editor, f"+{line}", str(path)]
    if line is not None and name in GOTO:
        return [*editor, "-g", f"{path}:{line}"]
    return [*editor, str(path)]


def _editor() -> list[str]:
    variable = "VISUAL" if os.environ.get("VISUAL") else "EDITOR"
    try:
        words = shlex.split(os.environ.get(variable, ""))
    except ValueError:
        raise ConfigurationError(f"{variable} cannot be read as a command: close the quote in it") from None
    if not words:
        raise ConfigurationError("no editor is set to open hits in: export EDITOR=vim (nano, emacs, 'code --wait', …)")
    return words


def _run(command: list[str]) -> None:
    import subprocess

    try:
        ended = subprocess.run(command, check=False).returncode
    except OSError as error:
        raise ConfigurationError(f"the program {one_line(command[0])} cannot be run: {error.strerror}") from None
    if ended:
        raise ConfigurationError(f"the program {one_line(command[0])} ended with exit code {ended}")
