"""The programs of the pages on this framework run."""

from __future__ import annotations

from tests.support.documented_programs import documentation_test

test_example_runs = documentation_test("llama_index")
