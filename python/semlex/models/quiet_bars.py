"""Progress bars of the libraries that load models: imported without a remark, and not drawn."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def import_bars() -> None:
    """Imports what draws the bars, before a library does.

    In a notebook without ``ipywidgets`` that import warns. The bars are switched off while semlex loads a model, so
    the advice would be of no use.
    """
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        import_module("tqdm.auto")


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """Imports transformers, which draws no bars until the end: reading takes a second or two, a bar would stay."""
    import_bars()
    transformers = import_module("transformers")
    shown = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        if shown:
            transformers.logging.enable_progress_bar()
