"""Flags of options, made from their declarations."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semlex.cli.options import INT, NUMBER, SECONDS, number, number_that, seconds, time_with_zone, whole_number
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from semlex.filters.tree import FilterTree
    from semlex.options.declare import Declared

# Names of the command line for options that have others in Python.
FLAGS = {"filters": "filter", "group_size": "group", "text_fields": "text_field"}
SHORT = {"top_k": "-k"}
FIRST = ("tokens", "top_k", "mode", "filters")
# No flags unless a command names them: arguments; --reranker none stands for rerank=False, --group for group_by.
WITHOUT_FLAG = frozenset({"query", "queries", "question", "rerank", "group_by"})
REPEATED = ("filter", "boosts", "texts")
# Several names in one flag.
WITH_COMMAS = frozenset({"columns", "key", "live", "metadata"})
# A share of 0 means None here: never.
NEVER = ("sections", "near_duplicates")


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"--{FLAGS.get(name, name).replace('_', '-')}"


@dataclass(frozen=True)
class Flags:
    """Marks a parameter of a command that receives the given options by name."""

    declaration: str  # Module and `TypedDict` below `semlex`, such as "options.search:SearchArguments".
    only: tuple[str, ...] = ()  # all if empty
    without: tuple[str, ...] = ()  # names that the command does not offer

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters of the command, one for each flag."""
        offered = sorted(self._offered().values(), key=lambda one: one.name not in FIRST)
        return [_parameter(one, self._known()) for one in offered]

    def flags(self) -> set[str]:
        """Return the flags."""
        return set(map(flag_of, self._offered()))

    def given(self, typed: dict[str, Any]) -> dict[str, Any]:
        """Take the flags' values out of a command's arguments; return the options that were given."""
        options: dict[str, Any] = {}
        tuning: dict[str, Any] = {}
        for name, one in self._offered().items():
            value = typed.pop(name)
            if value is None or value == []:
                continue
            if one.form == "filter":
                value = filter_of(value)
            elif one.form == "boosts":
                value = boosts_of(value)
            elif one.form == "time":
                value = time_with_zone(flag_of(name), value)
            elif name in NEVER:
                value = value or None
            elif name in WITH_COMMAS:
                value = [part.strip() for text in value for part in text.split(",") if part.strip()]
            (tuning if name in self._tuning() else options)[name] = value
        if "group_size" in options:
            options["group_by"] = "document"
        return options | ({"tuning": tuning} if tuning else {})

    def _known(self) -> dict[str, Declared]:
        from importlib import import_module

        from semlex.options.declare import declared

        module, _, name = self.declaration.partition(":")
        return declared(getattr(import_module(f"semlex.{module}"), name))

    def _tuning(self) -> Mapping[str, Declared]:
        known = self._known()
        return known["tuning"].parts if "tuning" in known else {}

    def _offered(self) -> dict[str, Declared]:
        found = {name: one for name, one in self._known().items() if name != "tuning"} | dict(self._tuning())
        return {
            name: one
            for name, one in found.items()
            if one.option.offered
            and name not in self.without
            and (name in self.only if self.only else name not in WITHOUT_FLAG)
        }


def _parameter(one: Declared, known: Mapping[str, Declared]) -> inspect.Parameter:
    kind: Any = str | None
    options: dict[str, Any] = {"help": _text(one, known)}
    if one.form == "integer":
        kind = int | None
        options |= {"parser": whole_number, "metavar": INT}
    elif one.form == "number":
        kind = float | None
        in_seconds = one.option.text.startswith("Seconds")
        options |= {"parser": seconds if in_seconds else _number_of(one), "metavar": SECONDS if in_seconds else NUMBER}
    elif one.form == "choice":
        options |= {"parser": _choice_of(one.choices), "metavar": "|".join(one.choices)}
    elif one.form == "time":
        options |= {"metavar": "TIME"}
    elif one.form in REPEATED:
        kind = list[str] | None
    elif one.form == "flag":
        kind = bool | None
    flags = [flag_of(one.name), *([SHORT[one.name]] if one.name in SHORT else [])]
    if one.form == "flag" and one.option.text.endswith("Default: True."):
        flags = [f"{flags[0]}/--no{flags[0][1:]}"]
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, typer.Option(*flags, **options)],
        default=None,
    )


def _number_of(one: Declared) -> Callable[[str | float], float]:
    least, most = one.option.minimum, one.option.maximum
    if least is None or most is None:
        return number
    never = one.name in NEVER
    must = f"0, for never, or between {least:g} and {most:g}" if never else f"a number between {least:g} and {most:g}"
    return number_that(lambda value: (never and value == 0) or least <= value <= most, must)


def _choice_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise typer.BadParameter(f"must be {', '.join(choices[:-1])} or {choices[-1]}; got {text!r}")
        return text

    return read


def _text(one: Declared, known: Mapping[str, Declared]) -> str:
    """Return the help text of an option: its description with the range, and with flags in place of options' names."""
    option = one.option
    text = f"{known['group_by'].option.text} {option.text}" if one.name == "group_size" else option.text
    text = re.sub(r"\b[a-z]+_[a-z_]+\b", lambda found: flag_of(found[0]) if found[0] in known else found[0], text)
    least = 0 if one.name in NEVER else option.minimum
    if least is not None and option.maximum is not None:
        text += f" Range: {least:,} to {option.maximum:,}."
    if one.name in NEVER:
        text += " 0: never."
    if one.form in REPEATED:
        text += " Repeatable: all must hold." if one.form == "filter" else " Repeatable."
    if one.name in WITH_COMMAS:
        text += " Or names with commas between: title,price."
    if one.form == "boosts":
        text += " Example: '0.5 year < 2000'."
    return text


def filter_of(texts: Sequence[str] | None) -> FilterTree | None:
    """Return the values of ``--filter`` as one filter: all of them must hold."""
    from semlex.filters.text import tree_of_text
    from semlex.filters.tree import joined

    trees = [tree_of_text(text, "--filter") for text in texts or ()]
    return joined("and", trees, "--filter") if trees else None


def boosts_of(texts: Sequence[str]) -> list[tuple[FilterTree, float]]:
    """Return the values of ``--boost``, each a factor and a filter: ``0.5 @source == "releases"``."""
    from semlex.filters.text import tree_of_text

    boosts = []
    for text in texts:
        first, _, filters = text.strip().partition(" ")
        try:
            factor = float(first)
        except ValueError:
            raise ConfigurationError("--boost takes a factor and a filter: '0.5 @source == \"old\"'") from None
        boosts.append((tree_of_text(filters, "the filter of --boost"), factor))
    return boosts


def expanded(parameters: list[inspect.Parameter]) -> tuple[list[inspect.Parameter], Callable[[dict[str, Any]], None]]:
    """Replace parameters marked with `Flags` by flags; also return a function that collects their values again."""
    marked: dict[str, Flags] = {}
    found: list[inspect.Parameter] = []
    for parameter in parameters:
        mark = next((one for one in getattr(parameter.annotation, "__metadata__", ()) if isinstance(one, Flags)), None)
        if mark is None:
            found.append(parameter)
        else:
            marked[parameter.name] = mark
            found += mark.parameters()

    def put_together(given: dict[str, Any]) -> None:
        given |= {name: mark.given(given) for name, mark in marked.items()}

    return found, put_together
