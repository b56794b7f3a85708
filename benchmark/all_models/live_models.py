"""The demo with every model, over real DDS: the table "Live" of docs/models.md.

Run by `python -m benchmark.all_models.live_models`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gp_mapping.core.registry import model_names

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- table of live: begin -->", "<!-- table of live: end -->"
UT = 1e6


def demo(model: str, speed: float, seed: int, folder: Path) -> dict:
    """Run `gp-mapping demo` with a model in processes of their own; its demo.json. RuntimeError where there is none."""
    command = [
        sys.executable,
        "-m",
        "gp_mapping.cli",
        "demo",
        "--model",
        model,
        "--speed",
        str(speed),
        "--seed",
        str(seed),
        "--output",
        str(folder),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    file = folder / "demo.json"
    if not file.exists():
        raise RuntimeError(
            f"the demo with {model} ended with {done.returncode}:\n{done.stderr[-2000:]}"
        )
    return json.loads(file.read_text(encoding="utf-8")) | {"code": done.returncode}


def _number(value: float | None, digits: str) -> str:
    """A dash where it was not measured."""
    return "–" if value is None else format(value, digits)


def row(model: str, found: dict) -> str:
    """One line of the table; RMSE in µT, NLPD of values in µT."""
    s = found["score"]
    nlpd = s["nlpd"] + math.log(UT)
    content = "yes" if found["code"] == 0 else "**no**"
    return (
        f"| `{model}` | {UT * s['rmse']:.2f} | {nlpd:.2f} | {s['coverage']:.3f} | {_number(found['share'], '.2f')} | "
        f"{_number(found['memory'], '.0f')} | {found['used']} of {found['sent']} | {content} |"
    )


def table(rows: dict[str, str], speed: float, seed: int) -> str:
    """The table with its head and what it is."""
    head = (
        "| model | RMSE µT | NLPD | in 95 % | processor s for a second of driving | MB | samples in the map | "
        "passes the demo |\n| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |\n"
    )
    return (
        head
        + "\n".join(rows[m] for m in model_names() if m in rows)
        + f"\n\nSeed {seed}, {speed:g} times real time, one thread, {os.cpu_count()} cores shared with others (load "
        f"average {os.getloadavg()[0]:.0f}). Written by `python -m benchmark.all_models.live_models`."
    )


def write(document: Path, text: str) -> None:
    """Put the table between its marks; ValueError where the page has none."""
    page = document.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise ValueError(f"{document}: expected the lines {BEGIN} and {END}")
    before, rest = page.split(BEGIN)
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 where every demo ran to its end."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.all_models.live_models", description=__doc__
    )
    parser.add_argument(
        "--only", metavar="NAMES", help="these models, by commas; others keep their stored rows"
    )
    parser.add_argument(
        "--speed", type=float, default=8.0, help="simulated seconds per second (default: 8)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--store", type=Path, default=Path("out/benchmark/live_models.json"), metavar="FILE"
    )
    parser.add_argument(
        "--document",
        type=Path,
        metavar="FILE",
        help="write the table there, as docs/models.md has it",
    )
    args = parser.parse_args(arguments)
    kept = json.loads(args.store.read_text(encoding="utf-8")) if args.store.exists() else {}
    for model in args.only.split(",") if args.only else model_names():
        with tempfile.TemporaryDirectory() as folder:
            kept[model] = row(model, demo(model, args.speed, args.seed, Path(folder)))
        print(kept[model], flush=True)
        args.store.parent.mkdir(parents=True, exist_ok=True)
        args.store.write_text(
            json.dumps(kept, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
    text = table(kept, args.speed, args.seed)
    if args.document:
        write(args.document, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
