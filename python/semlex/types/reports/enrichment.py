"""Lines that a language model writes about chunks: what they cost, and what was done. No input or output."""

from __future__ import annotations

from dataclasses import dataclass

from semlex.types.answers import Usage


@dataclass(frozen=True, slots=True)
class EnrichmentEstimate:
    """What the lines that are lacking cost, by the collection's own count of tokens.

    A model counts otherwise; a price is that of its provider.

    Attributes:
        chunks: Chunks that lack a line; each is one request.
        tokens_in: Tokens that are sent, instructions included.
        tokens_out: Tokens that are kept of the answers, at most.
    """

    chunks: int
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class EnrichmentReport:
    """What a run that asks for lines did.

    Attributes:
        model: Model and server, in one line.
        chunks: Chunks that lacked a line when it began.
        written: Chunks that have one now.
        failed: Chunks for which the model was asked, and gave none: they stay as they are, and the next run asks again.
        left: Chunks for which it was not asked any more, because it failed for one chunk after another.
        first_failure: Why the first of them has none; None where all were written.
        usage: What the model's server counted, as far as it does.
        seconds: Wall time.
        estimate: What it would cost; None unless that was all that was asked for.
    """

    model: str
    chunks: int
    written: int = 0
    failed: int = 0
    left: int = 0
    first_failure: str | None = None
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    seconds: float = 0.0
    estimate: EnrichmentEstimate | None = None
