"""Spans that the SDK of OpenTelemetry keeps in memory."""

import json
from contextlib import contextmanager
from unittest import mock

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from semlex.telemetry import ERROR_TYPE, SPANS, TRACER

DECLARED = [{*work.value[1:], *names, ERROR_TYPE} for work, (_, _, names) in SPANS.items()]


class Spans:
    """What was recorded, and a tracer for spans of a test's own."""

    def __init__(self):
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = self.provider.get_tracer("test")

    def all(self):
        return list(self._kept.get_finished_spans())

    def named(self, beginning):
        return [one for one in self.all() if one.name.startswith(beginning)]

    def forget(self):
        self._kept.clear()

    def text(self):
        return json.dumps([json.loads(one.to_json()) for one in self.all()])

    def path(self, one):
        by_id = {span.context.span_id: span for span in self.all()}
        names = [one.name]
        while one.parent is not None and one.parent.span_id in by_id:
            one = by_id[one.parent.span_id]
            names.insert(0, one.name)
        return names


@contextmanager
def recorded():
    """A program that has set OpenTelemetry up, for a while: its own way sets it for the whole process.

    At the end, every span of semlex has only attributes that are declared for its kind.
    """
    spans = Spans()
    with mock.patch.object(trace, "get_tracer_provider", return_value=spans.provider):
        yield spans
    for one in spans.all():
        if one.instrumentation_scope.name == TRACER:
            assert any(set(one.attributes) <= names for names in DECLARED), one.name
