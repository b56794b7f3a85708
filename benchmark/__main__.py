"""`python -m benchmark all --output DIR [--document FILE] [--quick]`: measure, print and store tables."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

PARTS = {"accuracy": "Protocol P, leave one trial out, Fig. 5(b) of Chang et al. (needs the recordings)",
         "cost": "time and memory of an update against M, n and threads, beside a floor",
         "render": "512 × 512 mean and standard deviation, in full and after a batch",
         "honesty": "simulated robots with known faults, coverage at every level, changes, gross errors",
         "wiski": "the matrix-free WISKI: update, refresh, errors, protocol P",
         "models": "every model and the baselines in one table, into docs/models.md (not in all)",
         "live": "processor time that a 100 Hz sensor and a 10 Hz map take of a core"}


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    new = argparse.ArgumentParser(prog="python -m benchmark", description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter,
                                  epilog="\n".join(f"{k:10}{v}" for k, v in PARTS.items()))
    new.add_argument("part", choices=[*PARTS, "all", "report"], help="report: write --document from stored JSON")
    new.add_argument("--output", type=Path, default=Path("out/benchmark"), metavar="DIR", help="for JSON and tables")
    new.add_argument("--document", type=Path, metavar="FILE", help="also write the page of all stored parts there")
    new.add_argument("--only", metavar="NAMES", help="models: these rows, by commas")
    new.add_argument("--what", metavar="PARTS", help="models: of protocol,leave_one_out,mammographic,cost")
    new.add_argument("--full", action="store_true", help="models: leave one out for the slow ones, too")
    new.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    return new


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, or 2 where something is missing."""
    args = parser().parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
    import torch

    from benchmark.recordings import RecordingsAbsent
    from benchmark.tables import document, load_parts, save_part
    from benchmark.timing import environment

    torch.set_num_threads(1)
    if args.part == "models":
        return importlib.import_module("benchmark.models").main(args)
    every = [name for name in PARTS if name != "models"]
    names = every if args.part == "all" else [] if args.part == "report" else [args.part]
    absent = False
    for name in names:
        where, start, busy = environment(args.quick), time.perf_counter(), time.process_time()
        try:
            part = importlib.import_module(f"benchmark.{name}").run(args.quick, where)
        except RecordingsAbsent as error:
            print(f"{name}: {error}", file=sys.stderr)
            absent = True
            continue
        where |= {"load_after": os.getloadavg()[0], "seconds": time.perf_counter() - start,
                  "processor_seconds": time.process_time() - busy}
        save_part(part, args.output)
        print(part.markdown(), flush=True)
    parts = load_parts(args.output)
    if not parts:
        print(f"{args.output}: nothing is stored here yet; run `python -m benchmark all --output {args.output}`",
              file=sys.stderr)
        return 2
    page = document(parts)
    for path in filter(None, (args.output / "benchmarks.md", args.document)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    if not absent or len(names) > 1:
        print(page.split("\n## ")[0])
    return 2 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
