"""The two output streams of the command line; both escape control characters in texts."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from semlex.cli.manual import with_server
from semlex.types.display import UNSAFE as UNSAFE  # noqa: PLC0414 - the commands take it from here
from semlex.types.display import marked_parts
from semlex.types.display import one_line as one_line  # noqa: PLC0414 - the commands take it from here
from semlex.types.display import printable as printable  # noqa: PLC0414 - the commands take it from here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.segment import Segment

    from semlex.ingest.progress import Progress


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, for example ``1 chunk`` or ``2,000 chunks``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


class SafeConsole(Console):
    """A console that keeps control characters of texts from the terminal; its own styles and cursor movements stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments to print, with control characters in their texts escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


class MessageConsole(SafeConsole):
    """A console for messages, which adds the server and the collection to the commands in them."""

    def print(self, *objects: Any, markup: bool | None = None, **options: Any) -> None:
        """Print messages whose commands can be typed as they are."""
        named = (with_server(one) if isinstance(one, str) else one for one in objects)
        super().print(*named, markup=markup, **options)


# Results go to stdout, everything else to stderr, so that a pipe carries results only.
output = SafeConsole(highlight=False, soft_wrap=True, emoji=False)
messages = MessageConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_verbose: ContextVar[bool] = ContextVar("verbose", default=False)


def set_verbosity(*, verbose: bool, quiet: bool) -> None:
    """Remember whether ``--verbose`` and ``--quiet`` were given."""
    _verbose.set(verbose)
    _quiet.set(quiet)


def is_quiet() -> bool:
    """Return whether ``--quiet`` was given: only results, notes and errors are printed."""
    return _quiet.get()


def is_verbose() -> bool:
    """Return whether ``--verbose`` was given: more is printed, such as the scores of hits."""
    return _verbose.get()


_interruption_told: ContextVar[bool] = ContextVar("interruption_told", default=False)


def tell_interruption(text: str = "interrupted") -> None:
    """After Ctrl-C, print what became of the work; later calls print nothing."""
    if not _interruption_told.get():
        _interruption_told.set(True)
        inform(text)


def leave_interruption_untold() -> None:
    """After Ctrl-C, print nothing: the operation reports the interruption itself."""
    _interruption_told.set(True)


def inform(text: str) -> None:
    """Print a line to stderr, unless ``--quiet`` was given."""
    if not is_quiet():
        messages.print(text)


def marked_text(excerpt: str, content: str, style: str) -> Text:
    """Return an excerpt with its matched words in a style, without the marks around them."""
    text = Text()
    for piece, is_marked in marked_parts(excerpt, content):
        text.append(piece, style if is_marked else None)
    return text


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Yield the progress callback of a long operation; None if no progress is shown."""
    if not shown or is_quiet():
        yield None
    elif messages.is_terminal:
        from semlex.progress import terminal_bars

        with terminal_bars(messages) as step:
            yield step
    else:
        from semlex.progress import ProgressLines

        yield ProgressLines(lambda line: messages.print(line, markup=False))


@contextmanager
def resumable() -> Iterator[None]:
    """If Ctrl-C ends the block, print what became of the work and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        tell_interruption(
            "interrupted: complete batches are stored, the rest is unchanged; the same command continues from there"
        )
        raise


def is_interactive() -> bool:
    """Return whether a person types at a terminal and sees the output."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
