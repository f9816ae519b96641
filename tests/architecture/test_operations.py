"""The table of operations is what the classes and the command line have."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import semlex
from semlex.operations import OPERATIONS, Operation, Required
from semlex.options.declare import arguments_of
from tests.support.command_tree import RUNNABLE

# What the command line has for itself.
FACE_ALONE = {
    "documents preview": "looks at files, without a collection",
    "config init": "settings of this machine",
    "config show": "settings of this machine",
    "config trust": "settings of this machine",
    "config untrust": "settings of this machine",
    "doctor models": "models of this machine",
    "doctor server": "part of diagnose, for the server alone",
    "eval run": "files of judged queries",
    "eval tune": "files of judged queries",
    "eval calibrate": "files of judged queries",
    "models pull": "models of this machine",
    "postgres status": "the embedded server of this machine",
    "postgres stop": "the embedded server of this machine",
    "ui": "a page that does operations",
    "serve run": "a process that does operations for others",
    "serve token add": "who may ask the server of this machine",
    "serve token list": "who may ask the server of this machine",
    "serve token remove": "who may ask the server of this machine",
    "mcp": "tools for assistants, which are compared with the table by themselves",
    "worker": "a process that does what was submitted",
}
# Arguments of commands that stand for the server, the model and the output, or ask before something is done.
SHARED = {
    "collection", "database_url", "data_dir", "keep_alive", "embedding_model", "device", "dimensions", "tokenizer",
    "calibration", "language", "keyword", "reranker_model", "chat_model", "enrichment_model", "as_json", "columns",
    "header", "yes",
}  # fmt: skip
# What a command has beyond its operations.
OWN = {
    "search": {"opened_hit", "as_sql", "include", "timings"},
    "shell": {"no_history"},
    "try": {"path", "open_page"},
    "context": {"candidates", "deadline", "min_rerank", "min_similarity"},  # of its search
    "ask": {"stream", "sections", "parents", "near_duplicates"},  # of the context that it answers from
    "sync": {"watch", "poll"},
    "maintain enrich": {"concurrency"},
    "eval queries": {"clear"},
    "maintain create-index": {"dry_run"},
    "maintain migrate": {"as_sql"},
    "jobs submit": {"wait", "timeout"},
    "eval checkup": {"html"},
    "jobs cancel": {"job_id"},
    "jobs retry": {"job_id"},
}
# Names of types as methods write them.
ALIASES = {"Self": "Job"}
ids = [operation.name for operation in OPERATIONS]


def parameters(command: str) -> dict[str, Any]:
    return {one.name: one for one in RUNNABLE[command].params if one.name not in ("help", "ctx", "command")}


def test_names_are_given_once() -> None:
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("operation", OPERATIONS, ids=ids)
def test_an_operation_is_a_method_with_these_parameters(operation: Operation) -> None:
    method = getattr(getattr(semlex, operation.of), operation.method)
    signature = inspect.signature(method)
    assert ALIASES.get(signature.return_annotation, signature.return_annotation) == operation.result
    declared = arguments_of(method) if hasattr(method, "__operation__") else {}
    for argument in operation.arguments:
        if argument.name not in signature.parameters:
            assert argument.name in declared or any(argument.name in one.parts for one in declared.values())
            continue
        parameter = signature.parameters[argument.name]
        default = Required if parameter.default is inspect.Parameter.empty else parameter.default
        assert argument.default == default, argument.name
    given = {argument.name for argument in operation.arguments}
    needed = {
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    }
    assert needed <= given


@pytest.mark.parametrize("operation", OPERATIONS, ids=ids)
def test_an_operation_has_a_command_with_its_arguments_or_says_why_not(operation: Operation) -> None:
    assert bool(operation.commands) != bool(operation.without_command)
    if not operation.commands:
        return
    typed = parameters(operation.commands[0])
    for argument in operation.arguments:
        for name in argument.typed or (argument.name,):
            assert name in typed, (argument.name, sorted(typed))
        default = argument.default if argument.typed_default is Required else argument.typed_default
        option = typed[(argument.typed or (argument.name,))[0]]
        if argument.typed or option.param_type_name == "argument":
            continue
        # Nothing given is nothing given: the method's own default.
        assert option.default in (default, None), argument.name


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_command_does_operations_and_has_no_arguments_beyond_theirs(name: str) -> None:
    done = [operation for operation in OPERATIONS if name in operation.commands]
    assert bool(done) != (name in FACE_ALONE)
    if done:
        known = {
            one for operation in done for argument in operation.arguments for one in argument.typed or (argument.name,)
        }
        assert parameters(name).keys() - known - SHARED == OWN.get(name, set())


def test_what_only_reads_asks_for_no_more() -> None:
    rights = {operation.name: operation.rights for operation in OPERATIONS}
    changing = ("add", "clear", "create", "delete", "drop", "load", "migrate", "move", "re", "remove", "submit", "sync")
    assert [name for name in ids if name.startswith(changing) and rights[name] == "read"] == []
