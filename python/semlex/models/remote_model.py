"""A model on a server: its name, its key, and texts in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

import numpy as np

from semlex.errors import ConfigurationError, MissingKeyError, ModelServerError
from semlex.models.http_client import CALLS_AT_ONCE, ModelServer
from semlex.models.model_names import ACCOUNTS, environment, key_for
from semlex.options.declare import Option
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class RequestOptions(TypedDict, total=False):
    """Options of requests to the server of a model."""

    api_key: Annotated[
        str | None,
        Option("API key. Default: the value of the environment variable that the class's description names."),
    ]
    batch_size: Annotated[
        int, Option("Maximum number of texts in a request. The class's description has the range.", minimum=1)
    ]
    timeout: Annotated[
        float, Option("Maximum seconds of one attempt, up to 3,600. Default: 60.", above=0, maximum=3_600)
    ]
    attempts: Annotated[int, Option("Maximum number of attempts of one request. Default: 5.", minimum=1, maximum=20)]
    concurrency: Annotated[
        int, Option("Maximum number of requests of one call at the same time. Default: 4.", minimum=1, maximum=64)
    ]


class RemoteModel:
    """Base class of models on a server; calls block, and several threads may use a model at once."""

    max_texts: ClassVar[int]
    usual_batch: ClassVar[int] = 32
    # Of `ACCOUNTS`: those with models of this kind.
    accounts: ClassVar[tuple[str, ...]] = ()
    # Environment variable of the key of servers without an account.
    key_variable: ClassVar[str]
    # Answers that may mean "too much at once"; the same request for fewer texts can succeed.
    halved_statuses: ClassVar[frozenset[int]]

    def __init__(
        self,
        # Name by which the server knows the model.
        model: str,
        # Address before every path.
        base_url: str,
        *,
        # Key; blank for none. None for the environment's: that of the account, else `key_variable`, which goes only to
        # the host that its setting names (`semlex.models.model_names.key_for`).
        api_key: str | None = None,
        # Name that leads to this model; None for ACCOUNT:MODEL or ADDRESS#MODEL.
        name: str | None = None,
        # Provider whose key is needed; None: the one in `accounts` with this address, if any.
        account: str | None = None,
        # Maximum number of texts in a request, 1 to `max_texts`; None for `usual_batch`.
        batch_size: int | None = None,
        # Maximum seconds of one attempt.
        timeout: float = 60.0,
        attempts: int = 5,
        # Maximum requests at the same time in one call.
        concurrency: int = 4,
        key_header: str = "Authorization",
    ) -> None:
        if not model.strip() or not model.isprintable():
            raise ConfigurationError("model must be the name by which the server knows it, in one line, and not blank")
        batch_size = self.usual_batch if batch_size is None else batch_size
        check_range("batch_size", batch_size, 1, self.max_texts)
        address = base_url.rstrip("/")
        account = account or next((known for known in self.accounts if ACCOUNTS[known].url == address), None)
        self._model = model
        self._name = name or (f"{address}#{model}" if account is None else f"{account}:{model}")
        self._batch_size = batch_size
        if account is None:
            key, variable = key_for(self.key_variable, address)
        else:
            variable = ACCOUNTS[account].variable
            key = environment(variable)
        if api_key is not None:
            key = api_key.strip() or None
        if account is not None and key is None:
            raise MissingKeyError(f"{self._name} needs a key: set the environment variable {variable}")
        self._server = ModelServer(
            address,
            api_key=key,
            key_header=key_header,
            key_variable=variable,
            timeout=timeout,
            attempts=attempts,
            concurrency=concurrency,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    @property
    def host(self) -> str:
        """Return host and port of the server that gets the texts."""
        return self._server.host

    @property
    def calls_at_once(self) -> int:
        """Return how many searches may use the model at the same time."""
        return CALLS_AT_ONCE

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._server.close()

    def _in_batches(
        self, ask: Callable[[list[str]], NDArray[np.float32]], texts: list[str]
    ) -> list[NDArray[np.float32]]:
        """Return the answers for all texts, in order, from one request for each batch."""
        size = self._batch_size
        return self._server.map(
            lambda first: self._ask_or_halve(ask, texts[first : first + size], first), range(0, len(texts), size)
        )

    def _ask_or_halve(
        self, ask: Callable[[list[str]], NDArray[np.float32]], texts: list[str], first: int
    ) -> NDArray[np.float32]:
        """Return the answer for texts from row `first` on; if the server refuses them, ask for each half."""
        try:
            return ask(texts)
        except ModelServerError as error:
            if error.status not in self.halved_statuses:
                raise
            if len(texts) == 1:
                said = f"{error}; the server refuses the text of row {first}"
                raise ModelServerError(said, status=error.status) from None
        middle = len(texts) // 2
        halves = ((texts[:middle], first), (texts[middle:], first + middle))
        return np.concatenate([self._ask_or_halve(ask, half, start) for half, start in halves])

    def _unusable(self, fault: str) -> ModelServerError:
        return ModelServerError(f"the answer of {self.host} for {self._model} cannot be used: {fault}", status=200)
