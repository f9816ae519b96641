"""Declarations of options, from which checks, methods' arguments and the interfaces' parameters are derived.

An option is a key of a ``TypedDict`` whose type carries an `Option`:

    class SearchOptions(TypedDict, total=False):
        deadline: Annotated[float | None, Option("Seconds from the start of the call.", above=0)]

A method takes ``**options: Unpack[SearchOptions]``, so that editors and type checkers know every key. `operation` names
the declarations that apply to a method, and the rights that a caller needs.
"""

from __future__ import annotations

import builtins
import difflib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from semlex.errors import ConfigurationError
from semlex.types.queries import terms_errors
from semlex.validation import (
    Errors,
    check_parameters,
    kind_errors,
    number_errors,
    shown,
    strings_errors,
    text_errors,
    time_errors,
    whole_number_errors,
    wrong_type,
)

Form: TypeAlias = Literal[
    "text",
    "texts",
    "words",
    "number",
    "integer",
    "flag",
    "time",
    "choice",
    "filter",
    "boosts",
    "vector",
    "group",
    "object",
]
"""Forms in which an option can be given outside of Python."""

# read: changes nothing. write: changes documents. admin: changes tables, indexes or models, or reads all of a
# collection. Each includes those before it.
Rights: TypeAlias = Literal["read", "write", "admin"]

