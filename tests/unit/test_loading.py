"""Every file that can be text is found once and read, web pages as Markdown, and nothing hangs."""

import codecs
import hashlib
import os
import re
import socket
import stat
import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.files import discovery, safe_open
from semlex.ingest.files.discovery import MAX_DEPTH, FileProblem, FoundFile, read_file
from semlex.ingest.files.roots import Place, is_below
from semlex.ingest.files.selection import Selection, Skipped
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions
from semlex.ingest.loaders.markdown import HtmlLoader, MarkdownLoader, html_to_markdown
from semlex.ingest.loaders.registry import loader_of, loaders
from semlex.options.collection import DEFAULT_LIMITS, MIB, FileLimits


def find_files(paths, include=None, exclude=(), *, recursive=True, limits=DEFAULT_LIMITS):
    selection = Selection(include, exclude, loaders().keys(), recursive, limits)
    return discovery.find_files(paths, selection)


def load_file(found, **options):
    read = read_file(replace(found, **options))
    if isinstance(read, FileProblem):
        return read
    try:
        return loader_of(read, loaders()).load(read, LoadOptions())
    except LoadError as error:
        return FileProblem(found.uri, error.code, error.message)


def refused(found, code, **options):
    result = load_file(found, **options)
    assert isinstance(result, FileProblem)
    assert result.code == code, found


def split(entries):
    listed = list(entries)
    found = [entry.uri for entry in listed if isinstance(entry, FoundFile)]
    return found, {entry.source_document: entry.code for entry in listed if isinstance(entry, FileProblem)}


def write(root, *uris):
    for uri in uris:
        path = root / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {uri}")


def file_of(uri, text=""):
    return FileBytes(uri, text.encode(), b"", datetime.now(UTC))


def markdown_title(text):
    return MarkdownLoader().load(file_of("a.md", text), LoadOptions()).title


