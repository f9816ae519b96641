"""Every form of the same settings is read as the same; of several sources the first counts; a mistake has its place."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.settings import files, sources
from semlex.settings.sources import WatchedSettings, load_settings, read_settings
from semlex.settings.table import NAMED, SETTINGS, Settings, as_toml
from tests.support import settings_forms as forms
from tests.support.settings_forms import NAMES, TEXTS, VALUES, flat, in_sections, variables, world

WHOLE = "must be a whole number between 1 and 1,000"
SECRET = "hunter2"  # noqa: S105 - a text
# As the documentation of such files has it.
RAG = {
    "embeddingModel": "text-embedding-3-small", "collectionName": "papers", "chunkSize": 500, "chunkOverlap": 50,
    "topK": 5, "hybridSearchEnabled": True, "hybridSearchWeight": 0.7, "rerankingEnabled": True,
    "rerankerProvider": "auto", "rerankerModel": "google/gemini-2.5-flash",
    "contextualEnrichmentEnabled": False, "contextualEnrichmentModel": "google/gemini-2.5-flash",
    "adaptiveRoutingEnabled": False, "adaptiveRoutingModel": "google/gemini-2.5-flash",
    "qa": {"model": "anthropic/claude-3-5-sonnet", "temperature": 0.1},
}  # fmt: skip
ROUTED = {"adaptiveRoutingEnabled": True, "adaptiveRoutingModel": "a/b"}
# Each example makes folders and files.
BOUNDED = settings(max_examples=min(1000, settings().max_examples))
OTHERS = [(setting.name, variable) for setting in SETTINGS for variable in setting.others]


def read(**given):
    with world(**given):
        return load_settings()


@pytest.mark.slow
@BOUNDED
@given(values=forms.SETTINGS_DRAWN, key=st.integers(0, 2))
@example(values={"collection": 'a\x7f"\\é😀'}, key=0)
def test_every_form_is_read_as_the_same(values, key):
    expected = Settings().values() | values
    assert read(own=flat(values)).values() == expected
    assert read(own=in_sections(values, key)).values() == expected
    assert read(own=forms.as_json(values), name="settings.json").values() == expected
    assert read(environment=variables(values)).values() == expected
    written = read(own=as_toml(values))
    assert (written.values(), written.origins.keys()) == (expected, values.keys())
    with world():
        assert load_settings(**values).values() == expected
    for name, content in (
        ("semlex.toml", in_sections(values, key)),
        ("pyproject.toml", "[tool.other]\nx = 1\n" + in_sections(values, key, "tool.semlex.")),
    ):
        with world(files={name: content}) as folder:
            files.trust(folder)
            assert load_settings().values() == expected


@BOUNDED
@given(values=st.sampled_from(OTHERS).flatmap(lambda pair: st.tuples(st.just(pair), VALUES.get(pair[0], TEXTS))))
def test_variables_of_others_are_read_as_our_own(values):
    (name, variable), value = values
    [text] = variables({name: value}).values()
    found = read(environment={variable: text})
    assert (found.value(NAMED[name]), found.origins) == (value, {name: variable})


SOURCES = ("argument", "SEMLEX", "RAG", "semlex.toml", "pyproject.toml", "own")


@BOUNDED
@given(name=st.sampled_from([name for name in NAMES if name != "database_url"]), data=st.data())
def test_the_first_source_counts_and_the_others_are_told(name, data):
    """The twin is the list of sources itself."""
    said = data.draw(st.dictionaries(st.sampled_from(SOURCES), VALUES.get(name, TEXTS), min_size=1))
    foreign = [variable for one, variable in OTHERS if one == name]
    if not foreign:
        said.pop("RAG", None)
    environment = variables({name: said["SEMLEX"]}) if "SEMLEX" in said else {}
    if "RAG" in said:
        [environment[foreign[0]]] = variables({name: said["RAG"]}).values()
    texts = {source: flat({name: value}) for source, value in said.items() if "." in source or source == "own"}
    own = texts.pop("own", "")
    if "pyproject.toml" in texts:
        texts["pyproject.toml"] = f"[tool.semlex]\n{texts['pyproject.toml']}"
    with world(environment, own, {"pyproject.toml": "", **texts}) as folder:
        if texts:
            files.trust(folder)
        found = load_settings(**{name: said["argument"]} if "argument" in said else {})
        where = {"argument": "argument", "SEMLEX": NAMED[name].variables[0], "RAG": foreign[0] if foreign else ""}
        where |= {one: str(folder / one) for one in ("semlex.toml", "pyproject.toml")} | {"own": str(files.own_file())}
    expected = [source for source in SOURCES if source in said]
    if not expected:
        assert found == Settings()
        return
    assert found.value(NAMED[name]) == said[expected[0]]
    assert found.origins == {name: where[expected[0]]}
    assert [one.origin for one in found.overridden.get(name, ())] == [where[source] for source in expected[1:]]


def test_settings_json():
    with world(files={"settings.json": json.dumps({"rag": RAG, "ui": {"theme": "dark"}})}) as folder:
        found = load_settings(folder / "settings.json")
    assert {name: value for name, value in found.values().items() if found.is_set(name)} == {
        "embedding_model": "openai:text-embedding-3-small", "collection": "papers", "chunk_tokens": 500,
        "overlap_tokens": 50, "top_k": 5, "hybrid_weight": 0.7, "use_reranking": True,
        "reranker_model": "auto:openrouter:google/gemini-2.5-flash",
        "chat_model": "openrouter:anthropic/claude-3-5-sonnet",
    }  # fmt: skip
    told = [note.partition("rag.")[2].partition(" ")[0] for note in found.notes]
    assert told == ["contextualEnrichmentModel", "qa.temperature", "adaptiveRoutingModel"]
    assert read(own=as_toml({})) == Settings()
    lines = as_toml({}).splitlines()
    found = read(own="\n".join(line.removeprefix("# ") if " = " in line else line for line in lines))
    assert set(found.origins) == set(NAMES)
    for setting in SETTINGS:
        built_in = Settings().value(setting)
        assert found.value(setting) == (setting.read(setting.example) if built_in in (None, ()) else built_in)
    for section, expected in [
        ({"hybridSearchEnabled": False}, {"mode": "vector"}),
        ({"contextualEnrichmentModel": "openai:x"}, {"enrichment_model": "openai:x"}),
        ({"adaptiveRoutingEnabled": True}, {"route": "rules"}),
        (ROUTED | {"qa": {"model": "a/b"}}, {"route": "chat", "chat_model": "openrouter:a/b"}),
        ({"rerankerProvider": "none"}, {"reranker_model": "none"}),
        ({"rerankerProvider": "cohere"}, {"reranker_model": "cohere"}),
        ({"rerankerProvider": "cohere", "rerankerModel": "rerank-v4"}, {"reranker_model": "cohere:rerank-v4"}),
        ({"rerankerProvider": "llm", "rerankerModel": "a/b"}, {"reranker_model": "llm:openrouter:a/b"}),
        ({"rerankerProvider": "local", "rerankerModel": "a/b"}, {"reranker_model": "a/b"}),
        ({"embeddingModel": "models/gemini-embedding-001"}, {"embedding_model": "gemini:gemini-embedding-001"}),
        ({"embeddingModel": None, "topK": None}, {}),
    ]:  # fmt: skip
        found = read(own=json.dumps({"rag": section}), name="settings.json")
        assert {name: found.value(NAMED[name]) for name in found.origins} == expected
    for content, words in [
        (of_section({"topk": 3}), "rag.topk is not a setting; did you mean topK?"),
        (of_section({"top_k": 3}), "rag.top_k is not a setting; did you mean topK?"),
        (of_section({"qa": {"modle": "x"}}), "rag.qa.modle is not a setting; did you mean qa.model?"),
        (of_section({"apiKey": SECRET}), "rag.apiKey is not a setting; keys come from the environment only"),
        (of_section({"chunkSize": 16, "chunkTokens": 17}), "rag.chunkTokens and rag.chunkSize are the same setting"),
        (of_section({"topK": "many"}), f"rag.topK {WHOLE}; got 'many'"),
        (of_section({"rerankerProvider": "magic"}), "rag.rerankerProvider must be auto, none"),
        (of_section({"rerankerProvider": "llm"}), "rag.rerankerProvider is llm, so rerankerModel must name"),
        (of_section(ROUTED | {"qa": {"model": "c/d"}}), "rag.adaptiveRoutingModel must equal qa.model"),
        (of_section({"qa": 3}), "rag.qa must be an object"),
        (of_section({"rerankerProvider": "cohere", "rerankerModel": {}}), "rag.rerankerModel must be a text"),
        ('{"rag": {"topK": 1,\n "topK": 2}}', ": topK occurs twice in one object"),
        (f'{{"rag":\n [{SECRET}', ":2:3: Expecting value"),
        *((content, 'the section "rag" is missing') for content in ('{"rga": {}}', "[1]", '{"rag": 3}')),
    ]:  # fmt: skip
        with world(own=content, name="settings.json"):
            _, problems = read_settings()
            assert words in " ".join(problems)
            assert str(files.own_file()) in problems[0]
            assert SECRET not in " ".join(problems)


def of_section(section):
    return json.dumps({"rag": section})


def test_mistakes_in_sections_have_their_line():
    for content, words in [
        ("[search]\ntop_k = 3\ntopk = 4\n", ":3: [search] topk is not a setting; did you mean top_k?"),
        ("[serach]\ntop_k = 1\n", ":1: serach is not a setting; did you mean search?"),
        ("[chunking]\n\ntop_k = 3\n", ":3: [chunking] top_k is not a setting of this section; it belongs in [search]"),
        ("enabled = true\n", ":1: enabled is not a setting outside a section; write [reranking]"),
        ("search = 3\n", ":1: search is a section: write [search]"),
        ("[[search]]\ntop_k = 3\n", ":1: search is a section: write [search]"),
        ("top_k = 1\n[search]\ntop_k = 2\n", ":3: [search] top_k and top_k are the same setting"),
        ('[search]\nmode = "vector"\nsearch_type = "vector"\n',
         ":3: [search] search_type and [search] mode are the same setting"),
        (f'[database]\npassword = "{SECRET}"\n', "a password belongs in the database's address, in PGPASSWORD"),
        (f'[embeddings]\napi_key = "{SECRET}"\n', "keys come from the environment only"),
        ('language = """\ntop_k = 5\n"""\ntop_k = true\n', f":4: top_k {WHOLE}; got True"),
        (f'[search]\ntop_k = {{a = "{SECRET}"}}\n', f":2: [search] top_k {WHOLE}; got a table"),
        ("search.top_k = 1001\n", f":1: [search] top_k {WHOLE}; got 1001"),
        ("[search]\nmin_similarity = 2\n", ":2: [search] min_similarity must be a number between -1 and 1; got 2"),
        ("[search]\nhybrid_weight = nan\n", ":2: [search] hybrid_weight must be a number between 0 and 1; got nan"),
        ("[search]\nrrf_k = inf\n", ":2: [search] rrf_k must be"),
        ('[search]\nfusion = "max"\n', ":2: [search] fusion must be score, rrf, linear or completed; got 'max'"),
        ("[embeddings]\nmodels = 3\n", ":2: [embeddings] models must be a list of names"),
        ('dimensions = "many"\n', ":1: dimensions must be a whole number; got 'many'"),
        ("stop_words = 2\n", ":1: stop_words must be true or false; got 2"),
        ("partitions = 1\n", ":1: partitions must be 0, or between 2 and 64; got 1"),
        ('use_reranking = "maybe"\n', ":1: use_reranking must be true, false or auto; got 'maybe'"),
        ('vector_storage = "bit"\n', ":1: vector_storage must be vector or halfvec; got 'bit'"),
        ("collection = 3\n", ":1: collection must be a text"),
    ]:  # fmt: skip
        with world(own=content):
            _, problems = read_settings()
            [problem] = problems
            assert problem.startswith(str(files.own_file()))
            assert words in problem
            assert SECRET not in problem
        if content.startswith("[") and not content.startswith("[["):
            above = "[tool.semlex." + content[1:].replace("\n[", "\n[tool.semlex.")
            with world(files={"pyproject.toml": above}):
                _, problems = read_settings()
                assert words in problems[0], problems


def test_places_of_folders_need_trust_and_others_are_not_judged():
    content = '[database]\nurl = "postgresql://elsewhere/x"\n[search]\ntop_k = 3\n'
    for line in ('route = "chat"', 'query_log = "hash"', 'fallback_folder = "kb"', "embedding_model = './x'"):
        with world(files={"semlex.toml": f"[{'embeddings' if 'model' in line else 'search'}]\n{line}\n"}):
            [problem] = read_settings()[1]
            assert "sets where texts or data go" in problem
    with world(files={"semlex.toml": f"route = 'rules'\nembedding_model = '{'a' * 5000}'\n"}):
        assert read_settings()[1] == []  # too long for a folder, so a name
    project = "[tool.semlex.database]\nurl = 'postgresql://elsewhere/x'\n[tool.semlex]\ntop_k = 3\n[tool.x]\n"
    for name, text in (("semlex.toml", content), ("pyproject.toml", project)):
        with world(files={name: text}) as folder:
            found, problems = read_settings()
            assert (found.top_k, found.database_url) == (3, None)
            assert [f"semlex config trust {folder}" in problem for problem in problems] == [True]
            files.trust(folder)
            assert load_settings().database_url == "postgresql://elsewhere/x"
            # Of a pyproject.toml only semlex's table was trusted; the rest may change.
            (folder / name).write_text(text + "\n# more\n", encoding="utf-8")
            assert [("has changed" in problem) for problem in read_settings()[1]] == [True] * (name == "semlex.toml")
            (folder / name).write_text(text.replace("elsewhere", "other"), encoding="utf-8")
            assert ["has changed" in problem for problem in read_settings()[1]] == [True]
            assert files.untrust(folder)
            assert ["is not trusted" in problem for problem in read_settings()[1]] == [True]
    with world(files={"pyproject.toml": "not = = TOML", "settings.json": '{"rag": {"topK": 9}}'}):
        assert load_settings() == Settings()
        with pytest.raises(ConfigurationError, match="with a table"):
            files.trust(Path())
    with world(files={"pyproject.toml": "[tool]\nsemlex = 3\n"}):
        assert "must be a table" in read_settings()[1][0]
    with world({"RAG_TOPK": "3", "RAG_EMBEDING_MODEL": "x", "RAG_TENANT": "7", "RAG_TOP_K": ""}):
        found, problems = read_settings()
    assert (problems, found.origins) == ([], {})
    assert found.notes == (
        "RAG_EMBEDING_MODEL is not read; did you mean RAG_EMBEDDING_MODEL?",
        "RAG_TOPK is not read; did you mean RAG_TOP_K?",
    )


def test_the_server_of_libpqs_own_variables():
    for environment, expected in [
        ({"PGHOST": "/run/it's"}, ("PGHOST", "host='/run/it\\'s'")),
        ({"PGSERVICE": "books", "PGHOST": "x"}, ("PGSERVICE", "service='books'")),
        ({"PGHOSTADDR": "10.0.0.1"}, ("PGHOSTADDR", "hostaddr='10.0.0.1'")),
        ({"PGUSER": "x", "PGPORT": "1", "PGDATABASE": "x", "PGPASSFILE": "/x"}, None),
        ({"PGHOST": "x", "SEMLEX_DATA_DIR": "/srv"}, None),
        ({"PGHOST": "x", "RAG_DB_URL": "postgresql://y"}, ("RAG_DB_URL", "postgresql://y")),
        ({"RAG_DB_URL": "postgresql://y", "DATABASE_URL": "postgresql://z"}, ("RAG_DB_URL", "postgresql://y")),
    ]:  # fmt: skip
        found = read(environment=environment)
        assert (found.origins.get("database_url"), found.database_url) == (expected or (None, None))
        nearer = expected[1] if expected and "PG" not in expected[0] else "postgresql://own"
        own = None if "SEMLEX_DATA_DIR" in environment else nearer  # the folder is said nearer than the file's server
        assert read(environment=environment, own='database_url = "postgresql://own"').database_url == own


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["a" * 5000, "auto", "llm"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=3),
    max_leaves=8,
)
RAG_NAMES = st.sampled_from([*sources.RAG_KEYS, "model", "temperature"]) | st.text(max_size=5)


@BOUNDED
@given(section=st.dictionaries(RAG_NAMES, ANYTHING, max_size=6) | ANYTHING)
def test_no_json_breaks_the_reading(section):
    with world(own=json.dumps({"rag": section}), name="settings.json"):
        found, problems = read_settings()
        assert all(str(files.own_file()) in problem for problem in problems)
    for setting in SETTINGS:  # what was read is of its own kind, or was not set
        value = found.value(setting)
        assert value in (None, ()) or setting.read(value) == value


@BOUNDED
@given(name=st.sampled_from(NAMES), value=ANYTHING, source=st.sampled_from(["argument", "semlex.toml"]))
def test_no_value_breaks_the_reading(name, value, source):
    with world() as folder:
        if source == "argument":
            found, problems = read_settings(**{name: value})
        else:
            try:
                (folder / "semlex.toml").write_text(f"{name} = {json.dumps(value)}\n", encoding="utf-8")
            except UnicodeEncodeError:
                return
            found, problems = read_settings()
    assert len(problems) <= 1
    assert problems or value is None or found.is_set(name)


# --- settings that are read again -------------------------------------------------------------------------------------
def test_bad_changed_and_named_files_are_read_again(tmp_path, monkeypatch):
    with world(own="[search]\ntop_k = 3\n") as folder:
        watched = WatchedSettings(collection="mine")
        own = files.own_file()
        assert watched.files == (folder / "semlex.toml", folder / "pyproject.toml", own, own.with_name("trusted.json"))
        assert not watched.has_changed()
        for bad in ("[search]\ntop_k = many\n", "[search]\ntop_k = 4\ntopk = 4\n"):
            own.write_text(bad, encoding="utf-8")
            assert watched.has_changed()
            told = watched.reload()
            assert str(own) in told.problems[0]
            assert (told.settings, watched.settings.top_k, told.changed) == (watched.settings, 3, ())
            assert not watched.has_changed()  # said once; the next change is another
        own.write_text('[search]\ntop_k = 4\nlanguage = "german"\n', encoding="utf-8")
        told = watched.reload()
        assert (told.problems, told.changed) == ((), ("language", "top_k"))
        assert (watched.settings.top_k, watched.settings.collection) == (4, "mine")
        assert watched.reload().changed == ()
    with world() as folder:
        watched = WatchedSettings()
        os.chdir(tmp_path)  # the settings stay those of the folder where the program began
        (folder / "semlex.toml").write_text('data_dir = "/srv/x"\n', encoding="utf-8")
        assert watched.has_changed()
        assert "is not trusted" in watched.reload().problems[0]
        files.trust(folder)
        assert watched.has_changed()
        assert watched.reload().changed == ("data_dir",)
        (folder / "semlex.toml").unlink()
        assert watched.has_changed()
        assert watched.reload().changed == ("data_dir",)
        os.chdir(folder)
    with world(own="top_k = 9\n", files={"semlex.toml": "top_k = 8\n", "mine.json": '{"rag": {"topK": 7}}'}) as folder:
        watched = WatchedSettings(folder / "mine.json")
        assert (watched.settings.top_k, watched.files) == (7, (folder / "mine.json",))
        (folder / "mine.json").unlink()
        assert watched.has_changed()
        told = watched.reload()
        assert told.problems == (f"the settings file {folder / 'mine.json'} does not exist; name one that exists",)
        assert watched.settings.top_k == 7
        with pytest.raises(ConfigurationError, match=r"mine\.json does not exist"):
            WatchedSettings(folder / "mine.json")
    with world():
        watched = WatchedSettings()
        monkeypatch.setenv("RAG_TOP_K", "11")
        assert not watched.has_changed()  # it is no file
        assert watched.reload().changed == ("top_k",)
