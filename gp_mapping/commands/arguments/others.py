"""Options of the commands that neither map nor use a map."""

from __future__ import annotations

import argparse
import math

__all__ = ["bench_arguments", "import_arguments"]


def _positive(text: str) -> float:
    """Return a finite number above 0, or raise the error that argparse shows."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def import_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the formats as subcommands of their own; so far there is one."""
    formats = parser.add_subparsers(dest="format", required=True, metavar="FORMAT")
    csv = formats.add_parser(
        "magnetic-csv", help="the layout of AaltoML/magnetic-data: K-time.csv, K-loc.csv, …"
    )

    csv.add_argument(
        "folder",
        metavar="FOLDER",
        help="folder with K-time.csv (s), K-loc.csv (x, y in m), K-mag.csv (in the axes of K-loc.csv)",
    )
    csv.add_argument(
        "--trials", nargs="+", metavar="K", help="which ones, in this order (default: all)"
    )

    csv.add_argument("--output", required=True, metavar="BAG", help="folder of the new bag")
    csv.add_argument(
        "--to-tesla",
        type=_positive,
        default=1e-6,
        metavar="FACTOR",
        help="one unit of K-mag.csv in tesla (default: 1e-6, microtesla)",
    )
    csv.add_argument("--storage", choices=("mcap", "sqlite3"), default="mcap")
    csv.add_argument(
        "--gap",
        type=_positive,
        default=60.0,
        metavar="SECONDS",
        help="between two trials (default: 60)",
    )


def bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Take all words, which are passed on to the benchmark."""
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="passed on to `python -m benchmark`"
    )
