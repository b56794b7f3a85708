"""The command line `gp-mapping`: finds and runs a subcommand, and turns errors into one line.

An error is one line on stderr and an exit code that is not 0. Exit codes: 0 success; 2 wrong usage
or input, or no room on the disk; 70 a fault of this program (--debug shows where); 130 interrupted;
141 the reader of the output has gone; 143 ended by SIGTERM. A subcommand may have codes of its own,
which its --help states.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import itertools
import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from gp_mapping.commands import COMMANDS, VERSION, add_arguments
from gp_mapping.errors import UsageError, UserError, one_line
from gp_mapping.garbage import leave_out_what_is_loaded, pause_while_loading
from gp_mapping.threads import one_thread_each

__all__ = ["main"]

WRONG, FAULT, INTERRUPTED, NO_READER, ENDED = 2, 70, 130, 141, 143
_NEGATIVE = re.compile(r"-\.?\d")  # begins a negative number; no option does


class _Parser(argparse.ArgumentParser):
    """Reports a usage error in one line that points to --help, instead of printing the usage."""

    _words: tuple[str, ...] = ()

    def parse_known_args(self, args=None, namespace=None):
        self._words = tuple(sys.argv[1:] if args is None else args)
        return super().parse_known_args(_with_negative_values(self._words), namespace)

    def error(self, message: str) -> NoReturn:
        text = one_line(self._misspelt() or message)
        self.exit(WRONG, f"{self.prog}: {text}; see {self.prog} --help\n")

    @property
    def options(self) -> list[str]:
        """Names of its options, and of those of the subcommands below it."""
        below = [action.choices for action in self._actions if action.nargs == argparse.PARSER]
        parsers = [parser for choices in below for parser in dict(choices or {}).values()]
        return [*self._option_string_actions, *(name for p in parsers for name in p.options)]

    def _misspelt(self) -> str:
        """An option that there is not, which may be why others are missing; "" without one."""
        known = self.options
        for word in itertools.takewhile(lambda w: w != "--", self._words):
            option = word.partition("=")[0]
            if len(option) > 2 and option.startswith("--"):
                if not any(name.startswith(option) for name in known):
                    near = difflib.get_close_matches(option, known, 1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    return f"unknown option {option}{hint}"
        return ""


def _with_negative_values(words: tuple[str, ...]) -> list[str]:
    """Join `--option -33.9,18.4` to `--option=-33.9,18.4`.

    argparse takes -5 for a value, but -33.9,18.4 for an option.
    """
    joined: list[str] = []
    for word in words:
        before = joined[-1] if joined else ""
        takes_value = len(before) > 2 and before.startswith("--") and "=" not in before
        if takes_value and _NEGATIVE.match(word):
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def _overview() -> argparse.ArgumentParser:
    """The parser of `gp-mapping --help`; nothing heavy is imported for it."""
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
    parser.add_argument(
        "--version", action="version", version=f"gp_mapping {VERSION}", help="show the version"
    )
    parser.add_argument("command", metavar="COMMAND", help="one of: " + ", ".join(COMMANDS))
    return parser


def _arguments(command: str, text: str, words: list[str]) -> argparse.Namespace:
    """Parse the arguments of a subcommand; `text` is its description."""
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
    """Keep Ctrl-C from raising an exception while libraries are loaded.

    Raised inside a C++ library (torch) it would abort the process.

    Args:
        alone: nothing but this command runs in the process, so Ctrl-C ends it at once; else
            KeyboardInterrupt is raised when all libraries are loaded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    interrupts = []

    def on_interrupt(number: int, frame) -> None:
        if alone:  # nothing has begun, so nothing has to be cleaned up
            with suppress(OSError):
                os.write(2, b"gp-mapping: interrupted\n")
            os._exit(INTERRUPTED)
        interrupts.append(number)

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)

    if interrupts:
        raise KeyboardInterrupt


