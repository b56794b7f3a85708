"""One bag as cells: what a session would put into its map, made at the speed of reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path as FilePath

import torch
from torch import Tensor

from gp_mapping.analysis.refits import split_passes
from gp_mapping.analysis.sensor_faults import sensor_faults
from gp_mapping.core.likelihoods.outcomes import make_judge
from gp_mapping.core.types import Samples
from gp_mapping.errors import UserError, one_line
from gp_mapping.fleet.workers.step_progress import StepProgress
from gp_mapping.intake import Intake
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.cells import RawRows
from gp_mapping.mapping.earth import Fixes
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.growing.admission import Admission
from gp_mapping.mapping.growing.counts import SampleCounts
from gp_mapping.recording.mapped import marks_of
from gp_mapping.recording.replay import Taken, plan_bags, samples_of
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.archive import read_state, write_state
from gp_mapping.store.wording import unit_text

__all__ = ["BagCells", "BagReport", "CellMaker", "Job", "cells_of", "read_bag", "report_of"]


@dataclass(frozen=True)
class Job:
    """One bag of a fleet.

    Attributes:
        number: its place among them.
        bag: path.
        parameters: of the whole run.
        topics: as of plan_bags.
        keep: folder in which its cells are kept once they are made, for steps that need them after
            a worker has died; '' for none.
    """

    number: int
    bag: str
    parameters: Parameters
    topics: dict[str, str | None]
    keep: str = ""


@dataclass(frozen=True)
class BagReport:
    """What is reported of a bag, in plain numbers.

    Attributes:
        bag: path.
        failed: why it cannot be used; '' where it can.
        samples: raw measurements that were used.
        cells: their averages.
        passes: begun.
        received: messages, by the name of their input.
        dropped: messages that were not used, by reason.
        dropped_measurements: measurements among them.
        warnings: sentences of the intake.
        faults: sentences on the sensor's faults.
        dead: a sentence that its sensor is dead; '' where it is not.
        about: where and of what the samples are, as Intake.about.
        gross: measurements that were gross errors.
        refused: measurements that no map can take.
        path_length: m.
        newest_stamp: of the cells, s; None where they have none.
        low: (2,) lower corner of the path, m.
        high: (2,) upper corner of the path, m.
        middle: medians of place (2,) m and value (C,), SI.
        marks: that the recording is recognised by.
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
    marks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BagCells:
    """All that later steps need of a bag.

    Attributes:
        report: of the bag.
        cells: all of them; None where there are none.
        path: state of the robot's path.
        fixes: state of its Fixes.
    """

    report: BagReport
    cells: Samples | None = None
    path: dict | None = None
    fixes: dict | None = None


