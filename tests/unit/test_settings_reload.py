"""Settings that are read again: new ones hold when nothing is wrong with them, else the old ones, and it is told."""

import os

import pytest

from semlex.errors import ConfigurationError
from semlex.settings import files
from semlex.settings.sources import WatchedSettings
from tests.support.settings_forms import world


def test_a_bad_file_keeps_the_old_settings_and_says_so():
    with world(own="[search]\ntop_k = 3\n") as folder:
        watched = WatchedSettings(collection="mine")
        own = files.own_file()
        assert watched.files == (folder / "semlex.toml", folder / "pyproject.toml", own, own.with_name("trusted.json"))
        assert not watched.has_changed()
        for bad in ("[search]\ntop_k = many\n", "[search]\ntop_k = 4\ntopk = 4\n"):
            own.write_text(bad, encoding="utf-8")
            assert watched.has_changed()
            told = watched.reload()
            assert told.problems
            assert str(own) in told.problems[0]
            assert (told.settings, watched.settings.top_k, told.changed) == (watched.settings, 3, ())
            assert not watched.has_changed()  # said once; the next change is another
        own.write_text('[search]\ntop_k = 4\nlanguage = "german"\n', encoding="utf-8")
        told = watched.reload()
        assert (told.problems, told.changed) == ((), ("language", "top_k"))
        assert (watched.settings.top_k, watched.settings.collection) == (4, "mine")
        assert watched.reload().changed == ()


def test_a_file_that_appears_goes_or_is_trusted_is_a_change(tmp_path):
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


def test_a_named_file_is_the_only_one():
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


def test_the_environment_is_read_again(monkeypatch):
    with world():
        watched = WatchedSettings()
        monkeypatch.setenv("RAG_TOP_K", "11")
        assert not watched.has_changed()  # it is no file
        assert watched.reload().changed == ("top_k",)
