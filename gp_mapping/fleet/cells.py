"""One bag as cells: what a session would put into its map, without a map, so at the speed of reading."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from pathlib import Path as FilePath

import torch
from torch import Tensor

from gp_mapping.analysis.refits import whole
from gp_mapping.analysis.sensor_faults import sensor_faults
from gp_mapping.core.likelihoods.outcomes import judge_of
from gp_mapping.core.types import Samples
from gp_mapping.errors import UserError, one_line
from gp_mapping.fleet.halfway import Halfway
from gp_mapping.intake import Intake
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.earth import Fixes
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.archive import read_state, write_state
from gp_mapping.store.wording import unit_text

__all__ = ["BagCells", "BagReport", "CellMaker", "Job", "cells_of", "read_bag", "report_of"]


@dataclass(frozen=True)
class Job:
    """One bag of a fleet. number: its place among them.  topics: as of plan_bags.

    keep: folder in which its cells are kept once they are made, for whoever needs them after a worker has died; '' for
    none.
    """

    number: int
    bag: str
    parameters: Parameters
    topics: dict[str, str | None]
    keep: str = ""


@dataclass(frozen=True)
class BagReport:
    """What is said of a bag, in plain numbers. failed: why it cannot be used; '' where it can.

    dead: that its sensor is, in a sentence.  middle: medians of place (2,) m and value (C,), SI.
    """

    bag: str
    failed: str = ""
    samples: int = 0
    cells: int = 0
    passes: int = 0
    received: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    dropped_measurements: int = 0
    warnings: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    dead: str = ""
    about: dict = field(default_factory=dict)
    gross: int = 0
    refused: int = 0
    path_length: float = 0.0
    newest_stamp: float | None = None
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    middle: tuple[list[float], list[float]] = ((), ())


@dataclass(frozen=True)
class BagCells:
    """cells: all of them, None where there are none.  path: of the robot.  told: of it.  fixes: state of its Fixes."""

    report: BagReport
    cells: Samples | None = None
    path: dict | None = None
    fixes: dict | None = None


class CellMaker(Gathering):
    """Raw samples to the cells that a MapSession with these settings hands to its map; what is refused is counted.

    Not among what it does: weakening a cell that contradicts the map, since there is none.
    """

    def __init__(self, settings: MapSettings):
        super().__init__(settings)
        self._begin()
        self._opening: Samples | None = None  # the first cells, while they are still coming
        self.made: list[Samples] = []

    def ingest(self, samples: Samples) -> None:
        """Raw samples of one pass."""
        self._gather(samples)

    def _open_with(self, first: Samples, cell: Samples) -> None:
        self._opening = first
        if not self.opening:
            self.made, self._opening = [first], None

    def _absorb(self, cell: Samples) -> None:
        self.made.append(cell)

    def _begin_over(self) -> None:
        self.made, self._opening = [], None

    def all(self) -> Samples | None:
        """Every cell as one batch, with all columns; None where there is none."""
        parts = ([] if self._opening is None else [self._opening]) + self.made
        return _one(parts) if parts else None

    def settle(self) -> None:
        """Cells that were made one by one become one batch, which is written and read in one piece."""
        if len(self.made) > 1:
            self.made = [_one(self.made)]


def _one(parts: list[Samples]) -> Samples:
    have = {f.name for f in fields(Samples) if any(getattr(p, f.name) is not None for p in parts)}
    return Samples.concatenate(
        [
            replace(p, **{name: _absent(p, name) for name in have if getattr(p, name) is None})
            for p in parts
        ]
    )


def _absent(cells: Samples, name: str) -> Tensor:
    """What a column that some cells have means in those that have it not."""
    n = len(cells)
    if name in ("velocity", "heading"):
        return cells.x.new_zeros((n, 2))
    return cells.x.new_full((n,), {"count": 1.0, "pass_number": -1.0}.get(name, 0.0))


def read_bag(job: Job) -> BagCells:
    """All cells of a bag; a bag that cannot be read, or holds nothing that can be used, says so and stops nobody.

    Where its folder keeps cells, what has been read is kept from time to time as well, and goes on from there.
    """
    kept = FilePath(job.keep) / f"{job.number}.cells" if job.keep else None
    if kept is not None and kept.is_file():
        return _unpacked(read_state(kept))
    halfway = Halfway(None if kept is None else kept.with_suffix(".halfway"))
    try:
        made = _read(job, halfway)
    except UserError as error:
        return BagCells(BagReport(job.bag, failed=one_line(error)))
    except Exception as error:  # one bag, whatever is in it, does not cost the others
        return BagCells(
            BagReport(job.bag, failed=f"{type(error).__name__}: {one_line(error, 300)}")
        )
    if kept is not None:
        write_state(kept, _packed(made), lasting=False)
    halfway.over()
    return made


@dataclass
class _Reading:
    """A bag that is being read. messages: of it that the intake has had.  parts: raw samples, pass by pass."""

    intake: Intake
    maker: CellMaker
    fixes: Fixes
    parts: list[tuple[bool, Samples]] = field(default_factory=list)
    messages: int = 0

    @staticmethod
    def of(job: Job) -> _Reading:
        """Nothing of it yet."""
        settings = job.parameters.map
        return _Reading(
            Intake(job.parameters.intake, judge=judge_of(settings)),
            CellMaker(settings),
            Fixes(settings.max_fixes),
        )


def _read(job: Job, halfway: Halfway) -> BagCells:
    plans = plan_bags([job.bag], job.parameters.intake, job.topics, fixes=True)
    reading = halfway.found() or _Reading.of(job)
    intake, maker, parts, fixes = reading.intake, reading.maker, reading.parts, reading.fixes

    def had(messages: int) -> None:
        if halfway.due():
            reading.messages = messages
            maker.settle()
            halfway.keep(reading)

    def heard():
        for new_pass, samples in samples_of(
            plans, intake, "", shown=False, skip=reading.messages, taken=had
        ):
            parts.append((new_pass, samples))
            yield new_pass, samples

    for _ in ingest_batches(heard(), maker, intake.drops):
        fixes.add(intake.fixes.take())
    ingest_remaining(maker, intake.drops)
    fixes.add(intake.fixes.take(finish=True))
    cells = maker.all()
    if cells is None:
        why = "; ".join(intake.drops.explain() + intake.warnings) or "there was none"
        return BagCells(
            BagReport(job.bag, failed=f"{job.bag}: no measurement could be used: {why}")
        )

    faults = sensor_faults(
        whole(parts), job.parameters.map.field_scale, unit_text(job.parameters.map.field_unit)
    )
    low, high = maker.trace.bounds()
    report = BagReport(
        job.bag,
        "",
        maker.raw_count,
        len(cells),
        maker.passes,
        dict(intake.received),
        dict(intake.drops.as_dict()),
        intake.drops.measurements,
        list(intake.warnings),
        [fault.text for fault in faults],
        next((fault.text for fault in faults if fault.dead), ""),
        dict(intake.about),
        maker.gross,
        maker.refused,
        maker.trace.length,
        None if cells.stamp is None else float(cells.stamp.max()),
        list(low),
        list(high),
        (cells.x.median(0).values.tolist(), cells.y.median(0).values.tolist()),
    )
    return BagCells(report, cells, maker.trace.state_dict(), fixes.state_dict())


def report_of(made: BagCells) -> BagReport:
    """The little that the one who asks needs to see."""
    return made.report


def cells_of(made: BagCells) -> Samples:
    """The cells alone."""
    assert made.cells is not None, "a bag that failed goes no further"
    return made.cells


def _packed(made: BagCells) -> dict:
    report = {f.name: getattr(made.report, f.name) for f in fields(BagReport)} | {
        "middle": list(map(list, made.report.middle))
    }
    cells = (
        None
        if made.cells is None
        else {f.name: getattr(made.cells, f.name) for f in fields(Samples)}
    )
    return {"told": report, "cells": cells, "path": made.path, "fixes": made.fixes}


def _unpacked(state: dict) -> BagCells:
    report = BagReport(**state["told"] | {"middle": tuple(state["told"]["middle"])})
    return BagCells(
        report,
        None if state["cells"] is None else Samples(**state["cells"]),
        state["path"],
        state["fixes"],
    )


def counted(reports: list[BagReport], name: str) -> dict[str, int]:
    """A dict of counts of all bags together."""
    total: Counter[str] = Counter()
    for report in reports:
        total.update(getattr(report, name))
    return dict(total)


def bounds_of(reports: list[BagReport]) -> tuple[list[float], list[float]]:
    """Of all paths, m."""
    return [min(t.low[k] for t in reports) for k in (0, 1)], [
        max(t.high[k] for t in reports) for k in (0, 1)
    ]


def medians(columns: list[list[float]]) -> Tensor:
    """Of each column."""
    return torch.tensor(columns, dtype=torch.float64).median(0).values