class CellMaker:
    """The cells that a MapSession with these settings would hand to its map; refusals are counted.

    A cell that contradicts the map is not weakened, since there is no map. It judges the raw
    samples (gathering.SampleJudge), and takes the cells (growing.admission.CellTaker).

    Args:
        settings: of the map.

    Attributes:
        gathered: raw samples as cells, and their path.
        admission: decides which cells are handed over, and counts raw samples.
        made: the cells, once the first few are there.
    """

    def __init__(self, settings: MapSettings):
        self.gathered = Gathering(settings)
        self.admission = Admission(settings, self.gathered, settings.bias_time)

        # the first cells, while they are still coming
        self._opening: Samples | None = None
        self.made: list[Samples] = []

    # --- samples in -------------------------------------------------------------------------------
    def ingest(self, samples: Samples) -> None:
        """Take in raw samples of one pass."""
        for cell in self.gathered.gather(samples, self):
            self._pass_on(self.gathered.settle(cell))

    def flush(self) -> None:
        """Take the open cell, or the raw samples that wait for their batch, and the open block."""
        pending = self.gathered.close()
        if pending is not None:
            self._pass_on(self.gathered.settle(pending))
        self._pass_on(self.gathered.response.flush())

    def break_pass(self) -> None:
        """Close the open cell at a gap or a time jump: the next sample starts a new pass."""
        self.flush()
        self.admission.first.drop_held()  # what comes now is elsewhere, or later
        self.gathered.end_pass()

    def finishing(self) -> Iterator[None]:
        """Leave nothing pending: the stream has ended."""
        self.flush()
        yield

    def _pass_on(self, cells: list[Samples]) -> None:
        """Hand over cells of the pass that is open."""
        passes, length = self.gathered.passes, self.gathered.path_trace.length
        for cell in cells:
            self.admission.admit(cell, passes, length, self)

    # --- as judge of raw samples ------------------------------------------------------------------
    @property
    def counts(self) -> SampleCounts:
        """Raw samples that were used, or not."""
        return self.admission.counts

    def is_credible(self, values: list[float]) -> bool:
        """Whether a raw value (C,), SI, can be of this field."""
        return self.admission.first.is_credible(values)

    def look(self, rows: RawRows, part: slice, rates: list[float], lengths: list[float]) -> None:
        """As SampleJudge.look, at nothing: there is no map whose predictions would be scored."""

    # --- as taker of cells ------------------------------------------------------------------------
    def open_with(self, first: Samples, cell: Samples, length: float) -> None:
        """As CellTaker.open_with: hold the first cells back until the map would begin."""
        self._opening = first
        if not self.admission.first.is_open:
            self.made, self._opening = [first], None

    def absorb(self, cell: Samples, length: float) -> None:
        """As CellTaker.absorb."""
        self.made.append(cell)

    def begin_over(self) -> None:
        """Discard all cells."""
        self.made, self._opening = [], None

    def is_settled(self) -> bool:
        """True: there is no map that would have to settle before it judges cells."""
        return True

    # --- the cells --------------------------------------------------------------------------------
    @property
    def raw_count(self) -> int:
        """Raw samples that were used."""
        return self.counts.used

    @property
    def refused(self) -> int:
        """Raw samples that were not used."""
        return self.counts.refused

    @property
    def gross_errors(self) -> int:
        """Raw samples that were left out as gross errors."""
        return self.gathered.gross_errors + self.admission.gross_errors

    def joined_cells(self) -> Samples | None:
        """All cells as one batch, with every column; None where there is none."""
        parts = ([] if self._opening is None else [self._opening]) + self.made
        return _concatenated(parts) if parts else None

    def join_cells(self) -> None:
        """Join cells that were made one by one, so that they are written and read in one piece."""
        if len(self.made) > 1:
            self.made = [_concatenated(self.made)]


def _concatenated(parts: list[Samples]) -> Samples:
    """Batches as one, with every column that any of them has."""
    have = {f.name for f in fields(Samples) if any(getattr(p, f.name) is not None for p in parts)}
    return Samples.concatenate(
        [
            replace(p, **{name: _absent(p, name) for name in have if getattr(p, name) is None})
            for p in parts
        ]
    )


def _absent(cells: Samples, name: str) -> Tensor:
    """Values of a column that other cells have, for cells that lack it."""
    n = len(cells)

    if name in ("velocity", "heading"):
        return cells.x.new_zeros((n, 2))
    return cells.x.new_full((n,), {"count": 1.0, "pass_number": -1.0}.get(name, 0.0))


def read_bag(job: Job) -> BagCells:
    """All cells of a bag; one that cannot be used is reported as failed, and no other bag stops.

    Where the job keeps cells, what has been read is kept from time to time as well, and a repeated
    step goes on from there.
    """
    kept = FilePath(job.keep) / f"{job.number}.cells" if job.keep else None
    if kept is not None and kept.is_file():
        return _unpacked(read_state(kept))

    halfway = StepProgress(None if kept is None else kept.with_suffix(".halfway"))
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
    halfway.remove()
    return made


@dataclass
class _Reading:
    """A bag that is being read.

    Attributes:
        intake: of its messages.
        maker: of its cells.
        fixes: of its path on the earth.
        taken: what the intake has had of the bag.
    """

    intake: Intake
    maker: CellMaker
    fixes: Fixes
    taken: Taken | None = None

    @staticmethod
    def of(job: Job) -> _Reading:
        """A reading that has not begun."""
        settings = job.parameters.map
        return _Reading(
            Intake(job.parameters.intake, judge=make_judge(settings), as_received=True),
            CellMaker(settings),
            Fixes(settings.max_fixes),
        )


