"""Every model and every baseline in one table: `python -m benchmark models [--only NAMES] [--what PARTS] [--full]`.

Results are merged into DIR/models.json as they come, so the table can be made in parts, and written into docs/models.md
between its markers (with --quick only where --document says so).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

import torch

from benchmark.all_models import models_measure
from benchmark.all_models.models_rows import ROWS
from benchmark.recordings import RecordingsAbsent
from benchmark.tables import Goal, Table
from benchmark.timing import environment

__all__ = ["BEGIN", "END", "WHAT", "main", "page_with", "tables"]

WHAT = ("protocol", "leave_one_out", "mammographic", "cost")
BEGIN, END = "<!-- table of models: begin -->", "<!-- table of models: end -->"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
_RMSE, _LOW, _HIGH = 3.2, 0.88, 0.98


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"models: {text}", file=sys.stderr, flush=True)


def main(args) -> int:
    """args: output, document, quick, full, only, what of `python -m benchmark`. 2: unknown name, or no recordings."""
    wanted, what = _names(args.only, ROWS), _names(args.what, WHAT)
    if wanted is None or what is None:
        return 2
    path, absent, cost = (
        args.output / ("models_quick.json" if args.quick else "models.json"),
        [],
        None,
    )
    for name in wanted:
        row = ROWS[name]
        for part in what:
            if (part == "mammographic" and not row.bernoulli) or (part == "cost" and not row.costs):
                continue
            if part == "leave_one_out" and not (
                row.left_out_by_default or args.full or (args.only and args.what)
            ):
                continue
            say(f"{name}, {part}")
            where, start = environment(args.quick), time.perf_counter()
            torch.manual_seed(0)
            try:
                if part == "cost":
                    cost = cost or models_measure.Cost(args.quick)
                    found = cost.measure(row)
                elif part == "leave_one_out":
                    stored = _load(path).get(name, {}).get("protocol")
                    same = (
                        stored
                        and stored["where"]["commit"] == where["commit"]
                        and "with" not in where["commit"]
                    )
                    found = models_measure.leave_one_out(row, args.quick, stored if same else None)
                else:
                    measure = (
                        models_measure.protocol_p
                        if part == "protocol"
                        else models_measure.mammographic
                    )
                    found = measure(row, args.quick)
            except RecordingsAbsent as error:
                absent.append(str(error))
                continue
            _store(
                path,
                name,
                part,
                found
                | {
                    "where": where
                    | {"load_after": os.getloadavg()[0], "wall": time.perf_counter() - start}
                },
            )
            say(", ".join(f"{k} {v:.4g}" for k, v in found.items() if v is not None))
            gc.collect()  # not on the next one's clock
    for line in dict.fromkeys(absent):
        say(line)
    _write(path, args)
    return 2 if absent else 0


def _names(given: str | None, known) -> list[str] | None:
    names = given.split(",") if given else list(known)
    unknown = [n for n in names if n not in known]
    if unknown:
        say(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return None if unknown else names


def _load(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _store(path: Path, name: str, part: str, found: dict) -> None:
    """Merge one cell into the file; it is read again first, since two runs may share it."""
    rows = _load(path)
    rows.setdefault(name, {})[part] = found
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    new.replace(path)


def goals(name: str, found: dict) -> list[Goal]:
    """Protocol P, every map: RMSE ≤ 3.2 µT and coverage .88 to .98."""
    return [
        Goal(f"protocol P, {name}: RMSE", found["rmse_ut"], high=_RMSE, unit="µT"),
        Goal(f"protocol P, {name}: in 95 %", found["coverage"], _LOW, _HIGH),
    ]


def tables(rows: dict) -> list[Table]:
    """Scores, and cost."""
    scores = Table(
        "Scores",
        [
            ("model", ""),
            ("θ", ""),
            ("M", "d"),
            ("RMSE µT", ".2f"),
            ("NLPD", ".2f"),
            ("in 95 %", ".3f"),
            ("goal", ""),
            ("s", ".0f"),
            ("left out: RMSE", ".2f"),
            ("NLPD", ".2f"),
            ("in 95 %", ".3f"),
            ("Mammographic", ""),
            ("commit", ""),
        ],
    )
    cost = Table(
        "Cost",
        [
            ("model", ""),
            ("100 cells, ms", ".1f"),
            ("× dual_svgp", ".2f"),
            ("512² grid, ms", ".0f"),
            ("× dual_svgp", ".2f"),
            ("commit", ""),
        ],
    )
    for name, row in ROWS.items():
        stored = rows.get(name, {})
        p, left, m, c = (stored.get(k, {}) for k in WHAT)
        if p or left or m:
            met = (
                ""
                if not p or row.build
                else "met"
                if all(g.met for g in goals(name, p))
                else "**not met**"
            )
            scores.add(
                row.title,
                row.theta,
                p.get("inducing") or None,
                p.get("rmse_ut"),
                p.get("nlpd"),
                p.get("coverage"),
                met,
                p.get("seconds"),
                left.get("rmse_ut"),
                left.get("nlpd"),
                left.get("coverage"),
                f"{m['nlpd']:.3f} ({m['sd']:.3f})" if m else None,
                _commits(p, left, m),
            )
        if c:
            figures = c["batch_ms"], c["batch_ratio"], c["grid_ms"], c["grid_ratio"]
            cost.add(row.title, *figures, _commits(c))
    scores.notes = [
        "Protocol P (trials 1, 2, 3, 5 as a stream, tested on 4); left out: each of trials 1 to 5 left out once, mean. "
        f"Goal: RMSE ≤ {_RMSE} µT and {_LOW:g} to {_HIGH:g} of the 95 % intervals, for every map with θ learned online "
        "from the default start; `curl_free` on all three axes, its RMSE over the components. s: processor time of the "
        "whole stream, cells, learning and scores included. Mammographic: NLPD of ten folds, streamed in 20 batches "
        "(GPyTorch's SVGP: stored), and its sd.",
        "Baselines see raw samples in batches of 100 and have no time offset and no heading; *given* is ℓ .446 m, "
        "s² 160, σ² 1.2 µT², *learned* starts there. – is not measured: leave one out of the others takes `--full`.",
        "Commit: of protocol P, of leave one out and of Mammographic, in this order, each named once; *by* a commit: "
        "of that day, at it or before it.",
    ]
    cost.notes = [
        "θ given, nothing learned; cells 10 cm apart, M ≤ 400 (`solve_gp` 400 + 400, `curl_free` three "
        "components). 100 cells with everything solved for a prediction; a 512² grid of 6.4 m as the "
        "renderer asks for it, on a lattice of ℓ/12, from scratch. One thread, processor time, each in turn "
        "with `dual_svgp`: trust the ratios; on a shared machine the milliseconds are upper bounds."
    ]
    return [t for t in (scores, cost) if t.rows]


def _commits(*cells: dict) -> str:
    """The commits of which some cells of one row are, each once."""
    told = [cell["where"].get("commit", "–") for cell in cells if cell]
    return ", ".join(dict.fromkeys(told))


def page_with(page: str, body: str) -> str:
    """The page with body between its markers; ValueError where they are not there, once and in order."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END} to write between")
    return f"{before}{BEGIN}\n{body.strip()}\n{END}{after}"


def _write(path: Path, args) -> None:
    rows = _load(path)
    where = [cell["where"] for row in rows.values() for cell in row.values()]
    if not where:
        return
    loads, dates = [w["load_before"] for w in where], [w["date"] for w in where]
    processors = " and ".join(dict.fromkeys(w["processor"] for w in where))
    days = " to ".join(dict.fromkeys((min(dates), max(dates))))
    head = (
        f"{processors}, {where[-1]['cores']} cores, torch {where[-1]['torch']}, one thread, load "
        f"average {min(loads):.0f} to {max(loads):.0f}, {days}, each row of the commit that it names"
        f"{', quick: sizes too small to judge by' if args.quick else ''}. "
        "Written by `python -m benchmark models`; edit the benchmark, not this part."
    )
    body = "\n".join([head, "", *(t.markdown() for t in tables(rows))])
    print(body, flush=True)
    document = args.document or (None if args.quick else PAGE)
    if document:
        document.write_text(page_with(document.read_text(encoding="utf-8"), body), encoding="utf-8")