@contextmanager
def _ended_in_order(alone: bool) -> Iterator[None]:
    """Let SIGTERM, as `timeout` and service managers send it, end a command like Ctrl-C does.

    By default it ends a process at once, and temporary files stay. Commands with an ending of their
    own (the node's, a browser's, a survey's) set their handlers over this one.

    Args:
        alone: nothing but this command runs in the process; else its signals are its own.
    """
    if not alone:
        yield
        return

    process = os.getpid()

    def on_end(number: int, frame) -> None:
        if os.getpid() == process:
            raise SystemExit(ENDED)
        # a child that was forked has nothing to tidy up
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, on_end)
    yield


def _run(argv: list[str], alone: bool) -> int:
    """Run one subcommand and return its exit code; `alone` as in `_uninterrupted`."""
    overview = _overview()
    if not argv:
        overview.print_help(sys.stderr)
        return WRONG
    if argv[0].startswith("-"):
        overview.parse_args(argv)  # --help, or an error: both end here
        overview.error("name a command first")
    if argv[0] not in COMMANDS:
        near = difflib.get_close_matches(argv[0], COMMANDS, 1)
        overview.error(
            f"unknown command {argv[0]!r}; "
            + (f"did you mean {near[0]}? there are: " if near else "expected one of: ")
            + ", ".join(COMMANDS)
        )

    # --help and a wrong option end here, before anything heavy is loaded
    name, _, text = COMMANDS[argv[0]]
    args = _arguments(argv[0], text, argv[1:])
    try:
        with _uninterrupted(alone):
            module = importlib.import_module(f"gp_mapping.commands.{name}")
        if alone:
            leave_out_what_is_loaded()
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("", "gp_mapping"):
            raise
        raise UsageError(
            f"the Python package {missing!r} is not installed; README.md says where it comes from (of "
            "those that apt has not: pip install rosbags)"
        ) from error

    try:
        with _ended_in_order(alone):
            code = module.run(args) or 0
    except SystemExit as end:
        if end.code == ENDED:
            raise
        from gp_mapping.settings.blame import blame, raised

        # no command ends in this way: a part of another package has called exit()
        guilty = blame(end) or "a part of another package"
        raise UserError(f"{guilty}, raised {raised(end)}, which is to end this command") from end
    # a full disk, or a reader that has gone, raises here, where it can still be reported
    sys.stdout.flush()
    return code


def _explain(error: BaseException) -> tuple[int, str]:
    """Exit code and text ("": none) for an error that a subcommand has raised."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, BrokenPipeError):  # `| head` has read enough: no error
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
    from gp_mapping.settings.blame import blame, raised

    if guilty := blame(error):
        return WRONG, f"{guilty}, raised {raised(error)}; mend it (--debug shows more)"
    return FAULT, (
        f"a fault of this program, {type(error).__name__}: {one_line(error, 500)}; please report this line "
        "to the maintainers that package.xml names, with what --debug adds to it"
    )


def _leave_stdout() -> None:
    """Flush stdout; what nobody reads is dropped, or Python would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        # a stdout that is no file (inside another program) is left as it is
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Open /dev/null for standard streams that the caller has closed.

    `>&-` and some service managers close them. This also takes the stream's number, so that no file
    which is opened later gets it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            # it stays open for the rest of the process
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; the only place where an error becomes what the user reads.

    Args:
        argv: its name and arguments; None: those of the process, which does nothing else.

    Returns:
        The exit code.
    """
    _open_streams()
    alone, argv = argv is None, sys.argv[1:] if argv is None else list(argv)
    if alone:
        one_thread_each()
        pause_while_loading()

    # warnings of libraries are for programmers, and so is matplotlib's search for fonts
    if not sys.warnoptions and "--debug" not in argv:
        warnings.simplefilter("ignore")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)

    # a µ, or a file name of odd bytes, must not fail for want of a letter
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    try:
        return _run(argv, alone)
    except SystemExit as end:
        if end.code == ENDED:
            print(f"gp-mapping {argv[0]}: ended by SIGTERM", file=sys.stderr)
            _leave_stdout()
        raise
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
