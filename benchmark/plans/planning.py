"""What planning takes from the map: the live node's updates with a survey that plans all the while, and without one.

Pairs of drives, the order within a pair in turn; processes of their own over DDS, as in the live node's table.
"""

from __future__ import annotations

import os
import statistics
import sys

from benchmark.tables import Goal, Part, Table

__all__ = ["TABLES", "run"]

TABLES = ("pairs",)
PAIRS, SECONDS = 3, 80.0
_ROWS = ("update", "update p99", "update max", "p50", "p99", "worst", "all")
_NAMES = (
    "an update, ms: median",
    "99 % within",
    "longest",
    "arrival to map, ms: median",
    "99 % within",
    "worst 99 % of a drive",
    "share of a core",
)


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """Both ways, as often as PAIRS; quick: one short pair. only: there is one table."""
    from benchmark.costs.live_node import measure

    found: dict[bool, list[dict]] = {False: [], True: []}
    before = os.getloadavg()[0]
    for i in range(1 if quick else PAIRS):
        for survey in (False, True) if i % 2 == 0 else (True, False):
            print(
                f"planning: pair {i + 1}, {'with' if survey else 'without'} a survey",
                file=sys.stderr,
                flush=True,
            )
            found[survey].append(measure(15.0 if quick else SECONDS, survey))

    def middle(survey: bool, row: str) -> float:
        return statistics.median(one[row] for one in found[survey])

    table = Table(
        "The live node while it plans",
        [("", ""), ("no survey", ".2f"), ("planning", ".2f"), ("planning / none", ".3f")],
    )
    for name, row in zip(_NAMES, _ROWS):
        without, planning = middle(False, row), middle(True, row)
        table.add(name, without, planning, planning / without if without else None)
    table.notes = [
        f"Medians of {len(found[True])} drives each of {found[True][0]['seconds']:.0f} s; in one "
        f"{middle(True, 'plans'):.0f} plans, in slices of {middle(True, 'plan'):.1f} ms in the median; "
        f"{os.cpu_count()} cores, load average {before:.1f} before and {os.getloadavg()[0]:.1f} after."
    ]
    lost = sum(one["lost"] + one["dropped"] for one in found[True])
    return Part(
        "planning",
        [
            Goal(
                "99 % of updates within, planning to not planning",
                middle(True, "update p99") / middle(False, "update p99"),
                high=1.1,
            ),
            Goal("measurements lost or dropped while planning", lost, high=0.0),
        ],
        [table],
        where,
    )
