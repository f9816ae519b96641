"""A hub of models on this machine: the few addresses that the hub's client asks, with files of a folder."""

import hashlib
import json
from urllib.parse import unquote, urlsplit

import httpx2

from tests.support.model_servers import ModelServerDouble, Reply

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def tag_of(content):
    return hashlib.sha1(content).hexdigest()  # noqa: S324 (a name, as git gives them)


class FakeHub(ModelServerDouble):
    """Serves the files of a folder as one model, until it is closed."""

    def __init__(self, name, folder):
        super().__init__(self.answer)
        self.name, self.folder = name, folder
        self.status = None  # of every answer, instead of the files
        self.broken = set()  # names of files that cannot be fetched
        self.fetched = []  # names of files in the order in which they were fetched
        self.asked = []  # method and path of every request
        self.headers = []
        self._thread.start()

    close = ModelServerDouble.__exit__

    def answer(self, method, path):
        if self.status is not None:
            return self.status, {}, b"{}"
        api = f"/api/models/{self.name}"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            return 200, {}, json.dumps({"id": self.name, "modelId": self.name, "sha": COMMIT, "siblings": []}).encode()
        if path.startswith(f"{api}/tree/"):
            files = sorted(file for file in self.folder.rglob("*") if file.is_file())
            contents = {file.relative_to(self.folder).as_posix(): file.read_bytes() for file in files}
            listed = [
                {"type": "file", "path": name, "size": len(content), "oid": tag_of(content)}
                for name, content in contents.items()
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

    def reply(self, request):
        path = unquote(urlsplit(request.path).path)
        self.asked.append(f"{request.method} {path}")
        self.headers.append(httpx2.Headers(request.headers))
        status, headers, body = self.answer(request.method, path)
        if (request.method, status) == ("GET", 200) and "/resolve/" in path:
            self.fetched.append(path.partition("/resolve/")[2].partition("/")[2])
        return Reply(body, status, headers)
