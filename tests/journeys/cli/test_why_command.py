"""``semlex why`` and ``semlex search --explain``."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from semlex.types.explanations import WhyCode
from tests.support.folders import documentation
from tests.support.shell import Shell, run_here


@pytest.mark.slow
def test_why_takes_the_options_of_the_search(shell: Shell) -> None:
    shell("index", "docs", "-c", "handbook", "--model", "none")
    there = shell("why", "keys.md", "rotate", "a", "key", "-c", "handbook")
    assert there.stdout.startswith("docs: keys.md: found\nit is hit 1 of 1 [found]\n")
    assert "word 'rotat' (weight " in there.stdout
    (filtered,) = shell.objects(
        "why", "docs/keys.md", "key", "-c", "handbook", "--filter", '@source_document == "fruit.txt"'
    )
    assert (filtered["code"], filtered["found"], filtered["reasons"][0]["code"]) == ("filtered", False, "filtered")
    excluded = shell("why", "keys.md", "vault -rotate key", "-c", "handbook")
    assert "[excluded]\n  what helps: " in excluded.stdout
    exact = shell("why", "keys.md:5", '-"ninety days" key', "-c", "handbook", "--mode", "keyword", "--top-k", "3")
    assert "[excluded]" in exact.stdout
    assert "[never_seen]" in shell("why", "nobody.md", "key", "-c", "handbook").stdout
    for option in (["--group", "2"], ["--max-results", "9"], ["--candidates", "40"], ["--fusion", "rrf"]):
        assert "[found]" in shell("why", "keys.md", "key", "-c", "handbook", *option).stdout
    shell("why", "keys.md", "-c", "handbook", code=2)
    shell("why", "keys.md", "key", "-c", "handbook", "--candidates", "1", code=2)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SEMLEX_OVERSAMPLING", "100", '"depth": 500'),
        ("SEMLEX_TOP_K", "1", "it is hit 1 of 1"),
        ("SEMLEX_ROUTE", "rules", "the query was taken as"),
    ],
)
def test_why_follows_the_settings_as_the_search_does(shell: Shell, variable: str, value: str, told: str) -> None:
    shell("index", "docs", "-c", "handbook", "--model", "none")
    shell.environment[variable] = value
    of_command = shell.objects("why", "fruit.txt", "a key is a yellow fruit", "-c", "handbook")[0]
    asked = "a key is a yellow fruit\n:json\n:why fruit.txt\n"
    session = run_here(("shell", "-c", "handbook"), shell.environment, shell.folder, asked)
    assert json.loads(session.stdout.splitlines()[-1]) == of_command
    assert told in json.dumps(of_command)


def test_an_explained_search(shell: Shell) -> None:
    shell("index", "docs", "-c", "handbook", "--model", "none")
    told = shell("search", "key", "-c", "handbook", "--explain").stdout
    work = "2 postings read, 0 blocks skipped, 1 chunks rescored"
    plan = f"plan: keyword: keyword index ({work}); 30 candidates of each search, 1 together"
    assert f"{plan}\nreranker: none\n1. keys.md:" in told
    *_, summary = shell.objects("search", "key", "-c", "handbook", "--explain")
    assert summary["explanation"]["hits"][0]["terms"][0]["term"] == "key"
    assert shell.objects("search", "key", "-c", "handbook")[-1]["explanation"] is None
    shell("search", "--after", "abc", "--explain", "-c", "handbook", code=2)


def test_the_page_names_every_code() -> None:
    page = documentation("search-options.md").read_text(encoding="utf-8").split("## Reasons\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(get_args(WhyCode))
