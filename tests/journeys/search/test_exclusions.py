"""What a search excludes, by ``-word`` or by ``exclude``, is left out however the answer comes about."""

import asyncio
import random
import re
from contextlib import contextmanager

import psycopg
import pytest

from semlex.errors import ConfigurationError
from semlex.retriever.json_fallback import JSONKBRetriever
from semlex.search.request import OPERATORS_NOTE
from semlex.types.documents import Document
from tests.support.retrievers import filled, ids_of
from tests.support.waiting import eventually, held

POSTINGS = "semlex.fruit_posting"
SAID_APART = {
    "apple -secret": ["secret"],
    'apple tree -"electric car"': ["electric car"],
    '-secret apple -"electric car" -lamp': ['"secret"', "electric, car", "lamp"],
}


def texts():
    """Most of them hold an excluded word, and those are nearest to the questions."""
    chance, made = random.Random(1), {}
    for number in range(160):
        words = chance.sample(("pear", "plum", "electric", "car", "cars", "tree", "lamp", "desk"), 3)
        if number % 5:
            words.insert(chance.randrange(4), chance.choice(("secret", "secrets", "electric car", "electric cars")))
        made[f"d{number}"] = f"{'apple ' if number % 3 else ''}{' '.join(words)} {number}"
    return made


TEXTS, APPLES = texts(), {"a": "a secret apple", "b": "an apple"}
DAMAGES = {
    "unreadable": f"UPDATE {POSTINGS} SET data = '\\x00'",
    "emptied": f"DELETE FROM {POSTINGS}",
    "whole": "SELECT",
}


def holds(text, question):
    """Whether a text holds something that the question excludes, by plain words."""
    words = f" {' '.join(word.rstrip('s') for word in text.split())} "
    excluded = {"-secret": " secret ", '-"electric car"': " electric car ", "-lamp": " lamp "}
    return any(part in question and phrase in words for part, phrase in excluded.items())


