"""``semlex eval checkup``, and the page that it writes."""

import json
import re
import signal
from html.parser import HTMLParser
from typing import get_args

import pytest

from semlex.cli.commands import evaluate as command
from semlex.cli.reports import REASONS, checkup_page, print_checkup
from semlex.diagnostics import checkup
from semlex.types.checkups import AskedHeading, Checkup, CheckupCode, DocumentCheckup, Dominating, LeftOut, Share
from tests.support.clients.stopped_command import halted
from tests.support.folders import documentation


def test_a_report(shell):
    shell("index", "docs", "-c", "handbook", "--model", "none", "--min-tokens", "0")
    told = shell("eval", "checkup", "-c", "handbook", "--html", "report.html")
    assert "find their own section in the first three hits\n" in told.stdout
    assert "searched by words alone" in told.stdout
    assert "nothing was written" in told.stderr
    assert told.stderr.endswith("written: report.html\n")
    page = (shell.folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    (values,) = shell.objects("eval", "checkup", "-c", "handbook", "--mode", "keyword", "--sample", "2", "--seed", "7")
    assert (values["mode"], values["result"]["asked"], values["seed"]) == ("keyword", 2, 7)
    assert [path.name for path in shell.folder.iterdir() if "report" in path.name] == ["report.html"]


def test_wrong_options_and_pages_that_cannot_be_written_are_refused(shell, monkeypatch):
    shell("index", "docs", "-c", "handbook", "--model", "none", "--min-tokens", "0")
    asking = ("eval", "checkup", "-c", "handbook")
    for wrong in (
        ["--sample", "0"], ["--sample", "many"], ["--seed", "-1"], ["--mode", "both"],
        ["--html", "nowhere/report.html"], ["--html", "docs"], ["more"],
    ):  # fmt: skip
        assert shell(*asking, *wrong, code=2).stdout == ""
    shell("eval", "checkup", "-c", "nobody", code=6)
    assert "cannot be written" in shell(*asking, "--html", "n" * 300 + ".html", code=2).stderr

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    told = shell(*asking, "--html", "report.html", code=2)
    assert "cannot be written: No space left on device" in told.stderr
    assert list(shell.folder.glob("*.html*")) == []


def test_the_time_is_estimated_after_the_first_headings(shell, monkeypatch):
    monkeypatch.setattr(command, "ANNOUNCED_SECONDS", 0.0)
    sections = [f"## Part {number}\n\nword{number}" for number in range(checkup.FIRST_BATCH + 1)]
    (shell.folder / "docs" / "parts.md").write_text("\n\n".join(sections), encoding="utf-8")
    shell("index", "docs", "-c", "c", "--model", "none", "--min-tokens", "0")
    told = shell("eval", "checkup", "-c", "c").stderr
    assert re.search(r"^this takes about \d+ s; --sample N draws fewer headings$", told, re.MULTILINE), told


@pytest.mark.slow
def test_it_ends_at_once(shell):
    """Ctrl-C while headings are asked; nothing is left beside the page's place."""
    shell("index", "docs", "-c", "c", "--model", "none", "--min-tokens", "0")
    command, moment = ("eval", "checkup", "-c", "c", "--html", "page.html"), ("ask a heading", "before", 1)
    with halted(shell, command, moment, "c_chunk", mode="ACCESS EXCLUSIVE") as (program, _):
        program.send(signal.SIGINT)
        assert program.ended() == 130
        assert program.said.endswith("interrupted\n")
        assert "Traceback" not in program.said
    assert [path for path in shell.folder.iterdir() if "page.html" in path.name] == []


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e&\"'\n" + "endless " * 200


def hostile():
    """A report in which every text is one."""
    missed = [AskedHeading(HOSTILE, (HOSTILE,), HOSTILE, 9, code, (HOSTILE, "")) for code in get_args(CheckupCode)]
    found = AskedHeading(HOSTILE, (HOSTILE,), HOSTILE, 1, None, ())
    nowhere = AskedHeading(HOSTILE, (HOSTILE,), HOSTILE, None, "no_shared_word", ())
    share = Share(1, 7, 1 / 7, (0.1, 0.3))
    return Checkup(
        collection="c", mode="hybrid", model=HOSTILE, top=3, headings=7, chunks=7, left_out=LeftOut(1, 2, 3, 4, 5, 6),
        result=share, with_duplicates=share, ranks={1: 0.1, 3: 0.2}, reasons=dict.fromkeys(get_args(CheckupCode), 1),
        documents=(
            DocumentCheckup(HOSTILE, HOSTILE, 3, (*missed, nowhere)),
            DocumentCheckup("", "", 3, (missed[0], found)),
        ),
        dominating=(Dominating(HOSTILE, HOSTILE, 5, 0.5, 0.1),),
        alone={"vector": 0.4, "keyword": 0.3},
        embedded=7, seconds=1.0, seed=0, notes=(HOSTILE,),
    )  # fmt: skip


class Tags(HTMLParser):
    """The elements of a page, each closed, with the addresses in it."""

    EMPTY = frozenset({"meta", "br"})

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.addresses, self.text = [], set(), [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.addresses += [name for name, _ in attrs if name in {"src", "href"} or name.startswith("on")]
        if tag not in self.EMPTY and not (
            self.open and self.open[-1] == "svg" and tag in {"line", "circle", "polyline"}
        ):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_nothing_of_a_document_reaches_the_page_as_markup():
    page = checkup_page(hostile())
    tags = Tags(page)
    assert tags.open == []
    assert tags.seen.isdisjoint({"script", "img", "iframe", "link", "object", "a"})
    assert tags.addresses == []
    assert "<script>alert(1)" in tags.text  # as text
    assert not {*"\x1b\u202e\0"} & {*page}
    assert "http" not in page.replace("http-equiv", "")
    assert len(page) < 30_000
    for part in ("prefers-color-scheme: dark", "@media print", "Content-Security-Policy", "default-src 'none'"):
        assert part in page


def test_nothing_of_a_document_steers_the_terminal_and_json_has_all_of_it(capsys):
    print_checkup(hostile())
    out, err = capsys.readouterr()
    assert not {*"\x1b\u202e"} & {*out, *err}
    assert max(map(len, out.splitlines())) < 600
    assert "14 % of the headings, asked as questions, find their own section in the first three hits" in out
    assert "For comparison" in out
    assert "weight" not in out
    values = json.loads(json.dumps(hostile().to_dict()))
    assert len(values["documents"][0]["headings"]) == len(get_args(CheckupCode)) + 1
    assert values["ranks"] == {"1": 0.1, "3": 0.2}
    assert values["alone"] == {"vector": 0.4, "keyword": 0.3}


def test_every_code_is_told():
    page = documentation("evaluate.md").read_text(encoding="utf-8")
    assert set(REASONS) == set(get_args(CheckupCode))
    assert all(f"| `{code}` |" in page for code in REASONS)
