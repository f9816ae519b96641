"""What functions of the product are given and return, while they work as before."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

import pytest


def calls_of(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[dict[str, Any]]:
    """The arguments, by name, of each call of a function or coroutine function from now on."""
    real, calls = getattr(owner, name), list[dict[str, Any]]()
    signature = inspect.signature(real)

    @wraps(real)
    def noted(*arguments: Any, **options: Any) -> Any:
        calls.append(signature.bind(*arguments, **options).arguments)
        return real(*arguments, **options)

    patch.setattr(owner, name, noted)
    return calls


def results_of(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """What a coroutine function returns from now on."""
    real, results = getattr(owner, name), list[Any]()

    @wraps(real)
    async def noted(*arguments: Any, **options: Any) -> Any:
        results.append(await real(*arguments, **options))
        return results[-1]

    patch.setattr(owner, name, noted)
    return results
