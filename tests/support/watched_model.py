"""A tiny model in a forward form that tells of every batch before it runs."""

import numpy as np

from semlex.models.local.forward import ReferenceForward, TrimmedForward
from semlex.models.local.transformer import Transformer
from semlex.models.tokenizer import TokenRows


class Watched(ReferenceForward):
    """The reference form, with a look at every batch before it runs."""

    look = staticmethod(lambda lengths: None)

    def run(self, batch):
        type(self).look([row.size for row in batch.tokens])
        return super().run(batch)


def look_at(fails=lambda batch, number: False, error=MemoryError):
    """The rows' lengths in each batch of the watched form from here on; those that fail by the rule raise the error."""
    batches = []

    def look(batch):
        batches.append(batch)
        if fails(batch, len(batches)):
            raise error()

    Watched.look = staticmethod(look)
    return batches


def sizes_of_passes(monkeypatch):
    """Tokens of each pass of trimmed forms from here on."""
    sizes, run = [], TrimmedForward._last_states

    def noted(self, batch, layout):
        sizes.append(batch.ids.size)
        return run(self, batch, layout)

    monkeypatch.setattr(TrimmedForward, "_last_states", noted)
    return sizes


def opened(folder, attention="watched", *, precision="float32", batch_size=64, token_budget=None, head="none"):
    chosen = {"batch_size": batch_size, "token_budget": token_budget, "attention": attention}
    return Transformer(folder, head=head, device="cpu", precision=precision, **chosen)


def token_rows(lengths):
    return TokenRows.of([(np.arange(n, dtype=np.int64) * 31 + 7 * row) % 600 for row, n in enumerate(lengths)])


ROWS = token_rows([3, 9, 1, 20])


def difference(found, expected):
    """The largest between components of vectors of norm 1."""
    units = [states / np.linalg.norm(states, axis=1, keepdims=True) for states in (found, expected)]
    return np.abs(units[0] - units[1]).max()
