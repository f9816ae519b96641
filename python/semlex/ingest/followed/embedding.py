"""Embed the chunks of rows; a text that the model refuses keeps no other row from being stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import (
    ModelError,
    ModelMismatchError,
    ModelNotAllowedError,
    ModelNotFoundError,
    ModelServerError,
    SemlexError,
    ValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semlex.ingest.followed.notes import RunNotes
    from semlex.ingest.followed.rows import RowBatch
    from semlex.ingest.indexer import Indexer

# So many texts, and none that was embedded: the model fails, not the texts.
MAX_REFUSED = 8
# Statuses with which a server refuses a text, not every request.
TEXT_REFUSED = frozenset({400, 413, 422})
NOT_OF_TEXTS = (ModelNotFoundError, ModelNotAllowedError, ModelMismatchError)


class RowEmbedding:
    """Embeds the batches of one run."""

    def __init__(self, indexer: Indexer, notes: RunNotes, tell: Callable[[int, int], None]) -> None:
        # `tell` is called with the number of embedded chunks and the number known so far.
        self._indexer, self._notes, self._tell = indexer, notes, tell
        self.embedded = self._wanted = self._refused = 0

    async def look(self, batch: RowBatch, *, is_empty: bool) -> None:
        """Find the chunks that have no vector yet."""
        rows = batch.chunks
        batch.wanted = range(len(rows)) if is_empty else await self._indexer.changed_rows(rows, "update")
        self._wanted += len(batch.wanted)

    async def embed(self, batch: RowBatch) -> None:
        """Embed the chunks of a batch; take out rows with a text that the model refuses."""
        refused: dict[int, Exception] = {}
        await self._embed(batch, list(batch.wanted), refused)
        if not refused:
            return
        number_of = {key: number for number, key in enumerate(batch.documents.document_id)}
        failed = {number_of[batch.chunks.document_id[row]]: error for row, error in refused.items()}
        self._notes.fail(batch.failure(number, error) for number, error in failed.items())
        kept = batch.selected([number for number in range(len(batch)) if number not in failed])
        batch.keys, batch.versions = kept.keys, kept.versions
        batch.documents, batch.chunks = kept.documents, kept.chunks

    async def _embed(self, batch: RowBatch, wanted: Sequence[int], refused: dict[int, Exception]) -> None:
        """Embed chunks; find a text that the model refuses by halving."""
        if not wanted:
            return
        try:
            await self._indexer.embed_rows(
                batch.chunks, wanted, lambda count: self._tell(self.embedded + count, self._wanted)
            )
        except Exception as error:
            if not _is_of_text(error):
                raise
            if len(wanted) == 1:
                refused[wanted[0]] = error
                self._refused += 1
                if not self.embedded and self._refused >= MAX_REFUSED:
                    raise
                return
            half = len(wanted) // 2
            await self._embed(batch, wanted[:half], refused)
            await self._embed(batch, wanted[half:], refused)
            return
        self.embedded += len(wanted)


def _is_of_text(error: Exception) -> bool:
    """Return whether an error of a model may concern one text, and not every request."""
    if isinstance(error, ModelServerError):
        return error.status in TEXT_REFUSED
    if isinstance(error, SemlexError):
        return isinstance(error, (ModelError, ValidationError)) and not isinstance(error, NOT_OF_TEXTS)
    return True  # of the user's own model
