"""What a scenario can find: something lost, doubled or wrong, or a call that hangs."""

from __future__ import annotations

from typing import Literal

Kind = Literal["lost", "doubled", "wrong", "hung"]
KINDS: tuple[Kind, ...] = ("lost", "doubled", "wrong", "hung")
# Seconds after which a try counts as hung: far more than a busy machine needs.
LIMIT_SECONDS = 120.0


class Fault(Exception):  # noqa: N818 - a finding
    """A try of a scenario has found a fault."""

    def __init__(self, kind: Kind, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what


def expect(condition: object, kind: Kind, what: str) -> None:
    """Raise a fault unless a condition is true."""
    if not condition:
        raise Fault(kind, what)
