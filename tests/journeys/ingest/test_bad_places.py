"""What stands in a folder and is no file that can be read: one line of the report each, and the good file is stored."""

import os
import socket

import pytest

from semlex.ingest.files import discovery
from semlex.options.collection import DEFAULT_LIMITS
from tests.support.folders import folder_with
from tests.support.retrievers import opened

MAX_DEPTH = 20  # instead of 256, all of which takes seconds
OUTSIDE = "A zebra is nobody's business."  # stands outside the folder


async def indexed(url, *paths):
    """The report of a run, once it is known that the good file was stored, and nothing from outside."""
    async with opened(url, "none") as store:
        report = await store.index(*paths)
        assert [hit.source_document for hit in await store.search("apple")] == ["good.md"]
        assert not await store.search("zebra")
    assert report.failed == len(report.problems)
    return report


def codes(report):
    return {problem.source_document: problem.code for problem in report.problems}


@pytest.fixture
def folder(tmp_path):
    return folder_with(tmp_path / "docs", {"good.md": "A good apple.\n"})


async def test_unreadable_files_are_reported_and_not_waited_for(database_url, folder, monkeypatch):
    os.mkfifo(folder / "fifo.md")
    outside = folder_with(folder.parent / "outside", {"secret.md": OUTSIDE})
    for name, target in {
        "zero.md": "/dev/zero", "out.md": outside / "secret.md", "up.md": "../outside/secret.md", "folder": outside,
        "loop": ".", "self.md": "self.md", "one.md": "two.md", "two.md": "one.md", "gone.md": "nowhere.md",
    }.items():  # fmt: skip
        (folder / name).symlink_to(target)
    for name, size in (("sparse.md", 2 << 30), ("more.md", DEFAULT_LIMITS.file + 1), ("limit.md", DEFAULT_LIMITS.file)):
        with (folder / name).open("wb") as file:
            file.truncate(size)  # takes no room on the disk
    folder_with(folder, dict.fromkeys(("mine.md", "closed/a.md"), "Not for you."))
    real = os.open

    def refuse(path, flags, *rest, dir_fd=None):
        """Refuse as the system does, because root may read everything."""
        if path in ("mine.md", "closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.md")  # the path of a socket is short
        found = codes(await indexed(database_url, folder, "/dev/zero", folder / "fifo.md", folder / "zero.md"))
    loops = {found.pop(name) for name in ("self.md", "one.md", "two.md")}
    assert loops <= {"missing", "not_regular", "failed"}
    assert found == {
        "fifo.md": "not_regular", "socket.md": "not_regular",
        "zero.md": "link_out", "zero": "not_regular",  # by its name, and through the link that was named
        "out.md": "link_out", "up.md": "link_out", "folder": "link_out", "gone.md": "missing",
        "mine.md": "unreadable", "closed": "unreadable",
        "sparse.md": "too_large", "more.md": "too_large", "limit.md": "binary",
    }  # fmt: skip


@pytest.mark.slow
async def test_folders_that_are_too_deep(database_url, folder, monkeypatch):
    monkeypatch.setattr(discovery, "MAX_DEPTH", MAX_DEPTH)
    folder_with(folder, {f"{'d/' * depth}x.md": f"Depth {depth}.\n" for depth in range(3 * MAX_DEPTH)})
    report = await indexed(database_url, folder)
    (problem,) = report.problems
    found = report.added, problem.code, problem.source_document.count("/")
    assert found == (MAX_DEPTH + 2, "too_deep", MAX_DEPTH)
    # What the message says helps.
    report = await indexed(database_url, folder, folder / problem.source_document)
    assert (report.added, len(report.problems)) == (MAX_DEPTH + 1, 2)


def while_it_is_read(monkeypatch, changes):
    """Call `changes[start]` when the first four bytes of a file have been read, which are this start."""
    read = discovery._read_at_most

    def changing(file, limit):
        start = os.read(file, 4)
        changes.get(start, lambda: None)()
        return start + read(file, limit - len(start))

    monkeypatch.setattr(discovery, "_read_at_most", changing)


async def test_files_that_vanish_or_grow_while_they_are_read(database_url, folder, monkeypatch):
    going, growing = folder / "going.md", folder / "growing.md"
    folder_with(folder, {"going.md": "A pear.\n", "growing.md": "More pears.\n"})
    while_it_is_read(monkeypatch, {b"A pe": going.unlink, b"More": lambda: os.truncate(growing, 1 << 40)})
    report = await indexed(database_url, folder)
    # What is open is read to its end.
    assert (codes(report), report.added, report.vanished) == ({"growing.md": "too_large"}, 2, {})


@pytest.mark.slow
async def test_a_file_that_grows_while_it_is_read_is_read_again_by_the_next_run(database_url, folder, monkeypatch):
    growing = folder / "growing.md"
    growing.write_text("A pear.\n")
    os.utime(growing, (1, 1))  # old enough to be known by its time

    def grow():
        with growing.open("a") as file:
            file.write("A plum.\n")
        os.utime(growing, (2, 2))

    while_it_is_read(monkeypatch, {b"A pe": grow})
    assert codes(await indexed(database_url, folder)) == {}
    monkeypatch.undo()
    growing.write_text("A cherry.\n")
    async with opened(database_url, "none") as store:
        assert (await store.index(folder)).changed == 1
        assert [hit.content for hit in await store.search("cherry pear plum")] == ["A cherry."]


@pytest.mark.slow
def test_names_with_line_breaks_and_bytes(shell):
    good = {"two\nlines.md", "bell\a \x1b[31m.md", "tab\t.md", "-rf.md", "$(x) '\".md", "*.md", "a" * 252 + ".md"}
    undecodable = map(os.fsdecode, (b"caf\xe9.md", b"\xff\xfe.md", b"dir\xff/a.md"))
    files = dict.fromkeys(good, "A pear.\n") | dict.fromkeys(undecodable, "A plum.\n") | {"bad\n\x1b[2J.md": b"\xff"}
    folder_with(shell.folder / "names", files)
    done = shell("index", "names", "--model", "none", code=5)
    assert "7 new, 0 changed, 0 unchanged, 4 failed" in done.stderr
    assert "\x1b" not in done.stderr
    assert sum(line.startswith("not read:") for line in done.stderr.splitlines()) == 4
    (report,) = shell.objects("index", "names", "--model", "none", code=5)
    assert {one["source_document"]: one["code"] for one in report["problems"]} == {
        "bad\n\x1b[2J.md": "not_utf8",
        r"caf\xe9.md": "bad_name",
        r"\xff\xfe.md": "bad_name",
        r"dir\xff/a.md": "bad_name",
    }
    found = {hit["source_document"] for hit in shell.objects("search", "pear", "--top-k", "20") if "rank" in hit}
    assert found == good
    assert not [hit for hit in shell.objects("search", "plum") if "rank" in hit]
