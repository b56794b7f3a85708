"""gp-mapping: the command line. Whatever goes wrong is one line on stderr, and an exit code that is not 0.

0 good; 2 wrong usage or input, or no room on the disk; 70 a fault of this program (--debug shows where); 130
interrupted; 141 nobody reads the output any more. A subcommand may have codes of its own, which its --help states.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from gp_mapping.commands import COMMANDS, add_arguments
from gp_mapping.errors import UsageError, UserError, one_line
from gp_mapping.threads import one_thread_each

__all__ = ["main"]

WRONG, FAULT, INTERRUPTED, NO_READER = 2, 70, 130, 141


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the usage is one --help away."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def _overview() -> argparse.ArgumentParser:
    """What `gp-mapping --help` shows; nothing heavy is imported for it."""
    width = max(map(len, COMMANDS))
    parser = _Parser(
        prog="gp-mapping",
        usage="gp-mapping COMMAND [...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Live probabilistic maps of magnetic and other fields.",
        epilog="commands:\n"
        + "\n".join(f"  {name:{width}}  {text}" for name, (_, _, text) in COMMANDS.items())
        + "\n\n`gp-mapping COMMAND --help` says more about each.",
    )
    parser.add_argument("command", metavar="COMMAND", help="one of: " + ", ".join(COMMANDS))
    return parser


def _arguments(command: str, text: str, words: list[str]) -> argparse.Namespace:
    parser = _Parser(prog=f"gp-mapping {command}", description=text[0].upper() + text[1:] + ".")
    parser.add_argument(
        "--debug", action="store_true", help="show where in the program an error arose"
    )
    add_arguments(command, parser)
    if any("\0" in word for word in words):
        raise UsageError("an argument holds a zero byte, which no name and no number has")
    return parser.parse_args(words)


@contextmanager
def _uninterrupted(alone: bool) -> Iterator[None]:
    """Ctrl-C while libraries are loaded: raised inside one that is C++ (torch) it would abort the process.

    alone: nothing but this command runs in the process, which ends at once; else it counts when all are loaded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = []

    def heard(number: int, frame) -> None:
        if alone:  # nothing has begun, so nothing is left behind
            with suppress(OSError):
                os.write(2, b"gp-mapping: interrupted\n")
            os._exit(INTERRUPTED)
        asked.append(number)

    previous = signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if asked:
        raise KeyboardInterrupt


def _run(argv: list[str], alone: bool) -> int:
    """Run one subcommand; its exit code. alone: as _uninterrupted."""
    overview = _overview()
    if not argv:
        overview.print_help(sys.stderr)
        return WRONG
    if argv[0].startswith("-"):
        overview.parse_args(argv)  # --help, or an error: both end here
        overview.error("name a command first")
    if argv[0] not in COMMANDS:
        overview.error(f"unknown command {argv[0]!r}; expected one of: {', '.join(COMMANDS)}")

    name, _, text = COMMANDS[argv[0]]
    args = _arguments(
        argv[0], text, argv[1:]
    )  # --help and a wrong option end here, before anything heavy is loaded
    try:
        with _uninterrupted(alone):
            module = importlib.import_module(f"gp_mapping.commands.{name}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("", "gp_mapping"):
            raise
        raise UsageError(
            f"the Python package {missing!r} is not installed; README.md says where it comes from (of "
            "those that apt has not: pip install rosbags)"
        ) from error
    code = module.run(args) or 0
    sys.stdout.flush()  # a full disk or a reader that went away shows here, not when nobody can say it any more
    return code


def _explain(error: BaseException) -> tuple[int, str]:
    """Exit code, and what is said ("": nothing) of an error that came out of a subcommand."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, BrokenPipeError):  # `| head` has read enough: no fault of anybody
        return NO_READER, ""
    if isinstance(error, UserError):
        return WRONG, one_line(error)
    if isinstance(error, OSError):
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return WRONG, one_line(
            ": ".join([*names[:1], error.strerror or str(error) or type(error).__name__])
        )
    if isinstance(error, MemoryError):
        return (
            WRONG,
            "the machine's memory does not suffice for this; give less at once, or a coarser resolution",
        )
    return FAULT, (
        f"a fault of this program, {type(error).__name__}: {one_line(error, 500)}; please report this line "
        "to the maintainers that package.xml names, with what --debug adds to it"
    )


def _leave_stdout() -> None:
    """What is in the buffer goes out; where nobody takes it, it is dropped: Python would complain when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(
            OSError, ValueError
        ):  # a stdout that is no file (inside another program) is not ours to mend
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """A standard stream that the caller has closed (`>&-`, some service managers): what is said there goes nowhere.

    Its number is taken, so that no file which is opened later gets it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(
                sys, name, open(number, mode, encoding="utf-8", closefd=False)
            )  # for the rest of the process


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; the exit code. The one place where an error becomes what the user reads."""
    _open_streams()
    alone, argv = argv is None, sys.argv[1:] if argv is None else list(argv)
    if alone:
        one_thread_each()
        atexit.register(
            gc.freeze
        )  # to take a loaded torch apart at the end would take half a second
    if not sys.warnoptions and "--debug" not in argv:
        warnings.simplefilter(
            "ignore"
        )  # what a library warns of is for who writes programs, not for who maps
        logging.getLogger("matplotlib").setLevel(logging.ERROR)  # nor that it looks for fonts
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # a µ, or a file name of odd bytes, must not fail for want of a letter
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(argv, alone)
    except (Exception, KeyboardInterrupt) as error:
        code, text = _explain(error)
        if "--debug" in argv:
            traceback.print_exc()
        if text:
            print(
                f"gp-mapping {argv[0]}: {text}" if argv else f"gp-mapping: {text}", file=sys.stderr
            )
        _leave_stdout()
        return code


if __name__ == "__main__":
    sys.exit(main())
