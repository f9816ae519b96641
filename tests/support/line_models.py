"""A language model that writes lines about chunks, in this process: it knows what it was asked, and fails on demand."""

import json
import threading

from semlex.chat import Completion
from semlex.types.answers import Usage


def asked_passage(content):
    """Titles and passage of a request, by the marks alone."""
    mark = content.split("<<< ", 1)[1].split(maxsplit=1)[0]
    parts = content.split(f"<<< {mark}\n")[1:]
    titles, passage = (part.split(f"\n>>> {mark}")[0] for part in parts)
    return titles, passage


def line_about(text):
    """A line that depends on the text alone, with a word that stands in no document."""
    return f"Zyxwv says {len(text)} {' '.join(text.split())[:20]}"


class LineModel:
    """Writes a line about each passage, which `say` makes; `before` gets the number of each request, from 1."""

    def __init__(self, say=line_about, name="line model", before=lambda _: None):
        self.identity = name
        self.asked = []  # titles and passage of each request
        self.most_at_once = self._now = 0
        self._say, self._before, self._lock = say, before, threading.Lock()

    @property
    def texts(self):
        """The passages that it was asked about, without semlex's own."""
        return [text for titles, text in self.asked if titles != "Handbook > Keys"]

    def complete(self, messages, schema=None):
        return list(self.stream(messages, schema))[-1]

    def stream(self, messages, schema=None):
        titles, text = asked_passage(messages[1]["content"])
        with self._lock:
            self.asked.append((titles, text))
            number = len(self.asked)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            self._before(number)
            answer = json.dumps({"line": self._say(text)})
        finally:
            with self._lock:
                self._now -= 1
        yield from (answer[:5], answer[5:], Completion(answer, Usage(10, 2)))

    def close(self):
        pass
