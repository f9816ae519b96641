"""The projects in `examples/` as processes of their own, on a database of the test."""

import os
import socket
import subprocess
import sys
import urllib.parse
from contextlib import contextmanager

import httpx2
from psycopg.conninfo import conninfo_to_dict

from semlex import connect_sync
from tests.support.folders import ROOT
from tests.support.waiting import LIMIT, until


class Example:
    def __init__(self, port, url):
        self.address, self.url = f"http://127.0.0.1:{port}", url

    def post(self, article):
        return httpx2.post(f"{self.address}/articles", json=article, timeout=LIMIT).raise_for_status().status_code

    def search(self, question):
        answer = httpx2.get(f"{self.address}/search", params={"q": question}, timeout=LIMIT)
        return answer.raise_for_status().json()

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2]))):
                return True
        except OSError:
            return False


@contextmanager
def running(folder, conninfo, *command, before=()):
    """An example that serves; ``{port}`` in its command is a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    parts = conninfo_to_dict(conninfo)
    # A URL, which SQLAlchemy and libpq read.
    rest = urllib.parse.urlencode({name: parts[name] for name in ("host", "port")})
    url = f"postgresql://{parts['user']}@/{parts['dbname']}?{rest}"
    place = {"cwd": ROOT / "examples" / folder, "env": os.environ | {"DATABASE_URL": url}}
    for one in before:
        subprocess.run([sys.executable, *one], **place, check=True)
    with subprocess.Popen([sys.executable, *(part.format(port=port) for part in command)], **place) as process:
        example = Example(port, url)
        try:
            until(lambda: example.answers() or process.poll() is not None)
            assert process.poll() is None
            yield example
        finally:
            process.terminate()


def check_articles(example):
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
