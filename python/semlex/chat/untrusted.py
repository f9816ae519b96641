"""Prepares untrusted text for a prompt: as data between random marks, without invisible characters."""

from __future__ import annotations

import re
import secrets

MARK_BYTES = 8
# A longer path or title does not help a reader.
MAX_SHOWN = 200
# What ends a line somewhere.
LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# What nobody sees and a model reads: control characters but tab and newline; marks that turn the direction of writing;
# characters without width that join nothing; tags and variation selectors, in which whole texts can be hidden.
UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def drawn_mark() -> str:
    """Return a random word, which no document can contain on purpose."""
    return secrets.token_hex(MARK_BYTES)


def visible(text: str) -> str:
    """Return a text without invisible characters, with every line ended by a newline."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text  # most are, and the patterns take a hundred times as long
    return UNSEEN.sub("", LINE_ENDS.sub("\n", text))


def one_line(text: str) -> str:
    """Return a path or a title on one line, shortened in the middle."""
    line = " ".join(visible(text).split())
    if len(line) <= MAX_SHOWN:
        return line
    half = MAX_SHOWN // 2
    return f"{line[: half - 1]}…{line[-half:]}"
