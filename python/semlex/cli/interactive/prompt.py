"""Lines from a person, with history and Tab where there is readline, or from a pipe."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from semlex.cli.terminal import messages, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MAX_HISTORY = 1_000


def is_interactive() -> bool:
    """Whether a person types, and sees what is printed."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def lines(prompt: Callable[[], str]) -> Iterator[str | bytes]:
    """The lines of standard input, until it ends; after Ctrl-C at the prompt a new one.

    Those of a pipe are bytes: one that is no text must not end the others.

    Args:
        prompt: What stands before a line that a person types.
    """
    if not is_interactive():
        # Not from the stream itself: whoever leaves these lines early would close it.
        yield from () if sys.stdin is None else iter(sys.stdin.buffer.readline, b"")
        return
    while True:
        try:
            yield input(prompt())
        except KeyboardInterrupt:
            messages.print()
        except EOFError:
            messages.print()
            return


class History:
    """The lines of earlier shells, in a file that only its owner reads; Tab completes.

    Args:
        file: Where they are kept; None keeps none.
        candidates: What may stand in place of the last word of a line.
    """

    def __init__(self, file: Path | None, candidates: Callable[[str], Sequence[str]]) -> None:
        self._file = file
        self._candidates = candidates
        self._readline: Any = None
        self._begun = 0
        self._found: list[str] = []

    def __enter__(self) -> Self:
        if is_interactive():
            try:
                import readline
            except ImportError:  # Python without it, as on Windows: lines are read all the same
                return self
            self._readline = readline
            for line in self._stored():
                readline.add_history(line)
            self._begun = readline.get_current_history_length()
            readline.set_completer(self.complete)
            readline.set_completer_delims(" ")
            with_libedit = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if with_libedit else "tab: complete")
        return self

    def __exit__(self, *_: object) -> None:
        if self._readline is None:
            return
        end = self._readline.get_current_history_length()
        new = [self._readline.get_history_item(number) for number in range(self._begun + 1, end + 1)]
        self._readline.set_completer(None)
        if self._file is not None and new:
            write_history(self._file, [*self._stored(), *filter(None, new)])

    def complete(self, word: str, state: int) -> str | None:
        """The candidate of a number, as readline asks for them."""
        if state == 0:
            line = self._readline.get_line_buffer() if self._readline is not None else word
            try:
                found = [one for one in self._candidates(line) if one.startswith(word)]
                self._found = [f"{found[0]} "] if len(found) == 1 else found
            except Exception:  # noqa: BLE001 - a key press is no place for errors; the line itself will tell them
                self._found = []
        return self._found[state] if state < len(self._found) else None

    def _stored(self) -> list[str]:
        if self._file is None:
            return []
        try:
            return self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []


def write_history(file: Path, found: Sequence[str]) -> None:
    """Writes the last lines into a file of mode 0600, as a whole; where that does not work it says so."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    text = "".join(f"{one_line(line)}\n" for line in found[-MAX_HISTORY:])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as target:
            target.write(text)
        beside.replace(file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        told = f"note: the history was not kept: {one_line(str(file))}: {error.strerror}; --no-history keeps none"
        messages.print(told, markup=False)
