"""An integration without its framework says what to install; with another fault it hides nothing."""

import importlib
import subprocess
import sys

import pytest

from semlex.errors import MissingExtraError

# Framework -> package, extra.
FRAMEWORKS = {
    "llama_index": ("llama-index-core", "llama-index"),
    "langchain_core": ("langchain-core", "langchain"),
    "haystack": ("haystack-ai", "haystack"),
    **{name: (name, name) for name in ("sqlalchemy", "alembic", "django")},
}
# Integrations, each with its framework.
INTEGRATIONS = {**{name.removesuffix("_core"): name for name in FRAMEWORKS}, "langgraph": "langchain_core"}


@pytest.fixture(autouse=True)
def _forget_integrations(monkeypatch):
    for name in list(sys.modules):
        if name.partition(".")[0] in FRAMEWORKS or name.startswith("semlex.integrations."):
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(("integration", "module"), INTEGRATIONS.items())
def test_a_missing_framework_is_named_with_its_extra(monkeypatch, integration, module):
    monkeypatch.setattr(sys, "meta_path", [Without(module), *sys.meta_path])
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module(f"semlex.integrations.{integration}")
    package, extra = FRAMEWORKS[module]
    needing = f"semlex.integrations.{module.removesuffix('_core')}"
    assert str(caught.value) == f"{needing} needs the package '{package}': pip install 'semlex[{extra}]'"
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize(("integration", "module"), INTEGRATIONS.items())
def test_a_framework_that_is_broken_says_itself_what_it_lacks(monkeypatch, tmp_path, integration, module):
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").write_text("import something_that_it_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_that_it_needs"):
        importlib.import_module(f"semlex.integrations.{integration}")


@pytest.mark.slow
def test_what_integrations_share_needs_no_framework():
    program = "import sys; sys.modules['langchain_core'] = None; import semlex, semlex.integrations.calls"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Without:
    """Finds no module of a framework, though it were installed."""

    def __init__(self, module):
        self.module = module

    def find_spec(self, name, *_):
        if name.partition(".")[0] == self.module:
            raise ModuleNotFoundError(name=name)
