"""A hub of models on this machine: the few addresses that the hub's client asks, with files of a folder."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves the files of a folder as one model.

    Attributes:
        status: Status of every answer instead of the files, or None.
        broken: Names of files that cannot be fetched.
        fetched: Names of files in the order in which they were fetched.
        asked: Method and path of every request.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.status: int | None = None
        self.broken: set[str] = set()
        self.fetched: list[str] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a request."""
        if self.status is not None:
            return self.status, {}, b"{}"
        api = f"/api/models/{self.name}"
        files = sorted(file for file in self.folder.rglob("*") if file.is_file())
        if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            return 200, {}, json.dumps({"id": self.name, "modelId": self.name, "sha": COMMIT, "siblings": []}).encode()
        if path.startswith(f"{api}/tree/"):
            listed: list[dict[str, Any]] = [
                {
                    "type": "file",
                    "path": file.relative_to(self.folder).as_posix(),
                    "size": file.stat().st_size,
                    "oid": hashlib.sha1(file.read_bytes()).hexdigest(),  # noqa: S324 (a name, as git gives them)
                }
                for file in files
            ]
            return 200, {}, json.dumps(listed).encode()
        _, resolved, rest = path.partition("/resolve/")
        name = rest.partition("/")[2]
        file = self.folder / name
        if not resolved or not file.is_file():
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if method == "GET" and name in self.broken:
            return 403, {}, b"{}"
        content = file.read_bytes()
        tag = hashlib.sha1(content).hexdigest()  # noqa: S324
        return 200, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}, content

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._send(with_body=False)

            def do_GET(self) -> None:
                self._send(with_body=True)

            def _send(self, *, with_body: bool) -> None:
                path = unquote(urlsplit(self.path).path)
                hub.asked.append(f"{self.command} {path}")
                hub.headers.append(dict(self.headers))
                status, headers, body = hub.answer(self.command, path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if with_body:
                    self.wfile.write(body)
                    if status == 200 and "/resolve/" in path:
                        hub.fetched.append(path.partition("/resolve/")[2].partition("/")[2])

            def log_message(self, *_: object) -> None:
                pass

        return Handler