@contextmanager
def damaged(url, damage):
    """The keyword index is damaged while the block runs: so that nobody can read it, or so that nobody notices."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TEMPORARY TABLE kept AS TABLE {POSTINGS}")
        connection.execute(DAMAGES[damage])
        yield
        connection.execute(f"DELETE FROM {POSTINGS}")
        connection.execute(f"INSERT INTO {POSTINGS} TABLE kept")


async def late(searching, url):
    """The answer of a search whose statements on the keyword index are cancelled, as at a deadline."""
    cancelled = set()
    blocked = (
        "SELECT pid, query_start FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with held(url, POSTINGS) as connection:
        task = asyncio.ensure_future(searching)

        def over():
            connection.execute("SELECT pg_stat_clear_snapshot()")
            for statement in {*connection.execute(blocked)} - cancelled:
                cancelled.add(statement)
                connection.execute("SELECT pg_cancel_backend(%s)", [statement[0]])
            return task.done()

        await eventually(over)
    return await task


async def answer(retriever, chance, question, options):
    """The hits of one of the calls that search, with the number that was wanted."""
    retriever.info.keyword.index.cache.postings.clear()
    wanted, kind = chance.choice((1, 5, 25)), chance.choice(("search", "many", "pages", "explained", "grouped"))
    if kind == "many":
        return (await retriever.search_many([question, "pear"], wanted, **options))[0], wanted
    if kind == "pages":
        page = await retriever.search(question, 4, max_results=10, **options)
        hits = list(page)
        while page.next_cursor is not None:
            page = await retriever.search_page(page.next_cursor)
            hits += page
        return hits, 10
    if kind == "grouped":
        return await retriever.search(question, wanted, group_by="document", group_size=2, **options), 1
    options |= {"tuning": {"candidates": chance.choice((None, wanted))}, "explain": kind == "explained"}
    return await retriever.search(question, wanted, deadline=600, **options), wanted


@pytest.mark.direct
async def test_no_hit_holds_what_is_excluded(database_url, full):
    documents = [
        Document(text, {"n": n}, id=name, language="german" if n % 2 else None)
        for n, (name, text) in enumerate(TEXTS.items())
    ]
    async with filled(database_url, documents, collection="fruit") as retriever:
        for seed in range(1000) if full else (*range(8), 179):
            chance = random.Random(seed)
            question, state = chance.choice(tuple(SAID_APART)), ("whole", "unreadable", "late", "emptied")[seed % 4]
            mode = chance.choice((None, "vector", "hybrid", *(["keyword"] if state == "whole" else [])))
            filters = chance.choice((None, {"n": {"$lt": 40}}))
            apart = SAID_APART[question] if chance.random() < 0.5 else None
            asked = "apple tree" if apart else question
            searching = answer(retriever, chance, asked, {"mode": mode, "filters": filters, "exclude": apart})
            if state == "late":
                hits, wanted = await late(searching, database_url)
            else:
                with damaged(database_url, state):
                    hits, wanted = await searching
            told = f"seed {seed}: {asked}, {apart}, {mode}, {state}"
            assert not [hit.content for hit in hits if holds(hit.content, question)], told
            left = [text for text in [*TEXTS.values()][: filters and 40] if not holds(text, question)]
            if mode == "keyword":
                left = [text for text in left if "apple" in text or ("tree" in text and "tree" in asked)]
            assert len(hits) >= min(wanted, len(left)), told


async def test_engines_that_know_no_exclusions(database_url):
    for keyword, expected in (("none", ["b"]), ("tsvector", ["a", "b"])):
        async with filled(database_url, APPLES, keyword=keyword, collection=keyword) as retriever:
            assert sorted(ids_of(await retriever.search("apple -secrets", mode="vector"))) == expected, keyword
    texts = {f"s{number}": f"apple apple secret {number}" for number in range(40)} | {"b": "an apple in a long text"}
    async with filled(database_url, texts, keyword="tsvector") as retriever:
        for mode in ("keyword", "hybrid", "vector"):
            found = await retriever.search("apple", 3, mode=mode, exclude=["secrets"], tuning={"candidates": 3})
            assert ids_of(found) == ["b"], mode
        assert (await retriever.why("s3", "apple", mode="keyword", exclude=["secrets"])).code == "excluded"


# A text, and questions with a flag or quotes that it answers. Read as operators, all but the flags with two dashes
# would leave that text out.
ANSWERS = {
    "executable": ("The flags -x and -y list executable files and links.", "what are the files with -x and -y"),
    "verbose": (
        "With -v or -verbose the old shell prints verbose lines.",
        *("Why does -v print nothing?", "What does -verbose do in the old shell?"),
    ),
    "cache": (
        "Use -n or --no-cache-dir to install and build without the cache.",
        *(
            "how do I skip the cache with -n",
            "build --no-cache -n",
            "install fails with --no-cache-dir -n on the server",
        ),
    ),
    "root": (
        "To run as root or administrator is dangerous, in a container, too. root",
        *("Which option is meant by “run as root”?", "„run as root“ in a container"),
        *("«run as root» dans un conteneur", 'What does "run as administrator" mean here?'),
    ),
    "folder": (
        "Copy a folder with -r, which is -recursive.",
        *("Is -recursive needed to copy a folder?", "copy a folder -r"),
    ),
    "archive": (
        "tar -xzf unpacks an archive; archives keep owners; -v lists, -C names a folder.",
        *("tar -xzf archive -C folder -v", 'Is it true that "tar archives" keep owners?'),
    ),
    "clone": (
        "A shallow clone (clonar) has -depth or -d 1.",
        *("¿Para qué sirve -depth al clonar?", "shallow clone -d 1"),
    ),
    "port": (
        "The server listens on a port: -p or -port 8080. Another address is in use.",
        *("why is -port refused, is it taken?", "listen -p 8080", "the server says “address in use”"),
    ),
    "quiet": ("The -quiet flag hides every line.", "Can I leave the -quiet flag out?"),
}


async def test_sentences_with_flags_and_quotes_lose_no_answer(database_url):
    async with filled(database_url, {word: text for word, (text, *_) in ANSWERS.items()}) as retriever:
        for word, question in ((word, question) for word, (_, *asked) in ANSWERS.items() for question in asked):
            found = await retriever.search(question, 3)
            plain = await retriever.search(re.sub(r"-\B|\B-|[“”„«»\"]", " ", question), 3, mode="keyword")
            assert word in ids_of(found), question
            by_words = await retriever.search(question, 3, mode="keyword")
            assert ids_of(by_words) == ids_of(plain), question
            assert by_words.warnings == found.warnings == [OPERATORS_NOTE], question
        assert (await retriever.search("files -x --all")).warnings == [OPERATORS_NOTE]
        assert not (await retriever.search("is it a well-known port --quiet?")).warnings
        left = await retriever.search("how the quiet server prints verbose lines to a port -archive -folder -clone", 9)
        assert {"archive", "folder", "clone"}.isdisjoint(ids_of(left))
        assert not left.warnings


async def test_exclude_is_said_apart_from_the_question(database_url, tmp_path):
    async with filled(database_url, APPLES) as retriever:
        found = await retriever.search("which apple?", exclude=["secrets", "the"])
        assert ids_of(found) == ["b"]
        note = "exclude 'the' excludes nothing: it has no words but stop words, which are not indexed"
        assert found.warnings == [note]
        assert "secret" not in found[0].excerpt
        by_vector = await retriever.search(vector=[1.0] * retriever.embedder.dimensions, exclude=["secrets"])
        assert ids_of(by_vector) == ["b"]
        context = await retriever.context("which apple?", exclude=["secret"])
        assert [one.document for one in context.sources] == ["b"]
        answer = await retriever.answer("which apple?", exclude=["secret apple"])
        assert ids_of(answer.context.results) == ["b"]
        for wrong in ("secret", [7], ["…"]):
            with pytest.raises(ConfigurationError, match="exclude"):
                await retriever.search("apple", exclude=wrong)
        # A search by vectors alone says why a document is left out.
        told = await retriever.why("a", "apple -secrets", mode="vector")
        assert (told.found, told.code) == (False, "excluded")
        assert 'it contains "secret"' in told.reasons[0].text
        assert (await retriever.why("b", "apple -secrets", mode="vector")).found
    # A fallback leaves it out as well.
    (tmp_path / "kb.json").write_text('[{"id": 1, "text": "a secret apple"}, {"id": 2, "text": "an apple"}]')
    assert ids_of(await JSONKBRetriever(tmp_path).search("apple -secrets")) == ["2"]
    assert ids_of(await JSONKBRetriever(tmp_path).search("which apple has -s secrets?")) == ["1", "2"]
