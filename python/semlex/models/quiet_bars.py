"""Progress bars of the libraries that load models, imported without the remark that a notebook lacks widgets."""

from __future__ import annotations

import warnings
from contextlib import suppress
from importlib import import_module


def import_bars() -> None:
    """Imports what draws the bars, before a library does.

    In a notebook without ``ipywidgets`` that import warns. The bars are switched off while semlex loads a model, so
    the advice would be of no use.
    """
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        import_module("tqdm.auto")
