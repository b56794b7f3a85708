"""`python -m benchmark all --output DIR [--document FILE] [--quick]`: measure, print and store tables.

A part is a module with `run(quick, where)`, or with TABLES, names of what it makes, and `run(quick, where, only)`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

PARTS = {
    "accuracy": "Protocol P, leave one trial out, Fig. 5(b) of Chang et al. (needs the recordings)",
    "cost": "time and memory of an update against M, n and threads, beside a floor",
    "render": "512 × 512 mean and standard deviation, in full and after a batch",
    "honesty": "simulated robots with known faults, coverage at every level, changes, gross errors",
    "biases": "passes with another bias each: beside a map that was told them and the exact GP",
    "learning": "hyper-parameters learned on the way, beside the maximum of the evidence of all cells",
    "sensors": "other sensors with nothing set, beside the right starts and the exact GP",
    "active": "active sampling, hotspots, UCB and EI: tables of the papers",
    "smoothness": "the kernel that is found from the first cells, in rooms with magnets",
    "surveys": "coverage at every moment of a survey, and far from its path; a room that changed",
    "memory": "which samples are remembered: leverage, at random, the newest, the farthest",
    "wiski": "the matrix-free WISKI: update, refresh, errors, protocol P",
    "live": "processor time that a 100 Hz sensor and a 10 Hz map take of a core",
    "models": "every model and the baselines in one table, into docs/models.md",
    "classification": "classes, counts and gross errors: Mammographic, and drawn data",
    "vector_field": "three axes of protocol P: curl_free against three independent maps",
    "anytime": "the anytime family: live, and time and predictive efficiency of its stochastic fit",
    "fits": "leave one trial out: the streamed map beside `gp-mapping fit`",
    "scale": "large areas: surveys and roads in tiles and in one map, error, time and memory",
    "fleet": "many bags as one map: one worker, two, and workers that are killed",
    "gpu": "updates, drawings and others on the processor and on a card, beside its roofline",
    "teams": "two robots that make one map: the sum beside the map of all data, bytes, cost",
    "slow_updates": "single updates along a drive, and what the slow ones do",
    "solve_gp": "SOLVE-GP's claim: NLPD against time at many sizes",
    "exploration": "where to go next: planners and baselines closed loop, into docs/exploration.md",
    "planning": "updates of the live node with and without a survey that plans",
    "reading": "a bag read and its samples averaged, beside version 0.1.0",
    "house": "the code itself: lengths, layout, private accesses, beside an earlier commit",
    "mutants": "small faults in the code, by a seed: which of them the mirrored tests notice",
    "faults": "hostile messages, damaged files, kills, full disks, a long soak, into docs/reliability.md",
}
APART = (
    "models",
    "classification",
    "vector_field",
    "anytime",
    "solve_gp",
    "scale",
    "slow_updates",
    "fits",
    "reading",
    "house",
    "mutants",
    "faults",
    "biases",
    "fleet",
    "gpu",
    "teams",
    "memory",
    "surveys",
    "smoothness",
    "active",
    "learning",
    "sensors",
    "planning",
)  # for pages of their own

ROOMS = {
    "papers": (
        "accuracy",
        "active",
        "anytime",
        "classification",
        "fits",
        "memory",
        "solve_gp",
        "vector_field",
        "wiski",
    ),
    "all_models": ("models",),
    "calibration": ("biases", "honesty", "learning", "sensors", "smoothness", "surveys"),
    "costs": ("cost", "gpu", "live", "reading", "render", "scale", "slow_updates"),
    "plans": ("exploration", "planning"),
    "many_maps": ("fleet", "teams"),
    "repository": ("house", "mutants"),
}


def module_of(part: str) -> str:
    """The module that measures it, as it is imported."""
    rooms = [room for room, parts in ROOMS.items() if part in parts]
    return ".".join(["benchmark", *rooms, part])


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the usage is one --help away."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    new = _Parser(
        prog="python -m benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{k:16}{v}{' (not in all)' * (k in APART)}" for k, v in PARTS.items()),
    )
    new.add_argument(
        "part", choices=[*PARTS, "all", "report"], help="report: write --document from stored JSON"
    )
    new.add_argument(
        "--output",
        type=Path,
        default=Path("out/benchmark"),
        metavar="DIR",
        help="for JSON and tables",
    )
    new.add_argument(
        "--document",
        type=Path,
        metavar="FILE",
        help="also write the page of all stored parts there",
    )
    new.add_argument(
        "--only",
        metavar="NAMES",
        help="by commas: these rows of models, these tables of a part that is not in all",
    )
    new.add_argument(
        "--what", metavar="PARTS", help="models: of protocol,leave_one_out,mammographic,cost"
    )
    new.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="mutants: so many faults (300); fleet: so many measurements of a bag (50 000)",
    )
    new.add_argument("--bags", type=int, metavar="N", help="fleet: so many (8)")
    new.add_argument(
        "--period", type=float, metavar="S", help="fleet: s between two kills of a worker (10)"
    )
    new.add_argument(
        "--seed", type=int, metavar="N", help="mutants, fleet: by which they are drawn (0)"
    )
    new.add_argument(
        "--routes",
        type=Path,
        metavar="DIR",
        help="exploration: drive the routes in DIR/<kind>_<seed>_<budget>.csv (x,y in m) beside route, "
        "gain_per_metre and good lanes; what a planner needs to make them is written to DIR/worlds",
    )
    new.add_argument(
        "--full", action="store_true", help="models: leave one out for the slow ones, too"
    )
    new.add_argument(
        "--quick", action="store_true", help="small sizes: shows that it runs, not how fast"
    )
    return new


def _only(module, given: str | None) -> list[tuple[str, ...]]:
    """The argument `only` of a part that has TABLES, as a list of it or of nothing. ValueError for other names."""
    tables = getattr(module, "TABLES", ())
    names = tuple(given.split(",")) if given else tables
    unknown = [name for name in names if name not in tables]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is not one of {', '.join(tables) or 'its tables: it has no --only'}"
        )
    return [names] if tables else []


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, or 2 where something is missing."""
    args = parser().parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
    import torch

    from benchmark.recordings import RecordingsAbsent
    from benchmark.tables import document, goals_table, load_parts, save_part
    from benchmark.timing import environment

    torch.set_num_threads(1)
    if args.part == "models":
        return importlib.import_module("benchmark.all_models.models").main(args)
    every = [name for name in PARTS if name not in (*APART, "exploration")]
    names = every if args.part == "all" else [] if args.part == "report" else [args.part]
    absent = False
    for name in names:
        where, start, busy = environment(args.quick), time.perf_counter(), time.process_time()
        module = importlib.import_module(module_of(name))
        try:
            drawn = {
                k: v
                for k, v in (
                    ("sample", args.sample),
                    ("bags", args.bags),
                    ("period", args.period),
                    ("seed", args.seed),
                    ("routes", args.routes),
                )
                if v is not None
            }
            takes = inspect.signature(module.run).parameters
            if unknown := [option for option in drawn if option not in takes]:
                raise ValueError(f"it has no --{unknown[0]}")
            if "output" in takes:
                drawn["output"] = args.output  # what is measured is kept there as it comes
            part = module.run(args.quick, where, *_only(module, args.only), **drawn)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        except RecordingsAbsent as error:
            print(f"{name}: {error}", file=sys.stderr)
            absent = True
            continue
        where |= {
            "load_after": os.getloadavg()[0],
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - busy,
        }
        save_part(part, args.output)
        if "output" in drawn and "routes" not in drawn and not args.quick:
            module.stored(args.output)
        print(part.markdown(), flush=True)
        if name in (*APART, "exploration") and part.goals and not args.quick:
            print(goals_table([part]).markdown())
    if args.part in (*APART, "exploration"):
        return 2 if absent else 0
    parts = load_parts(args.output)
    if not parts:
        print(
            f"{args.output}: nothing is stored here yet; run `python -m benchmark all --output {args.output}`",
            file=sys.stderr,
        )
        return 2
    page = document(parts)
    for path in filter(None, (args.output / "benchmarks.md", args.document)):
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(document(parts, there), encoding="utf-8")
    if not absent or len(names) > 1:
        print(page.split("\n## ")[0])
    return 2 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
