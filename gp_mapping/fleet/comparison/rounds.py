"""All robots compared with the map of the others, again and again without those that are wrong.

A wrong robot is in the map of all others, spreads their figures, and hides itself behind them. So
who lies farthest off leaves the map, by its sites, and all are compared anew, until nobody in the
map stands out, or no more may leave: three robots stay, and more than half. Who has left and does
not lie far from those that are left comes back, for good. Hyper-parameters and inducing inputs are
those of the whole fleet throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.bags import Bags
from gp_mapping.fleet.cells import BagCells
from gp_mapping.fleet.comparison.held_out import (
    RobotComparison,
    compare_robot,
    held_out,
    joined_held_out,
)
from gp_mapping.fleet.comparison.outliers import BY_MAP, find_outliers, robots_to_leave_out
from gp_mapping.fleet.comparison.table import row_of
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.kept import kept_tree, value_of
from gp_mapping.fleet.mapping import FleetMap
from gp_mapping.fleet.robot import Robot
from gp_mapping.fleet.sums import Tile, TileSums, subtract_sums, sums_of

__all__ = ["Compared", "compare_fleet"]

_ROUNDS = 12  # of leaving robots out


@dataclass(frozen=True)
class Compared:
    """The robots of a fleet compared with the map of the others.

    Attributes:
        rows: of the table, one for each robot.
        findings: as of find_outliers.
        unsettled: whether robots in the map still stand out, since no more may leave it.
    """

    rows: list[dict]
    findings: list[dict]
    unsettled: bool


def compare_fleet(
    engine: Engine, bags: Bags, made: FleetMap, noise: float, scale: float, unit: str
) -> Compared:
    """Compare each robot with the map of the others that are not wrong.

    Args:
        engine: on which the map was made.
        bags: of the map.
        made: the map.
        noise: standard deviation of a measurement, SI.
        scale: SI value of the display unit.
        unit: of the field, for sentences.
    """
    rounds, out, stays = _Rounds(engine, bags, made, noise), set(), set()
    for number in range(_ROUNDS + 1):
        compared = rounds.compare(out, number)
        rows = [
            row_of(report, robot, found, scale) | {"left_out": i in out}
            for i, (report, robot, found) in enumerate(zip(bags.reports, bags.robots, compared))
        ]
        findings = find_outliers(rows, unit)
        leaving = robots_to_leave_out(rows, findings) - stays
        far = {one["bag"] for one in findings if one["figure"] in BY_MAP}
        back = set() if leaving else {i for i in out if rows[i]["bag"] not in far}
        if number == _ROUNDS or not leaving | back:
            break
        stays |= {rows[i]["bag"] for i in back}
        out = (out - back) | {i for i, row in enumerate(rows) if row["bag"] in leaving}
    return Compared(rows, findings, _stands_out(rows, findings))


def _stands_out(rows: list[dict], findings: list[dict]) -> bool:
    """Whether a robot that is in the map lies far off the map of the others."""
    inside = {row["bag"] for row in rows if not row["left_out"]}
    return any(one["bag"] in inside and one["figure"] in BY_MAP for one in findings)


class _Rounds:
    """Comparisons of all robots, of which a round makes those anew whose tiles have changed.

    Args:
        engine: on which the map was made.
        bags: of the map.
        made: the map.
        noise: standard deviation of a measurement, SI.
    """

    def __init__(self, engine: Engine, bags: Bags, made: FleetMap, noise: float):
        self._engine, self._bags, self._made, self._noise = engine, bags, made, noise
        self._totals = {tile: total for tile, (_, total, _) in made.sums.items()}
        self._out: set[int] = set()
        self._found: list[RobotComparison | None] = [None] * len(bags.jobs)

    def compare(self, out: set[int], number: int) -> list[RobotComparison | None]:
        """Each robot against the map of the others; None where these know too little of its places.

        Args:
            out: indices of robots that are not in the map.
            number: of the round.
        """
        changed = [
            tile for tile, (_, _, which) in self._made.sums.items() if (out ^ self._out) & {*which}
        ]
        self._out = out
        for tile in changed:
            z, total, which = self._made.sums[tile]
            for i in sorted(out & {*which}):
                total = self._engine.step("without", _without, tile, z, total, *self._of(i))
            self._totals[tile] = total

        anew = [
            i
            for i in range(len(self._found))
            if not number or any(i in self._made.sums[tile][2] for tile in changed)
        ]
        handles = [self._handle(i, number) for i in anew]
        label = f"compare, round {number + 1}" if number else "compare"
        for i, found in zip(anew, self._engine.results(handles, label, small=True)):
            self._found[i] = found
        return list(self._found)

    def _of(self, i: int) -> tuple:
        """Arguments of the steps of robot i."""
        job, robot = self._bags.jobs[i], self._bags.robots[i]
        return self._bags.cells[i], job.number, robot, self._made.agreed

    def _handle(self, i: int, number: int) -> Any:
        """Handle of a robot's comparison.

        Args:
            i: its index.
            number: of the round.
        """
        job = self._bags.jobs[i]
        joined = kept_tree(
            self._engine,
            "others",
            [
                (held_out, tile, z, self._totals[tile], *self._of(i), i not in self._out)
                for tile, (z, _, which) in self._made.sums.items()
                if i in which
            ],
            ("held_out", joined_held_out),
            Path(job.keep) / f"{job.number}.held_out{number}" if job.keep else None,
        )
        judge = partial(compare_robot, noise=self._noise)
        return self._engine.step("judged", judge, self._engine.step("value", value_of, joined))


@torch.no_grad()
def _without(
    tile: Tile,
    z: Tensor,
    total: TileSums,
    made: BagCells,
    number: int,
    robot: Robot,
    agreed: Agreed,
) -> TileSums:
    """The sums of a tile without one bag.

    Args:
        tile: the tile.
        z: (M, 2) its inducing inputs, inner.
        total: sums of bags.
        made: one of these.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.
    """
    return subtract_sums(total, sums_of(tile, z, made, number, robot, agreed))
