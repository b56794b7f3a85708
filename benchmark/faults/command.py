"""`gp-mapping` as a user runs it, judged: every ending is one line and an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
import warnings
from dataclasses import dataclass

from gp_mapping import cli

__all__ = ["Ending", "run_command"]

LONGEST = 60.0  # s for a file of a hundred kilobytes; what takes longer hangs


@dataclass(frozen=True)
class Ending:
    """How one run ended. wrong: what must not be, "" where all is well.  refused: it said what is wrong."""

    code: int
    seconds: float
    wrong: str
    said: str

    @property
    def refused(self) -> bool:
        return self.code != 0 and not self.wrong


class _Late(BaseException):
    """Not an Exception: nothing between here and the top may take it for one of its own."""


def _late(number, frame):
    raise _Late


def run_command(words: list[str], longest: float = LONGEST) -> Ending:
    """Run it in this process, which must be its main thread; the judgement.

    Wrong are: an exception that comes out, a fault of the program (exit code 70), a warning of Python on the way,
    more than one line of error, an exit code that no --help states, and more than `longest` seconds.
    """
    out, err, started = io.StringIO(), io.StringIO(), time.perf_counter()
    wrong, code, told = "", -1, list(sys.warnoptions)
    previous = signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, longest)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            # of other people's packages nobody sees these, unless he asks
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("always", module="gp_mapping")
            sys.warnoptions.append(
                "always"
            )  # as with python -W: a user does not see them, and here they count
            code = cli.main([str(word) for word in words])
    except SystemExit as ending:  # argparse's way
        code = ending.code if isinstance(ending.code, int) else 1
    except _Late:
        wrong = f"not done after {longest:g} s"
    except BaseException as error:  # this is what must not be
        wrong = f"{type(error).__name__} came out: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
        sys.warnoptions[:] = told

    lines = err.getvalue().replace("\r", "\n").splitlines()
    said = [line for line in lines if line.startswith("gp-mapping")]
    if not wrong:
        wrong = _judged(code, lines, said)
    return Ending(code, time.perf_counter() - started, wrong, "\n".join(said))


def _judged(code: int, lines: list[str], said: list[str]) -> str:
    """What is wrong with an ending by itself; "" for nothing."""
    if code not in (0, 2):
        return f"exit code {code}: {' '.join(said)}"
    if (code == 0) == bool(said) or len(said) > 1:
        return f"exit code {code} and {len(said)} lines of error"
    noise = [line for line in lines if "Warning:" in line or "Traceback" in line]
    return f"said on the way: {noise[0]}" if noise else ""
