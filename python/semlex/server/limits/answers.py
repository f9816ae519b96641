"""How long an answer may be, and how much may be found for it."""

from __future__ import annotations

from semlex.server.problems import Problem

MIB = 1024 * 1024
# Of the text and metadata of all chunks that a request reads; what `fields` leaves out of the answer counts.
MAX_FOUND_BYTES = 48 * MIB
MAX_ANSWER_BYTES = 32 * MIB
FEWER = "ask for fewer hits or chunks (top_k, candidates, depth, limit)"


class Found:
    """The text and metadata that a request has found: refused before they become values.

    Attributes:
        size: Their bytes so far.
    """

    def __init__(self) -> None:
        self.size = 0

    def add(self, size: int) -> None:
        """Count what was found."""
        self.size += size
        if self.size > MAX_FOUND_BYTES:
            raise _too_long(f"the chunks of this request have more than {MAX_FOUND_BYTES:,} bytes: {FEWER}")


def check_answer(size: int) -> None:
    """Refuse a long answer."""
    if size > MAX_ANSWER_BYTES:
        raise _too_long(
            f"the answer has more than {MAX_ANSWER_BYTES:,} bytes: {FEWER}, name the fields that you need (fields), or "
            "read a document by its chunks (GET /v1/chunks)"
        )


def _too_long(detail: str) -> Problem:
    return Problem(413, detail, kind="answer-too-long")
