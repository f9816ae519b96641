"""The projects in `examples/` as processes of their own, on a database of the test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from semlex import connect_sync
from tests.support.folders import ROOT
from tests.support.waiting import until


def url_of(conninfo: str) -> str:
    """A connection string as a URL, which SQLAlchemy and libpq read."""
    parts = conninfo_to_dict(conninfo)
    rest = urllib.parse.urlencode({name: parts[name] for name in ("host", "port")})
    return f"postgresql://{parts['user']}@/{parts['dbname']}?{rest}"


class Example:
    """A running example."""

    def __init__(self, port: int, url: str) -> None:
        self.address, self.url = f"http://127.0.0.1:{port}", url

    def post(self, article: dict[str, Any]) -> int:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.address}/articles", json.dumps(article).encode(), headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - our own server
            status: int = answer.status
        return status

    def search(self, question: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"q": question})
        with urllib.request.urlopen(f"{self.address}/search?{query}", timeout=120) as answer:  # noqa: S310
            found: list[dict[str, Any]] = json.load(answer)
        return found

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2]))):
                return True
        except OSError:
            return False


@contextmanager
def running(folder: str, conninfo: str, *command: str, before: Sequence[Sequence[str]] = ()) -> Iterator[Example]:
    """An example that serves; ``{port}`` in its command is a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = url_of(conninfo)
    environment = os.environ | {"DATABASE_URL": url}
    place = ROOT / "examples" / folder
    for one in before:
        subprocess.run([sys.executable, *one], cwd=place, env=environment, check=True)
    arguments = [sys.executable, *(part.format(port=port) for part in command)]
    with subprocess.Popen(arguments, cwd=place, env=environment) as process:
        example = Example(port, url)
        try:
            until(lambda: example.answers() or process.poll() is not None)
            assert process.poll() is None
            yield example
        finally:
            process.terminate()


def check_articles(example: Example) -> None:
    """What every example promises: rows are found once they are in step, and hidden ones never."""
    articles = [{"title": "Apple pie", "body": "With cinnamon."}, {"title": "Rye bread", "body": "Baked for an hour."}]
    assert [example.post(one) for one in articles] == [201, 201]
    assert example.search("apple") == []
    with connect_sync(example.url, use_reranking=False) as client:
        client.collection("shop").tables.sync()
        found = example.search("apple pie")
        assert (found[0]["title"], "cinnamon" in found[0]["excerpt"]) == ("Apple pie", True)
        assert example.post({"title": "Apple draft", "body": "apple", "status": "draft"}) == 201
        client.collection("shop").tables.sync()
    assert "Apple draft" not in [one["title"] for one in example.search("apple draft")]
