"""The tokens of a file that somebody may change while they hold: each question looks whether it was."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING

from semlex.errors import SemlexError
from semlex.server.access.tokens import Token, TokenFile, caller_of
from semlex.settings.reload import file_stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.server.access.rights import Caller

logger = logging.getLogger("semlex.server")


class WatchedTokens:
    """The tokens of a file. A look at its stamp costs microseconds, so there is one for every question.

    Args:
        file: Of the tokens.
    """

    def __init__(self, file: TokenFile, refused: Callable[[], None] = lambda: None) -> None:
        self._file, self._refused = file, refused
        # The stamp first: a file that is written meanwhile is read again.
        self._stamp = self._refused_stamp = file_stamp(file.path)
        self._tokens: tuple[Token, ...] = file.read()
        if not self._tokens:
            logger.warning(
                "the token file %s %s: nobody may ask until there is a token; to make one: "
                "semlex serve token add NAME --token-file %s",
                *(file.path, "is not there" if self._stamp is None else "holds no token", shlex.quote(str(file.path))),
            )

    def current(self) -> tuple[Token, ...]:
        """Those that hold: of a file that became unusable those before, until it can be read again."""
        stamp = file_stamp(self._file.path)
        if stamp != self._stamp:
            try:
                self._tokens = self._file.read()
            except SemlexError as error:
                if stamp != self._refused_stamp:
                    logger.error("the changed tokens are not used: %s", error)  # noqa: TRY400 - it is no failure of ours
                    self._refused()
                self._refused_stamp = stamp
            else:
                self._stamp = stamp
        return self._tokens

    def caller(self, token: str) -> Caller | None:
        """Whose token it is; None for nobody's."""
        return caller_of(b"Bearer " + token.encode("utf-8", "replace"), self.current())