_FORMS: dict[Any, Form] = {str: "text", int: "integer", float: "number", bool: "flag", datetime: "time"}
_METHOD = TypeVar("_METHOD", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option; the option's type comes before it in the annotation.

    Attributes:
        text: What the option does, in a sentence or two; for a number, with unit and default.
        minimum: Smallest number.
        above: Lower bound, itself not allowed.
        maximum: Greatest number; for a text, its maximum length in bytes of UTF-8; for a list of texts, their maximum
            number.
        form: Form in which it is given outside of Python, if that does not follow from its type.
        offered: Whether the command line and servers offer it; if not, only Python programs can give it.
    """

    text: str
    _: KW_ONLY
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    form: Form | None = None
    offered: bool = True


def unchecked(text: str) -> Option:
    """Declare an option whose value is checked where it is used, and not by its type."""
    return Option(text, form="object")


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with its name and type.

    Attributes:
        name: Name of the argument.
        kind: Its type, without None.
        optional: Whether it may be None.
        option: Its declaration.
        default: Default in the method's signature; `inspect.Parameter.empty` if the argument is required.
    """

    name: str
    kind: Any
    optional: bool
    option: Option
    default: Any = None

    @property
    def form(self) -> Form:
        """The form in which the option is given outside of Python."""
        if self.option.form is not None:
            return self.option.form
        if self.literals:
            return "choice"
        if isinstance(self.kind, type) and hasattr(self.kind, "__total__"):
            return "group"
        return _FORMS.get(self.kind, "object")

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that the option may have: those of a union, or its only one."""
        return get_args(self.kind) if get_origin(self.kind) in (Union, UnionType) else (self.kind,)

    @property
    def literals(self) -> tuple[Any, ...]:
        """The values of the option's ``Literal`` types; empty if it has none."""
        return tuple(value for kind in self.kinds if get_origin(kind) is Literal for value in get_args(kind))

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values that are text; empty if any value of the option's type is allowed."""
        return tuple(value for value in self.literals if isinstance(value, str))

    @property
    def parts(self) -> dict[str, Declared]:
        """The options of a group; empty for other options."""
        return declared(self.kind) if self.form == "group" else {}

    def errors(self, value: Any) -> Errors:
        """Return what is wrong with a value: its kind, its range, an unknown choice."""
        option, form = self.option, self.form
        if (value is None and self.optional) or form in ("filter", "boosts", "vector", "object"):
            return []
        if form == "choice":
            if isinstance(value, (str, bool)) and value in self.literals:
                return []
            *others, last = [*map(repr, self.choices), *(["None"] if self.optional else [])]
            listed = f"{', '.join(others)} or {last}" if others else last
            raise ConfigurationError(f"{self.name} must be {listed}; got {shown(value)}")
        if form == "group":
            if not isinstance(value, Mapping):
                return wrong_type(self.name, "mapping of options", value)
            for name in value:
                if name not in self.parts:
                    near = difflib.get_close_matches(str(name), self.parts, 1) or list(self.parts)
                    raise ConfigurationError(
                        f"{self.name} has no option {shown(name)}; did you mean {' or '.join(near)}?"
                    )
            return [error for name, one in value.items() for error in self.parts[name].errors(one)]
        minimum = -math.inf if option.minimum is None else option.minimum
        maximum = math.inf if option.maximum is None else option.maximum
        longest = None if option.maximum is None else int(option.maximum)
        is_single = isinstance(value, str) and str in self.kinds  # instead of a list of texts
        checks: dict[Form, Callable[[], Errors]] = {
            "integer": lambda: whole_number_errors(self.name, value, int(minimum), int(maximum)),
            "number": lambda: number_errors(self.name, value, minimum, maximum, above=option.above),
            "text": lambda: text_errors(self.name, value, max_bytes=longest, blank=False),
            "time": lambda: time_errors(self.name, value),
            "texts": lambda: [] if is_single else strings_errors(self.name, value, longest),
            "words": lambda: terms_errors(value),
            "flag": lambda: kind_errors(self.name, value, bool, *([NoneType] if self.optional else [])),
        }
        return checks[form]()


@cache
def declared(options: type) -> dict[str, Declared]:
    """Return the options of a ``TypedDict`` by name, in their order; keys without an `Option` are left out."""
    hints = get_type_hints(options, localns=_Unchecked(options), include_extras=True)
    found = {}
    for name, hint in hints.items():
        kind, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        option = next((extra for extra in extras if isinstance(extra, Option)), None)
        if option is None:
            continue
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        own = [one for one in kinds if one is not NoneType]
        found[name] = Declared(name, own[0] if len(own) == 1 else kind, NoneType in kinds, option)
    return found


class _Unchecked(dict[str, Any]):
    """Finds the classes that annotations name; one imported only for type checkers becomes `_AnyName`, unchecked."""

    def __init__(self, options: type) -> None:
        super().__init__()
        told = (getattr(one, "__forward_module__", None) for one in options.__annotations__.values())
        self._modules = [vars(sys.modules[name]) for name in dict.fromkeys((options.__module__, *filter(None, told)))]
        self._modules.append(vars(builtins))

    def __missing__(self, name: str) -> Any:
        return next((module[name] for module in self._modules if name in module), _AnyName)


class _AnyName:
    """Stands for a class that is not loaded."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def __or__(self, other: Any) -> Any:
        return other


def picked(options: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options that a ``TypedDict`` declares."""
    return {name: given[name] for name in declared(options) if name in given}


def check_options(options: type, given: Mapping[str, Any], call: str) -> None:
    """Refuse options that a ``TypedDict`` does not declare, and values of the wrong kind or out of range.

    Raises:
        TypeError: An option is unknown (Python's error for an unexpected argument).
        ConfigurationError: A value is refused.
    """
    known = declared(options)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")
    check_parameters(*(known[name].errors(value) for name, value in given.items()))


@dataclass(frozen=True, slots=True)
class Operation:
    """How interfaces offer a method of a collection or client.

    Attributes:
        name: Name for routes and tools, one word or two.
        rights: Rights that a caller needs.
        declarations: ``TypedDict`` classes with the options of its arguments.
        hidden: Names of arguments that only Python programs can give.
    """

    name: str
    rights: Rights
    declarations: tuple[type, ...] = ()
    hidden: tuple[str, ...] = ()


def operation(
    name: str, rights: Rights, *declarations: type, hidden: tuple[str, ...] = ()
) -> Callable[[_METHOD], _METHOD]:
    """Mark a method as an operation that interfaces offer, with its name, rights and declared arguments."""

    def marked(method: _METHOD) -> _METHOD:
        method.__operation__ = Operation(name, rights, declarations, hidden)  # type: ignore[attr-defined]
        return method

    return marked


def operations_of(owner: type) -> dict[str, tuple[str, Operation]]:
    """Return, for the name of each operation of a class, the name of the method and its `Operation`."""
    methods = inspect.getmembers(owner, lambda member: hasattr(member, "__operation__"))
    return {method.__operation__.name: (attribute, method.__operation__) for attribute, method in methods}


@cache
def unpacked(call: Callable[..., Any]) -> type | None:
    """Return the ``TypedDict`` of a call's ``**options: Unpack[…]``; None if it has none."""
    function = call.__init__ if isinstance(call, type) else inspect.unwrap(call)  # type: ignore[misc]
    for parameter in inspect.signature(function).parameters.values():
        named = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
        if parameter.kind is parameter.VAR_KEYWORD and named != parameter.annotation:
            found: type = vars(sys.modules[function.__module__])[named]
            return found
    return None


@cache
def arguments_of(method: Callable[..., Any]) -> dict[str, Declared]:
    """Return the declared arguments of a method in the order of its signature, with their defaults.

    Each option of ``**options`` is an argument. Undeclared and hidden arguments are left out.
    """
    marked: Operation = method.__operation__  # type: ignore[attr-defined]
    known: dict[str, Declared] = {}
    for options in marked.declarations:
        known |= declared(options)
    found: dict[str, Declared] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and (rest := unpacked(method)) is not None:
            found |= declared(rest)
        elif name in known:
            one = known[name]
            found[name] = Declared(name, one.kind, one.optional, one.option, parameter.default)
    return {name: one for name, one in found.items() if name not in marked.hidden}
