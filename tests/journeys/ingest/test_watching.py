"""Folders that are watched: what changes in them is found soon, and watching ends when it is asked to."""

import asyncio
import errno
import signal
import sys
from contextlib import AbstractContextManager, aclosing
from unittest.mock import AsyncMock

import pytest
import watchfiles

from semlex import SyncReport
from semlex.errors import ConnectionFailedError, MissingExtraError, StoreError
from semlex.ingest import watch
from semlex.ingest.files.discovery import FileProblem
from semlex.ingest.progress import DocumentName, SyncPlan
from tests.support.folders import folder_with
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened
from tests.support.waiting import LIMIT, eventually

pytestmark = pytest.mark.slow


def report_of(*, added=0, problems=()):
    return SyncReport(SyncPlan([DocumentName("docs", str(number)) for number in range(added)], problems=problems))


@pytest.fixture
def docs(tmp_path):
    return folder_with(tmp_path / "docs", {"a.md": "# A\n\nA banana.\n"})


async def following(reports):
    return await asyncio.wait_for(anext(reports), LIMIT)


@pytest.mark.parametrize("poll", [False, True])
async def test_what_changes_is_found(database_url, docs, poll):
    async with opened(database_url) as store, aclosing(store.watch(docs, poll=poll)) as reports:
        first = await following(reports)
        assert (first.done.added, first.watched_by) == (1, "polling" if poll else "events")
        folder_with(docs, {"b.md": "# B\n\nA shutter.\n", ".hidden.md": "nobody reads this"})
        assert (await following(reports)).done.added == 1
        assert (await store.search("shutter", 1, mode="keyword"))[0].source_document == "b.md"
        (docs / "c.md").write_text("c", encoding="utf-8")
        assert [name.source_document for name in (await following(reports)).plan.added] == ["c.md"]
        (docs / "sub").mkdir()
        (docs / "b.md").rename(docs / "sub" / "b.md")
        report = await following(reports)
        while report.plan.deleted:  # the folder was looked at between the two halves of the move
            report = await following(reports)
        assert {chunk.source_document for chunk in await store.list_chunks(limit=10)} == {"a.md", "c.md", "sub/b.md"}


async def test_a_system_that_cannot_watch_so_much_is_polled(database_url, docs, monkeypatch):
    original = watchfiles.awatch

    async def limited(*folders, force_polling, **options):
        if not force_polling:
            raise OSError(errno.ENOSPC, "OS file watch limit reached")
        async for changes in original(*folders, force_polling=True, **options):
            yield changes

    monkeypatch.setattr(watchfiles, "awatch", limited)
    async with opened(database_url) as store, aclosing(store.watch(docs)) as reports:
        assert (await following(reports)).watched_by == "polling"
        (docs / "b.md").write_text("b", encoding="utf-8")
        assert (await following(reports)).done.added == 1


async def test_without_the_extra_nothing_is_watched(database_url, docs, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    async with opened(database_url) as store, aclosing(store.watch(docs)) as reports:
        with pytest.raises(MissingExtraError, match=r"pip install 'semlex\[watch\]'"):
            await following(reports)
        assert await store.count() == 0


async def test_all_is_looked_at_from_time_to_time(database_url, docs, monkeypatch):
    async def silent(*_, stop_event, **__):
        await stop_event.wait()
        for nothing in ():
            yield nothing

    clock = ManualClock()
    monkeypatch.setattr(watchfiles, "awatch", silent)
    async with opened(database_url, clock=clock) as store, aclosing(store.watch(docs)) as reports:
        await following(reports)
        for name in ("b", "c"):
            (docs / f"{name}.md").write_text(name, encoding="utf-8")
            assert (await clock.expire(watch.FULL_LOOK_SECONDS, following(reports))).done.added == 1


async def test_watching_goes_on_when_the_server_was_away(docs, caplog):
    lost, full = ConnectionFailedError("the server is gone"), StoreError("no space left", sqlstate="53100")
    clock, look = ManualClock(), AsyncMock(side_effect=[report_of(), lost, full, report_of(added=1)])
    async with aclosing(watch.watch([docs], look, poll=False, clock=clock)) as reports:
        await following(reports)
        (docs / "b.md").write_text("b", encoding="utf-8")
        task = asyncio.ensure_future(following(reports))
        await clock.passes_until(task.done, watch.LAST_PAUSE_SECONDS)
        assert len((await task).plan.added) == 1
    assert [call.args[0] for call in look.await_args_list] == [[docs]] * 4
    told = [record.getMessage().partition(";")[0] for record in caplog.records]
    assert told == ["still watching", "the server is back"]


async def test_a_problem_of_one_folder_is_told_once(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    bad = FileProblem("bad.md", "not_utf8", "no UTF-8")
    looks = []

    async def look(paths, only_changes):
        looks.append("".join(path.name for path in paths))
        is_third = looks[-1] == "b" and looks.count("b") == 3
        return report_of(added=is_third, problems=[bad] if folders[0] in paths else [])

    async with aclosing(watch.watch(folders, look, poll=False)) as reports:
        assert (await following(reports)).plan.problems == [bad]
        task = asyncio.ensure_future(following(reports))
        for number, name in enumerate("ababb", start=2):
            (tmp_path / name / f"{number}.md").write_text("text", encoding="utf-8")
            await eventually(lambda number=number: len(looks) >= number)
        # The next report is that of the last look: those between had nothing new to say.
        assert len((await task).plan.added) == 1
    assert looks == ["ab", *"ababb"]


async def test_unwanted_paths_are_ignored_and_closing_ends_the_thread(tmp_path, monkeypatch):
    watching = []

    class Noted(AbstractContextManager):
        def __init__(self, *arguments, original=watchfiles.main.RustNotify):
            self._inner = original(*arguments)

        def __exit__(self, *error):
            self._inner.__exit__(*error)

        def watch(self, *arguments):
            watching.append(True)
            try:
                return self._inner.watch(*arguments)
            finally:
                watching.append(False)

    monkeypatch.setattr(watchfiles.main, "RustNotify", Noted)
    watched = watch.FolderWatch([tmp_path], poll=False)
    await watched.start()
    await eventually(lambda: watching)
    wanted = {"a.md": True, ".gitignore": True, "sub/.semlexignore": True, ".git/HEAD": False, ".a.md.swp": False}
    wanted |= {"node_modules/a.md": False, "sub/a.md": True, "../a.md": False}
    assert {name: watched._is_wanted((tmp_path / name).resolve()) for name in wanted} == wanted
    await watched.close()
    assert watching[-1] is False


def test_the_command_goes_on_until_it_is_interrupted(shell):
    with shell.start("sync", "docs", "-c", "c", "--model", "none", "--watch", "--json") as process:
        assert '"added": 2' in process.stdout.readline()
        assert process.stderr.readline() == "watching, by the system's change events; Ctrl-C ends it\n"
        (shell.folder / "docs" / "new.md").write_text("new", encoding="utf-8")
        assert '"added": 1' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert "Traceback" not in process.stderr.read()
    shell("sync", "docs", "-c", "c", "--watch", "--dry-run", code=2)
    shell("sync", "docs", "-c", "c", "--poll", code=2)
