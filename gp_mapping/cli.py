"""gp-mapping: the command line. Exit codes: 0 good, 2 wrong usage or input (one line on stderr), 130 interrupted."""

from __future__ import annotations

import argparse
import importlib
import sys

from gp_mapping.commands import COMMANDS
from gp_mapping.errors import UserError

__all__ = ["main"]


def _overview() -> argparse.ArgumentParser:
    """What `gp-mapping --help` shows; nothing heavy is imported for it."""
    width = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog="gp-mapping", usage="gp-mapping COMMAND [...]", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Live probabilistic maps of magnetic and other fields.",
        epilog="commands:\n" + "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items())
               + "\n\n`gp-mapping COMMAND --help` says more about each.")
    parser.add_argument("command", metavar="COMMAND", help="one of: " + ", ".join(COMMANDS))
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; the exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    overview = _overview()
    if not argv:
        overview.print_help(sys.stderr)
        return 2
    if argv[0].startswith("-"):
        overview.parse_args(argv)  # --help, or an error: both end here
        overview.error("name a command first")
    if argv[0] not in COMMANDS:
        overview.error(f"unknown command {argv[0]!r}; expected one of: {', '.join(COMMANDS)}")
    name, text = COMMANDS[argv[0]]
    try:
        module = importlib.import_module(f"gp_mapping.commands.{name}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("", "gp_mapping"):
            raise
        print(f"gp-mapping {argv[0]}: the Python package {missing!r} is not installed; README.md says where it comes "
              "from (of those that apt has not: pip install rosbags)", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog=f"gp-mapping {argv[0]}", description=text[0].upper() + text[1:] + ".")
    module.add_arguments(parser)
    args = parser.parse_args(argv[1:])
    try:
        return module.run(args) or 0
    except KeyboardInterrupt:
        print(f"gp-mapping {argv[0]}: interrupted", file=sys.stderr)
        return 130
    except UserError as error:
        print(f"gp-mapping {argv[0]}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
