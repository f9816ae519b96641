"""Which server answered: a replica, with how far it lags, or the primary in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ReadPreference: TypeAlias = Literal["primary", "replica"]
# A replica that lags longer is worth a warning.
MAX_USUAL_LAG = 10.0


@dataclass(frozen=True, slots=True)
class ReadServer:
    """The server that a result was read from, with ``read_from="replica"``.

    Attributes:
        kind: ``replica`` (a standby) or ``primary``.
        lag_seconds: Age of the newest transaction that the replica had replayed; 0.0 if it had replayed all that it
            had received. None if it is not known, and for the primary.
        lag_bytes: Bytes of the write-ahead log that the replica had received and not replayed; None likewise.
        reason: Why the primary answered; None for a replica.
    """

    kind: ReadPreference
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    reason: str | None = None

    @property
    def warnings(self) -> list[str]:
        """What is worth a warning: the primary answered, or the replica lags by more than 10 seconds."""
        if self.reason is not None:
            return [f"the primary answered instead of a replica: {self.reason}"]
        if self.lag_seconds is not None and self.lag_seconds > MAX_USUAL_LAG:
            return [f"the replica that answered lags {self.lag_seconds:,.0f} s behind the primary"]
        return []
