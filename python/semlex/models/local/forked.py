"""Torch does not survive a fork: the threads of its pool and the contexts of its devices stay in the parent."""

from __future__ import annotations

import os

from semlex.errors import ModelError


class TorchProcess:
    """Whether this process, or one that it was forked from, has loaded a model with torch."""

    def __init__(self) -> None:
        self._used = False
        self._inherited = False

    def use(self) -> None:
        """Says that a model is about to be loaded."""
        self.check()
        self._used = True

    def check(self) -> None:
        """Refuse to run in a forked child of a process that had loaded a model: it would wait for missing threads."""
        if self._inherited:
            raise ModelError(
                "this process was forked from one that had loaded a model with torch, which cannot be used after a "
                "fork: load the first model in the child (gunicorn: make the retriever without --preload, or in "
                "post_fork), or start processes with multiprocessing's method 'spawn'"
            )

    def after_fork(self) -> None:
        """What was used is inherited."""
        self._inherited |= self._used
        self._used = False


torch_process = TorchProcess()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=torch_process.after_fork)