def stored(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    (found,) = find_files(tmp_path / name)
    return load_file(found)


@pytest.fixture(params=[True, False], ids=["by descriptor", "by path"])
def both_ways(request, monkeypatch):
    """Systems that open relative to a folder, and those that cannot."""
    assert safe_open.BY_DESCRIPTOR
    monkeypatch.setattr(safe_open, "BY_DESCRIPTOR", request.param)


# --- finding ----------------------------------------------------------------------------------------------------------
def test_order_patterns_and_what_is_skipped(tmp_path, both_ways):
    write(tmp_path, "b.md", "a.TXT", "z/README", "a/deep/x.py", "a.d/y.html", "picture.png", "c.rst")
    write(tmp_path, ".git/x.md", ".venv/x.md", "node_modules/x.md", "__pycache__/x.md", ".hidden.md", "a/.env")
    everything = ["a.TXT", "b.md", "c.rst", "a/deep/x.py", "a.d/y.html", "z/README"]
    assert split(find_files([tmp_path])) == (everything, {})
    assert split(find_files(str(tmp_path)))[0] == everything
    assert split(find_files(tmp_path, recursive=False))[0] == ["a.TXT", "b.md", "c.rst"]
    assert split(find_files(tmp_path, ["*.MD", "a/**"]))[0] == ["b.md", "a/deep/x.py"]
    assert split(find_files(tmp_path, ["**/*.py", "**/b.md"]))[0] == ["b.md", "a/deep/x.py"]
    assert split(find_files(tmp_path, exclude=["a", "*.txt", "z/*"]))[0] == ["b.md", "c.rst", "a.d/y.html"]
    assert split(find_files([tmp_path / "picture.png", tmp_path / ".hidden.md"]))[0] == ["picture.png", ".hidden.md"]


def test_a_found_file_says_where_it_is(tmp_path):
    write(tmp_path, "a/b.md")
    os.utime(tmp_path / "a" / "b.md", (1, 1_000_000_000))
    (found,) = find_files(tmp_path)
    assert found == FoundFile(tmp_path.resolve(), "a/b.md", len("text of a/b.md"), "a/b.md")
    assert found.path == tmp_path.resolve() / "a" / "b.md"
    read = read_file(found)
    assert read.modified_at == datetime.fromtimestamp(1_000_000_000, UTC)
    assert read.content_hash == hashlib.sha256(b"text of a/b.md").digest()
    assert (read.uri, read.data) == ("a/b.md", b"text of a/b.md")
    assert loader_of(read, loaders()).name == "markdown"


def test_large_files(tmp_path):
    write(tmp_path, "good.md")
    for name in ("sparse.md", "sparse.PDF"):
        with (tmp_path / name).open("wb") as sparse:
            sparse.truncate(2 * 1024**3)
    told = {entry.source_document: entry.message for entry in find_files(tmp_path) if isinstance(entry, FileProblem)}
    assert told == {
        "sparse.md": "2,048.0 MiB or more, the limit is 16: split it, or raise the setting max_file_mib",
        "sparse.PDF": "2,048.0 MiB or more, the limit is 128: split it, or raise the setting max_document_mib",
    }
    size = len("text of good.md")
    assert split(find_files(tmp_path, limits=FileLimits(file=size)))[0] == ["good.md"]
    assert split(find_files(tmp_path, limits=FileLimits(file=size - 1)))[1]["good.md"] == "too_large"
    with (tmp_path / "large.pdf").open("wb") as sparse:
        sparse.truncate(100 * MIB)
    assert "large.pdf" in split(find_files(tmp_path))[0]
    assert "large.pdf" in split(find_files(tmp_path, limits=FileLimits(document=MIB)))[1]
    (good,) = find_files(tmp_path / "good.md")
    assert isinstance(load_file(good, max_bytes=size), LoadedDocument)
    refused(good, "too_large", max_bytes=size - 1)


def test_links_are_followed_inside_alone_and_nothing_comes_twice(tmp_path, both_ways):
    write(tmp_path, "a.md", "sub/b.md")
    (tmp_path / "hard.md").hardlink_to(tmp_path / "a.md")
    (tmp_path / "0 first.md").symlink_to("sub/b.md")
    given_paths = [tmp_path, tmp_path / "sub", tmp_path / "a.md", tmp_path]
    assert split(find_files(given_paths)) == (["a.md", "sub/b.md"], {})
    root, outside = tmp_path / "root", tmp_path / "root2"
    write(root, "a.md", ".github/README.md", ".hidden/x.md")
    write(outside, "secret.md", "folder/secret.md")
    for link, target in {
        "README.md": ".github/README.md",  # its target is not found by itself
        "again.md": root / "a.md",
        "out.md": outside / "secret.md",
        "out.png": outside / "secret.md",
        "up.md": "../root2/secret.md",
        "out": outside / "folder",
        "inside": ".hidden",
        "loop": ".",
        "self.md": "self.md",
        "dangling.md": "nowhere.md",
    }.items():
        (root / link).symlink_to(target)
    found, problems = split(find_files(root))
    assert found == ["a.md", "README.md"]
    assert problems.pop("self.md") in ("missing", "not_regular", "failed")
    out = dict.fromkeys(("out.md", "up.md", "out"), "link_out")
    assert problems == out | {"inside": "link_to_folder", "dangling.md": "missing"}
    loaded = [load_file(entry) for entry in find_files(root) if isinstance(entry, FoundFile)]
    assert [one.text for one in loaded] == ["text of a.md", "text of .github/README.md"]


@pytest.mark.parametrize("swapped", ["file", "folder", "root"])
def test_a_link_put_in_place_after_the_walk_is_not_followed(tmp_path, both_ways, swapped):
    root, outside = tmp_path / "root", tmp_path / "outside"
    write(root, "sub/a.md")
    write(outside, "a.md", "sub/a.md")
    (found,) = find_files(root)
    victim = {"file": root / "sub" / "a.md", "folder": root / "sub", "root": root}[swapped]
    target = {"file": outside / "a.md", "folder": outside, "root": outside}[swapped]
    victim.rename(tmp_path / "moved")
    victim.symlink_to(target)
    refused(found, "not_regular")


def test_only_regular_files_are_opened(tmp_path, both_ways):
    write(tmp_path, "good.md")
    os.mkfifo(tmp_path / "fifo.md")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.md"))
        (tmp_path / "folder.md").mkdir()
        (tmp_path / "device.md").symlink_to("/dev/zero")
        expected = {"fifo.md": "not_regular", "socket.md": "not_regular", "device.md": "link_out"}
        assert split(find_files(tmp_path)) == (["good.md"], expected)
        for name in ("fifo.md", "socket.md", "folder.md"):  # put in place after the walk: neither read nor waited for
            refused(FoundFile(tmp_path.resolve(), name, 0, name), "not_regular")
    assert split(find_files(["/dev/zero", "/dev/null"]))[1] == {"zero": "not_regular", "null": "not_regular"}


def test_a_file_that_grows_while_it_is_read_is_refused_and_an_impossible_date_is_bounded(tmp_path, monkeypatch):
    write(tmp_path, "a.md")
    (found,) = find_files(tmp_path)
    read, real = os.read, os.fstat

    def fstat(file):
        values = list(real(file))
        values[stat.ST_MTIME] = 10**18
        return os.stat_result(values)

    def grow(file, size):
        with (tmp_path / "a.md").open("a") as growing:
            growing.write("more" * 100)
        return read(file, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fstat)
        assert read_file(found).modified_at.year == 9999
    monkeypatch.setattr(os, "read", grow)
    refused(found, "too_large", max_bytes=1000)
    assert (tmp_path / "a.md").stat().st_size < 5000


@pytest.mark.slow
def test_a_tree_2000_deep(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(2000):  # longer than any path may be, so step by step
        file = os.open("x.md", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
        os.close(file)
        os.mkdir("deep", dir_fd=folder)
        below = os.open("deep", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    try:
        found, problems = split(find_files(tmp_path))
        assert len(found) == MAX_DEPTH + 1
        assert list(problems.values()) == ["too_deep"]
    finally:
        # pytest's own removal recurses, and would fail.
        subprocess.run(["rm", "-rf", str(tmp_path / "deep")], check=True)


def test_vanishing_files_are_reported(tmp_path, both_ways):
    write(tmp_path, "a.md", "sub/b.md", "sub2/c.md")
    walk = find_files(tmp_path)
    first = next(walk)
    for name in ("sub/b.md", "a.md"):
        (tmp_path / name).unlink()
    (tmp_path / "sub").rmdir()
    assert split(walk) == (["sub2/c.md"], {"sub": "missing"})
    refused(first, "missing")
    problems = split(find_files([tmp_path / "a.md", "no\0such"]))[1]
    assert problems == {str(tmp_path / "a.md"): "missing", "'no\\x00such'": "bad_name"}


# --- reading ----------------------------------------------------------------------------------------------------------
@given(data=st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    result = stored(tmp_path_factory.getbasetemp(), "any.md", data)
    if isinstance(result, LoadedDocument):
        assert "\0" not in result.text
        result.text.encode()  # storable: no lone surrogate
    else:
        assert result.code in ("binary", "not_utf8", "not_utf16", "parser_failed", "no_reader")  # %PDF-


def test_what_is_no_text_is_refused_with_its_place(tmp_path):
    for data, code, place in [
        ("Stra\xdfe".encode("latin-1"), "not_utf8", "byte 4 "),
        (codecs.BOM_UTF8 + b"ab\xff", "not_utf8", "byte 5 "),
        (b"\x89PNG\r\n\x00\x00", "binary", "byte 6 "),
        (codecs.BOM_UTF16_LE + b"a\0\0\xd8", "not_utf16", "byte 4 "),
        (codecs.BOM_UTF16_LE + b"a\0\0\0b\0", "binary", "character 1 "),
        (codecs.BOM_UTF32_LE + "a".encode("utf-32-le"), "binary", "character 0 "),
    ]:  # fmt: skip
        result = stored(tmp_path, "a.md", data)
        assert result.code == code
        assert result.message.startswith(place)


def test_long_lines_do_not_slow_the_title(tmp_path):
    for filling in (" ", "#", "# ", "=", "`", "--- \n"):
        markdown_title("# " + filling * 200_000 + "x")
    assert stored(tmp_path, "a.md", b"# " + b"long " * 1000).title is not None


# --- web pages --------------------------------------------------------------------------------------------------------
def test_pages_formats_and_titles():
    page = """<!DOCTYPE html><html><head><title>The &amp;
    title</title><style>p { color: red }</style></head>
    <body><!-- a comment <p> --><nav>Home</nav>
    <h1>One<br/>heading</h1><p class="a>b">Text with <b>bold</b>, &lt;tags&gt; &amp; more.
    # no heading<br># nor here<br>====</p>
    <script>if (a < b) { document.write("<p>no</p>") }</script>
    <ul><li>first<li><p>second</p><p>its second paragraph</p></li></ul>after
    <table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>
    <pre>  indented ```
# no heading</pre>
    <H2 id=x>Two</H2><svg><title>no</title></svg>tail <img src="x" alt='a picture'> 1 < 2 & 3 <> </3"""
    loaded = HtmlLoader().load(file_of("page.html", page), LoadOptions())
    assert loaded.title == "The & title"
    assert loaded.text.split("\n\n") == [
        "# One heading", "Text with bold, <tags> & more. # no heading\n\\# nor here\n\\====", "- first", "- second",
        "its second paragraph", "after", "a | b", "1 | 2", "````\n  indented ```\n# no heading\n````", "## Two",
        "tail a picture 1 < 2 & 3 <> </3",
    ]  # fmt: skip
    for page, text, *title in [
        ("<nav>a<nav>b</nav>c</nav>text", "text"),
        ("one<aside>a</aside>two<footer>c</footer>", "one\n\ntwo"),
        ('<div id="x" class="big menu"><div>a</div>b</div>text', "text"),
        ("<ul class=toc><li>a</ul>text<div role='Navigation'>a</div>", "text"),
        ('<h2>Two<a class="headerlink" href="#two">\u00b6</a></h2>text', "## Two\n\ntext"),
        ('<p class="menu">text</p><div data-x="menu">too</div>', "text\n\ntoo"),
        ("<nav>nothing else</nav>", "nothing else"),  # better than no text
        ("<div class=menu>never closed", "never closed"), ("", ""), ("<h1>Only</h1>", "# Only", "Only"),
        ("<h1></h1><title></title>x", "x"), ("<title>never closed", "", "never closed"),
        ("<title>never <p>closed", "closed", "never"),
        ("a<script>never closed", "a"), ("a<script>x</SCRIPT >b", "ab"), ("a<!-- never closed <p>b", "a"),
        ("a<!-->b", "ab"), ("a<svg/>b", "ab"), ("a<![if x]>b<?php c ?>d", "abd"), ("a<p title='never closed>b", "a"),
        ("a<template><template>x</template>y</template>b", "ab"), ("<textarea><p>one</textarea>", "<p>one"),
        ("a</\u00e9>b</3>c", "a</\u00e9>b</3>c"),  # a name begins with a letter of ASCII
        ("a<script>b</\u017fcript>c</script>d", "ad"), ("&#0;&#xD800;", "\ufffd\ufffd"),
        ("a&amp;&#" + "9" * 5000 + ";<b>&amp;", "a&amp;&#" + "9" * 5000 + ";&"),  # no number that Python makes
    ]:  # fmt: skip
        assert html_to_markdown(page) == (text, *(title or [None]))
    for uri, expected in [
        ("a/b.MD", "markdown"), ("x.htm", "html"), ("Makefile", "code"), ("a.py", "code"), ("README", "text"),
        (".md", "markdown"),
    ]:  # fmt: skip
        assert loader_of(file_of(uri), loaders()).name == expected
    for text, title in [
        ("# One\n# Two", "One"), ("text\n\n  #  Spaced out ## \n", "Spaced out"), ("# C#", "C#"),
        ("#\n# ##\n#tag\n## Two\n# One", "One"), ("Under\n=====\n", "Under"), ("\n=====\n", None),
        ("```\n# code\n```\n# Title", "Title"),
        ("~~~~\n# code\n~~~\n# code\n~~~~\n# Title", "Title"),
        ('---\ntitle: "Front: it"\ntags: []\n---\n# Other', "Front: it"),
        ("---\ntags: []\n---\n# Other", "Other"),
        ("---\ntitle:\n...\n", None), ("no title", None), ("", None),
        ("x" * 100_000 + "\n# Too far down", None),
    ]:  # fmt: skip
        assert markdown_title(text) == title


HOSTILE = (
    '<!--|<a |<!|<![|</|&|&#|<p|<a b="|<a b=\'">|<?|<script>|<title>|<textarea>|<![CDATA[|<div>|<br>| <b> </b>|`|<a =|'
    "<a = |<img alt|<pre>|<svg>|#|\t|<a '>|<nav>|<div class|<div class=|<div id=menu>|<|<title |<pre>x|'|=|&#x|&a|&amp|"
    '"|<nav></nav>|<nav/>x|</title|<title></title|<script></scrip|<div id= >|<img alt="\' >|\n<br>|<li>|<h1>a|-->'
)
HOSTILE_ATTRIBUTES = ("id=", " id=", " id='", ' class="', " class = '", "  class", "=", "='", "\n")
HOSTILE_PIECES = [("", piece) for piece in HOSTILE.split("|")] + [("<div ", piece) for piece in HOSTILE_ATTRIBUTES]


@pytest.mark.slow
@pytest.mark.parametrize(("start", "piece"), HOSTILE_PIECES)
def test_long_malformed_pages_are_read_to_their_end(start, piece):
    """A reader that looks again at all that follows each piece would look at a million times a million characters."""
    result = html_to_markdown(start + piece * (4_000_000 // len(piece)) + ">x")
    assert len(result.text) <= 12_000_000


PIECES = "< > </ <p> <li> <h1> <pre> </pre> <title> </title> <!-- --> <script> </script> <svg> </svg> <td> <tr> <br> ="


@given(page=st.lists(st.text(max_size=8) | st.sampled_from([*PIECES.split(), *"/#\"' ", "```"]), max_size=30))
def test_any_page_becomes_storable_text(page):
    result = html_to_markdown("".join(page))
    result.text.encode()  # storable: no lone surrogate
    fence = ""
    for line in result.text.split("\n"):
        if line.startswith("```"):
            fence = "" if line == fence else fence or line
    assert fence == ""  # no code block of the page swallows what follows


@given(words=st.lists(st.sampled_from(["one", "#", "##", "===", "---", "```", "~~~", "two"]), min_size=1, max_size=6))
def test_text_never_becomes_structure(words):
    result = html_to_markdown(f"<p>{'<br>'.join(words)}</p>")
    assert markdown_title(result.text) is None
    assert result.text.replace("\\", "").split("\n") == words


# --- which files of a folder are read ---------------------------------------------------------------------------------
def found(path, skipped=None, include=None):
    selection = Selection(include, [], loaders().keys())
    return [entry.uri for entry in discovery.find_files([path], selection, skipped) if isinstance(entry, FoundFile)]


parts = st.lists(st.sampled_from(["a", "b", "ab", "."]), min_size=1, max_size=4).map("/".join)


@given(parts, st.frozensets(parts))
def test_what_is_below_a_path(uri, below):
    assert is_below(uri, below) == any(part in (".", uri) or uri.startswith(f"{part}/") for part in below)


def test_what_is_left_out_is_counted(tmp_path):
    write(tmp_path, "a.md", "b.xyz", "c.xyz", "LICENSE", ".hidden.md", "searchindex.js", "x.min.js", "_build/a.md")
    write(tmp_path, "node_modules/a.js", "ignored.md", "sub/more.md")
    (tmp_path / ".gitignore").write_text("ignored.md\nsub/\n")
    skipped = Skipped()
    assert found(tmp_path, skipped) == ["a.md"]
    assert skipped.by_reason() == {
        "format": {".xyz": 2, "LICENSE": 1},
        "generated": {".js": 2, "_build/": 1, "node_modules/": 1},
        "ignored": {".md": 1, "sub/": 1},
    }
    # What is named is read all the same.
    assert found(tmp_path / "b.xyz") == ["b.xyz"]
    assert found(tmp_path, include=["*.xyz", "x.min.js"]) == ["b.xyz", "c.xyz", "x.min.js"]


def test_a_hostile_or_damaged_file_stops_nothing(tmp_path):
    write(tmp_path, "a.md", "b.md", "c.md", "sub/.gitignore/x.md")
    (tmp_path / ".gitignore").write_bytes(b"!\n\xff\xfe[\nb.md\n\0\n")
    (tmp_path / ".semlexignore").symlink_to("/etc/hostname")
    assert found(tmp_path) == ["a.md", "c.md"]
    write(tmp_path, "a.md", "keep.md", "deep/keep.md", "deep/b.md", "deep/er/c.md", "deep/er/keep.md")
    (tmp_path / ".gitignore").write_text("*.md\n!keep.md\n")
    (tmp_path / "deep" / ".semlexignore").write_text("!b.md\n/keep.md\n")
    assert found(tmp_path) == ["keep.md", "deep/b.md", "deep/er/keep.md"]
    assert found(Place(tmp_path / "deep", tmp_path, "docs")) == ["deep/b.md", "deep/er/keep.md"]
    write(tmp_path, "a.md", "out/b.md", "out/deep/c.md")
    (tmp_path / ".gitignore").write_text("out/\n")
    skipped = Skipped()
    for folder in ("out", "out/deep"):
        assert found(Place(tmp_path / folder, tmp_path, "docs"), skipped) == []
    assert skipped.by_reason() == {"ignored": {"out/": 2}}


KNOWN = """a b/ *.md !c.md /a a/b **/b a/** d.t?t #no [cd].md * !a/ !*/ */ a*b ** a/**/d.txt **/a/** a/**/ */b/*.md
c.m\\d [!c].md [^d].txt [b-d].md [d-b].md []c].md [[:alpha:]].md [c [[:no:]].md \\!a \\"""
# A slash in brackets is not among them: git reads it as a character, which no name has.
MADE = st.text("abcdmtx.*?[]!^-/\\ #:", max_size=6).filter(lambda line: not re.search(r"\[[^]]*/", line))
PATTERNS = st.one_of(st.sampled_from([*KNOWN.split(), "", "d.txt ", "b\\ "]), MADE)


@pytest.mark.slow
@given(st.lists(PATTERNS, max_size=5), st.lists(PATTERNS, max_size=3))
def test_what_git_ignores_is_ignored(tmp_path_factory, top, below):
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    files = [f"{x}{y}{z}" for x in ("", "a/", "b/") for y in ("", "a/", "b/") for z in ("c.md", "d.txt")]
    write(root, *dict.fromkeys(files))
    (root / ".gitignore").write_text("\n".join(top))
    (root / "a" / ".gitignore").write_text("\n".join(below))
    command = ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert sorted(found(root)) == sorted(uri for uri in listed if not uri.endswith(".gitignore"))


def test_a_hostile_pattern_takes_no_longer_than_another(tmp_path):
    for pattern in ["*a" * 100 + "b", "**/a/" * 100 + "b", "a*" * 100 + "/b", "[a-z]*" * 50 + "?b"]:
        write(tmp_path, "a" * 200 + ".md", "a/" * 60 + "x.md")
        (tmp_path / ".gitignore").write_text(f"{pattern}\n")
        assert len(found(tmp_path)) == 2
