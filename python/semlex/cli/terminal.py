"""The two output streams of the command line; control characters of texts never reach a terminal."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

# Control characters of both sets but tab and newline, line and paragraph separators, marks that turn the direction of
# writing, and halves of surrogate pairs: documents and file names must not steer a terminal.
UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
BETWEEN_PARTS = " … "


def printable(text: str) -> str:
    r"""Text with its control characters escaped, for example ``\x1b``."""
    return UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """A name or a title: as `printable`, and on one line."""
    return printable(re.sub(r"[\n\t]", lambda found: ascii(found[0])[1:-1], text))


def counted(number: int, noun: str) -> str:
    """A number of things, for example ``1 chunk`` or ``2,000 chunks``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class SafeConsole(Console):
    """A console on which no text can steer the terminal; its own styles and cursor movements stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of text and style, the text printable."""
        return self._safe(super().render(renderable, options))

    @staticmethod
    def _safe(segments: Iterable[Segment]) -> Iterator[Segment]:
        for segment in segments:
            yield segment if segment.control else segment._replace(text=printable(segment.text))


# Results go to stdout, everything else to stderr, so that a pipe carries results only.
output = SafeConsole(highlight=False, soft_wrap=True, emoji=False)
messages = SafeConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_verbose: ContextVar[bool] = ContextVar("verbose", default=False)


def set_quiet(quiet: bool) -> None:
    """Turns the output of `inform` off or on."""
    _quiet.set(quiet)


def is_quiet() -> bool:
    """Whether only results, notes and errors are printed."""
    return _quiet.get()


def set_verbose(verbose: bool) -> None:
    """Turns the lines about settings that a collection does not follow on or off."""
    _verbose.set(verbose)


def is_verbose() -> bool:
    """Whether the settings that a collection does not follow are printed."""
    return _verbose.get()


def inform(text: str) -> None:
    """Prints a line to stderr that ``--quiet`` leaves out."""
    if not is_quiet():
        messages.print(text)


def marked_text(excerpt: str, content: str, style: str) -> Text:
    """An excerpt with its matched words in a style, and without the marks around them.

    The marks are ``**``, which a text may hold itself. What the excerpt holds beyond its text is a mark.

    Args:
        excerpt: Parts of the content, joined by `` … ``, matched words between ``**``.
        content: The whole text.
        style: Of the matched words.
    """
    text = Text()
    for number, part in enumerate(excerpt.split(BETWEEN_PARTS)):
        text.append(BETWEEN_PARTS if number else "")
        text.append_text(_marked_part(part, content, style))
    return text


def _marked_part(part: str, content: str, style: str) -> Text:
    start = content.replace("*", "").find(part.replace("*", ""))
    if start < 0:
        return Text(part)
    # Runs of stars have even indexes, the characters between them odd ones; those are equal in part and content.
    own = re.split(r"([^*])", part)
    there = re.split(r"([^*])", content)[2 * start : 2 * start + len(own)]
    plain = ""
    toggles: list[int] = []
    for stars, letter, others in zip(own[::2], [*own[1::2], ""], there[::2], strict=True):
        marks = max(0, len(stars) - len(others)) // 2
        closes = len(toggles) % 2 == 1
        if marks % 2:
            toggles.append(len(plain) + (0 if closes else len(stars) - 2 * marks))
        plain += stars[2 * marks :] + letter
    text = Text(plain)
    for begin, end in zip(toggles[::2], toggles[1::2], strict=False):
        text.stylize(style, begin, end)
    return text
