"""A hub of models on this machine: the few addresses that the hub's client asks, with files of a folder."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def tag_of(content):
    return hashlib.sha1(content).hexdigest()  # noqa: S324 (a name, as git gives them)


class FakeHub:
    """Serves the files of a folder as one model."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.status = None  # of every answer, instead of the files
        self.broken = set()  # names of files that cannot be fetched
        self.fetched = []  # names of files in the order in which they were fetched
        self.asked = []  # method and path of every request
        self.headers = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method, path):
        """Status, headers and body for a request."""
        if self.status is not None:
            return self.status, {}, b"{}"
        api = f"/api/models/{self.name}"
        files = sorted(file for file in self.folder.rglob("*") if file.is_file())
        if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            return 200, {}, json.dumps({"id": self.name, "modelId": self.name, "sha": COMMIT, "siblings": []}).encode()
        if path.startswith(f"{api}/tree/"):
            names = {file: file.relative_to(self.folder).as_posix() for file in files}
            listed = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": tag_of(file.read_bytes())}
                for file, name in names.items()
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
        return 200, {"ETag": f'"{tag_of(content)}"', "X-Repo-Commit": COMMIT}, content

    def _handler(self):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = unquote(urlsplit(self.path).path)
                hub.asked.append(f"{self.command} {path}")
                hub.headers.append(dict(self.headers))
                status, headers, body = hub.answer(self.command, path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)
                    if status == 200 and "/resolve/" in path:
                        hub.fetched.append(path.partition("/resolve/")[2].partition("/")[2])

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_):
                pass

        return Handler
