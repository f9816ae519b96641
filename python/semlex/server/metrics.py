"""Counts of a server, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Of HTTP; others are texts of the caller's.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Upper bounds in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(slots=True)
class Metrics:
    """What has happened since the start. Used by one event loop.

    Attributes:
        requests: (method, route, status) -> how many were answered; status 499: the client left before.
        refused: Why -> how many were refused before a route.
        searches: Operation -> how many searches were made.
        in_flight: Requests in progress.
        reloads: Outcome (``ok``, ``refused``) -> how often settings were read again.
    """

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    searches: Counter[str] = field(default_factory=Counter)
    reloads: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    _buckets: dict[str, list[int]] = field(default_factory=dict)
    _seconds: Counter[str] = field(default_factory=Counter)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts an answered request.

        Args:
            method: GET, POST and so on; others are one.
            route: The route's path with its parameters' names.
            status: Of the answer.
            seconds: From its head to its end.
        """
        self.requests[method if method in METHODS else "other", route, status] += 1
        buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]  # a counter adds floats as well

    def text(self, gauges: dict[str, float]) -> str:
        """Everything as text.

        Args:
            gauges: Name -> value, of what is measured now.
        """
        lines = ["# TYPE semlex_requests_total counter"]
        for (method, route, status), count in sorted(self.requests.items()):
            lines.append(f'semlex_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE semlex_request_seconds histogram")
        for route, buckets in sorted(self._buckets.items()):
            below = 0
            for bound, count in zip((*BUCKETS, "+Inf"), buckets, strict=True):
                below += count
                lines.append(f'semlex_request_seconds_bucket{{route="{route}",le="{bound}"}} {below}')
            lines.append(f'semlex_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
            lines.append(f'semlex_request_seconds_count{{route="{route}"}} {below}')
        for name, label, counts in (
            ("refused", "why", self.refused),
            ("searches", "operation", self.searches),
            ("reloads", "outcome", self.reloads),
        ):
            lines.append(f"# TYPE semlex_{name}_total counter")
            lines += [f'semlex_{name}_total{{{label}="{key}"}} {count}' for key, count in sorted(counts.items())]
        for name, value in sorted({"requests_in_flight": self.in_flight, **gauges}.items()):
            lines += [f"# TYPE semlex_{name} gauge", f"semlex_{name} {value:g}"]
        return "\n".join(lines) + "\n"
