"""Run the command line as a process: `semlex` and `python -m semlex`."""

from __future__ import annotations

import atexit
import gc
import logging
import signal

# Programs that end soon gain little from the search for garbage, which visits everything that was imported again and
# again: by Python's own threshold of 700 objects it is a fifth of the time that a search from the shell takes. So the
# first search for garbage begins after more objects than a short command makes, the others more often.
OBJECTS_BEFORE_FIRST_COLLECTION, OBJECTS_PER_COLLECTION = 250_000, 50_000


def main() -> None:
    """Run the command line. Ctrl-C ends it quietly with exit code 130, also while modules are loaded."""
    gc.set_threshold(OBJECTS_BEFORE_FIRST_COLLECTION, *gc.get_threshold()[1:])
    gc.callbacks.append(_collect_more_often)
    atexit.register(gc.freeze)  # the same search, made once more at the end
    # What fails is raised and said once, in our words; connections that are given up after it need no report.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    # What Python does automatically for programs without handlers: warnings, as they are, on the error stream.
    logging.getLogger("semlex").addHandler(logging.lastResort or logging.StreamHandler())
    try:
        from semlex.cli.app import main as run  # noqa: PLC0415 - Ctrl-C may come while it is loaded

        run()
    except BaseException as error:
        if not _interrupted(error):
            raise
        # A second Ctrl-C ends what is still being closed, at once and quietly.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise SystemExit(130) from None


def _collect_more_often(_phase: str, _figures: object) -> None:
    gc.callbacks.remove(_collect_more_often)
    gc.set_threshold(OBJECTS_PER_COLLECTION, *gc.get_threshold()[1:])


def _interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: modules being imported turn the interrupt into their own errors."""
    # A command that raises its own exit code instead (from None) decides.
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error is not None


if __name__ == "__main__":
    main()