def _read(job: Job, halfway: StepProgress) -> BagCells:
    """Read a bag, or what is left of it.

    Args:
        job: the bag.
        halfway: keeps the reading from time to time.
    """
    plans = plan_bags([job.bag], job.parameters.intake, job.topics, fixes=True)
    # parts: raw samples, and whether each begins a new pass
    reading, parts = halfway.load() or (_Reading.of(job), [])
    intake, maker, fixes = reading.intake, reading.maker, reading.fixes

    def keep_if_due(taken: Taken) -> None:
        """Keep the reading so far, where the last time is long enough ago."""
        if halfway.due():
            reading.taken = taken
            maker.join_cells()  # one batch is written faster than many cells
            halfway.save(reading, parts)

    def batches():
        """Batches of raw samples, which are collected for the search for sensor faults."""
        for new_pass, samples in samples_of(
            plans, intake, "", shown=False, before=reading.taken, taken=keep_if_due
        ):
            parts.append((new_pass, samples))
            yield new_pass, samples

    for _ in ingest_batches(batches(), maker, intake.drops):
        fixes.add(intake.fixes.take())
    ingest_remaining(maker, intake.drops)
    fixes.add(intake.fixes.take(finish=True))

    cells = maker.joined_cells()
    if cells is None:
        why = "; ".join(intake.drops.explain() + intake.warnings) or "there was none"
        return BagCells(
            BagReport(job.bag, failed=f"{job.bag}: no measurement could be used: {why}")
        )

    # faults show in raw samples, which cells average out
    faults = sensor_faults(
        split_passes(parts),
        job.parameters.map.field_scale,
        unit_text(job.parameters.map.field_unit),
    )

    path = maker.gathered.path_trace
    low, high = path.bounds()
    report = BagReport(
        job.bag,
        "",
        maker.raw_count,
        len(cells),
        maker.gathered.passes,
        dict(intake.received),
        dict(intake.drops.as_dict()),
        intake.drops.measurements,
        list(intake.warnings),
        [fault.text for fault in faults],
        next((fault.text for fault in faults if fault.dead), ""),
        dict(intake.about),
        maker.gross_errors,
        maker.refused,
        path.length,
        None if cells.stamp is None else float(cells.stamp.max()),
        list(low),
        list(high),
        (cells.x.median(0).values.tolist(), cells.y.median(0).values.tolist()),
        sorted(marks_of(plans[0])),
    )
    return BagCells(report, cells, path.state_dict(), fixes.state_dict())


def report_of(made: BagCells) -> BagReport:
    """The report alone, which is all that the main process needs."""
    return made.report


def cells_of(made: BagCells) -> Samples:
    """The cells alone."""
    assert made.cells is not None, "a bag that failed goes no further"
    return made.cells


def _packed(made: BagCells) -> dict:
    """Cells and report as a state for a file."""
    report = {f.name: getattr(made.report, f.name) for f in fields(BagReport)} | {
        "middle": list(map(list, made.report.middle))
    }

    cells = (
        None
        if made.cells is None
        else {f.name: getattr(made.cells, f.name) for f in fields(Samples)}
    )

    return {"report": report, "cells": cells, "path": made.path, "fixes": made.fixes}


def _unpacked(state: dict) -> BagCells:
    """Cells and report from a state of a file."""
    report = BagReport(**state["report"] | {"middle": tuple(state["report"]["middle"])})
    return BagCells(
        report,
        None if state["cells"] is None else Samples(**state["cells"]),
        state["path"],
        state["fixes"],
    )


def counted(reports: list[BagReport], name: str) -> dict[str, int]:
    """Sum of the reports' counts.

    Args:
        reports: of the bags.
        name: of the reports' attribute that holds the counts by name.
    """
    total: Counter[str] = Counter()

    for report in reports:
        total.update(getattr(report, name))

    return dict(total)


def bounds_of(reports: list[BagReport]) -> tuple[list[float], list[float]]:
    """Corners (low, high) of the box of all paths, m."""
    return [min(t.low[k] for t in reports) for k in (0, 1)], [
        max(t.high[k] for t in reports) for k in (0, 1)
    ]


def medians(columns: list[list[float]]) -> Tensor:
    """Median of each column."""
    return torch.tensor(columns, dtype=torch.float64).median(0).values
