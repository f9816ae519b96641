"""Sources: what a file is, where it may lie, and what is said of files that are gone."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from semlex.errors import ConfigurationError
from semlex.ingest import run as file_run
from semlex.ingest.files.roots import plan_places
from semlex.types.documents import Document
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened
from tests.support.spies import before_calls


@pytest.fixture
def handbook(tmp_path):
    """A folder with three pages, one of them in a folder below."""
    guide = {"start": "# Start\n\n\nOpen the shutter first.\n", "end": "# End\n\nPark at the zenith.\n"}
    pages = {f"guide/{name}.md": text for name, text in guide.items()}
    return folder_with(tmp_path / "here" / "handbook", pages | {"keys.md": "# Keys\n\nA lost key is reported.\n"})


@pytest.fixture
def store(database_url):
    with sync_opened(database_url) as retriever:
        yield retriever


def places(store):
    return {(hit.source, hit.source_document) for hit in store.search("key shutter zenith", 20)}


@pytest.mark.slow
def test_a_path_below_a_source_belongs_to_it(store, handbook):
    report = store.index(handbook / "guide" / "end.md", handbook / "guide", handbook)
    assert (report.added, report.unchanged) == (3, 0)
    assert [source.name for source in store.documents.sources()] == ["handbook"]
    store.delete(source="handbook")
    assert store.index(handbook / "keys.md").added == 1  # of the source of its folder
    assert places(store) == {("handbook", "keys.md")}
    assert store.index(handbook).added == 2
    for below, unchanged in (("guide", 2), ("guide/start.md", 1), ("keys.md", 1), ("", 3)):
        report = store.index(handbook / below)
        assert (report.added, report.changed, report.unchanged) == (0, 0, unchanged)
    (handbook / "guide" / "more.md").write_text("more of the zenith", encoding="utf-8")
    assert store.index(handbook / "guide").added == 1
    names = ("keys.md", "guide/start.md", "guide/end.md", "guide/more.md")
    assert places(store) == {("handbook", name) for name in names}
    (source,) = store.documents.sources()
    assert (source.name, source.root, source.documents, source.chunks) == ("handbook", str(handbook), 4, 4)
    # Hits name their source and their line.
    store.add_documents([Document("the shutter of a camera", {"source_document": "camera.txt"}, "a")])
    hits = store.search("shutter", 2, mode="keyword")
    expected = {"guide/start.md": ("handbook", str(handbook), 1), "camera.txt": ("", "", None)}
    for found in (hits, store.get([hit.id for hit in hits])):
        assert {one.source_document: (one.source, one.root, one.line) for one in found} == expected


@pytest.mark.slow
def test_a_path_that_contains_sources_is_refused_and_a_source_cannot_move_into_another(store, handbook):
    store.index(handbook / "guide")
    for path in (handbook, handbook.parent, handbook / "keys.md"):
        with pytest.raises(ConfigurationError) as caught:
            store.index(path)
        assert f"'guide' ({handbook / 'guide'})" in str(caught.value)
        assert "semlex delete --source guide" in str(caught.value)
    assert [source.name for source in store.documents.sources()] == ["guide"]
    # One call: what contains comes first, whatever the order.
    with pytest.raises(ConfigurationError, match="contains"):
        store.index(handbook / "guide", handbook)
    store.index(folder_with(handbook.parent / "other", {"a.md": "a"}))
    (handbook / "guide" / "below").mkdir()
    for name, target, message in (
        ("other", handbook, "contains"),
        ("other", handbook / "guide" / "below", "lies in the folder of the source 'guide'"),
        ("other", handbook / "guide", "contains"),
        ("other", handbook / "nowhere", "nowhere is not an existing folder"),
        ("tother", handbook, "unknown source 'tother'; known sources: guide, other"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            store.documents.move_source(name, target)


@pytest.mark.slow
def test_names(store, handbook):
    other = handbook.parent.parent / "there" / "handbook"
    shutil.copytree(handbook, other)
    store.index(handbook)
    with pytest.raises(ConfigurationError, match="--source NAME") as caught:
        store.index(other)
    assert all(str(folder) in str(caught.value) for folder in (handbook, other))
    assert store.index(other, source="second").added == 3
    assert store.index(other / "keys.md", source="second").unchanged == 1
    with pytest.raises(ConfigurationError, match="lies in the folder of the source 'second'"):
        store.index(other / "keys.md", source="third")
    with pytest.raises(ConfigurationError, match="is another folder"):
        store.index(folder_with(handbook.parent.parent / "elsewhere", {"a.md": "a"}), source="handbook")
    with pytest.raises(ConfigurationError, match="source is blank"):
        store.index(handbook, source="")
    for name in ("a/b", " a", "a\x1b[2J", "n" * 201):
        with pytest.raises(ConfigurationError, match="cannot be the name of a source"):
            store.index(handbook, source=name)
    assert [source.name for source in store.documents.sources()] == ["handbook", "second"]


def test_two_processes_make_one_source(database_url, handbook):
    def added(_):
        with sync_opened(database_url) as retriever:
            return retriever.index(handbook).added

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(added, range(2))) == 3  # none is new twice
    with sync_opened(database_url) as retriever:
        (source,) = retriever.documents.sources()
        assert (source.documents, source.chunks, retriever.count()) == (3, 3, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("roots", "told"),
    [(("", "guide"), "contains sources whose files"), (("guide", ""), "lies in the folder of the source 'handbook'")],
)
def test_a_source_that_appears_above_or_below_meanwhile(store, handbook, monkeypatch, roots, told):
    mine, others = (handbook / part for part in roots)

    def index():
        with sync_opened(store.asynchronous._resources.server.db_url or "") as other:
            other.index(others)

    before_calls(monkeypatch, file_run, "list_files", index)
    with pytest.raises(ConfigurationError, match=told):
        store.index(mine)
    (source,) = store.documents.sources()
    assert source.root == str(others)


def test_plans():
    assert plan_places([], {"a": "/a"}) == ([], [])
    with pytest.raises(ConfigurationError, match="has no name that could become the source"):
        plan_places(["/"], {})
    _, missing = plan_places(["/nowhere/at/all", "/a\0b"], {"root": "/x"})
    assert sorted(map(str, missing)) == ["/a\0b", "/nowhere/at/all"]


@pytest.mark.slow
def test_a_moved_folder_is_the_same_source_and_a_removed_source_comes_back_from_elsewhere(store, handbook):
    store.index(handbook)
    before = {hit.id for hit in store.search("key shutter zenith", 20)}
    moved = handbook.parent.parent / "container" / "handbook"
    shutil.move(handbook, moved)
    with pytest.raises(ConfigurationError, match=f"semlex documents move handbook {moved}"):
        store.index(moved)
    store.documents.move_source("handbook", moved)
    report = store.index(moved)
    assert (report.added, report.changed, report.unchanged, report.vanished) == (0, 0, 3, {})
    assert {hit.id for hit in store.search("key shutter zenith", 20)} == before
    assert {hit.root for hit in store.search("shutter")} == {str(moved)}
    assert store.delete(source="handbook", dry_run=True).documents == 3
    assert store.delete(source="handbook", filters={"topic": "x"}).chunks == 0
    assert len(store.documents.sources()) == 1
    assert store.delete(source="handbook").documents == 3
    assert (store.documents.sources(), store.status().sources) == ([], 0)
    with pytest.raises(ConfigurationError, match="unknown source 'handbook'; known sources: none"):
        store.delete(source="handbook")
    elsewhere = handbook.parent.parent / "handbook"
    shutil.move(moved, elsewhere)
    assert store.index(elsewhere).added == 3
    assert [source.root for source in store.documents.sources()] == [str(elsewhere)]
    assert {hit.id for hit in store.search("key shutter zenith", 20)} == before


@pytest.mark.slow
def test_a_run_says_how_many_files_have_vanished(store, handbook):
    store.index(handbook)
    for name in ("keys.md", "guide/end.md"):
        (handbook / name).unlink()
    assert store.index(handbook).vanished == {"handbook": 2}
    assert store.index(handbook / "guide").vanished == {"handbook": 1}
    assert store.index(handbook / "guide" / "start.md").vanished == {}
    # What a pattern leaves out is still there.
    assert store.index(handbook, include=["*.txt"]).vanished == {"handbook": 2}
    assert store.delete(source="handbook", vanished=True).documents == 2
    assert store.index(handbook).vanished == {}
    assert places(store) == {("handbook", "guide/start.md")}
    # Files that cannot be read have not vanished: a binary file, and all files of a missing or empty root.
    (handbook / "guide" / "start.md").write_bytes(b"\0")
    report = store.index(handbook)
    assert (report.failed, report.vanished) == (1, {})
    assert store.delete(vanished=True).chunks == 0
    shutil.rmtree(handbook)
    with pytest.raises(ConfigurationError, match="semlex documents move handbook FOLDER"):
        store.delete(vanished=True)
    handbook.mkdir()
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match=r"not mounted.*semlex delete --source handbook"):
            store.delete(vanished=True, dry_run=dry_run)
    assert store.count() == 1
    store.delete(source="handbook")
    assert store.delete(vanished=True).chunks == 0
