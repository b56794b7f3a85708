"""What is known of each bag before there is a map: its cells, its calibration, or why it fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gp_mapping.errors import UsageError, named
from gp_mapping.fleet.agreed import Agreed, agree
from gp_mapping.fleet.cells import BagReport, Job, read_bag, report_of
from gp_mapping.fleet.engine import Engine, StepLost
from gp_mapping.fleet.robot import Robot, calibrate, robot_of
from gp_mapping.intake.sensors.sketch import MEASURED, SHARED, hashes_in, union
from gp_mapping.recording.mapped import note_marks
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.sessions import odometry_frame_of

__all__ = ["CALIBRATION_CELLS", "Bags", "agreed_by", "read_bags"]

CALIBRATION_CELLS = 1000  # of each bag, in a map of its own


@dataclass(frozen=True)
class Bags:
    """Bags that were read.

    Attributes:
        jobs: of those that can be mapped, in the order given, like the next four.
        reports: of their cells.
        robots: of their calibrations.
        cells: handles of their cells.
        calibrated: handles of their calibrations.
        failed: why others cannot be mapped, by bag.
        about: of the recordings, as the first one's.
        warnings: sentences.
    """

    jobs: list[Job]
    reports: list[BagReport]
    robots: list[Robot]
    cells: list
    calibrated: list
    failed: dict[str, str]
    about: dict
    warnings: list[str]


def read_bags(
    engine: Engine,
    bags: list[str],
    parameters: Parameters,
    topics: dict,
    keep: Path | None = None,
    most: int = CALIBRATION_CELLS,
) -> Bags:
    """Cells and calibration of each bag.

    Args:
        engine: where that is done.
        bags: paths, as the workers see them.
        parameters: of all bags.
        topics: of all bags.
        keep: folder on this machine in which cells are kept while the run lasts, so that a step
            that is done again finds them; None where workers are on other machines.
        most: cells that calibrate a bag.

    Raises:
        UsageError: not one of the bags can be used.
    """
    jobs = [
        Job(i, str(bag), parameters, topics, "" if keep is None else str(keep))
        for i, bag in enumerate(bags)
    ]

    cells = engine.each("cells", read_bag, jobs)
    calibrated = engine.each("robot", calibrate, jobs, [most] * len(jobs))
    reports = _outcomes(
        engine,
        engine.each("report", report_of, cells),
        "read",
        lambda i, why: BagReport(jobs[i].bag, why),
    )
    robots = _outcomes(
        engine, engine.each("known", robot_of, calibrated), "calibrate", lambda i, why: Robot(why)
    )

    # cells, a sensor that is alive and a calibration: a bag needs all three
    failed = {
        t.bag: t.failed or t.dead or r.failed
        for t, r in zip(reports, robots)
        if t.failed or t.dead or r.failed
    }
    good = [i for i, job in enumerate(jobs) if job.bag not in failed]

    # poses of most bags decide on the frame, values of most on the number of channels
    frames = {i: str(reports[i].about.get("frame") or "") for i in good}
    frame = _commonest(frames)
    failed |= {
        jobs[i].bag: f"{jobs[i].bag}: poses are in frame {named(own)}, those of most bags in "
        f"{named(frame)}; map it by itself, or name the frame with odometry_frame"
        for i, own in frames.items()
        if own != frame
    }

    channels = {i: len(reports[i].middle[1]) for i in good if jobs[i].bag not in failed}
    count = _commonest(channels)
    failed |= {
        jobs[
            i
        ].bag: f"{jobs[i].bag}: a measurement has {own} values, of most bags {count}; map it by itself"
        for i, own in channels.items()
        if own != count
    }
    good = [i for i in good if jobs[i].bag not in failed]

    failed |= _repeated({jobs[i].bag: reports[i] for i in good})
    good = [i for i in good if jobs[i].bag not in failed]

    if not good:
        first = next(iter(failed.values()), "none was given")
        raise UsageError(f"none of {len(jobs)} bags can be mapped; the first: {first}")

    about, warnings = dict(reports[good[0]].about), []
    note_marks({mark for i in good for mark in reports[i].marks}, about)
    about[MEASURED] = union(reports[i].about.get(MEASURED, "") for i in good)
    if odometry_frame_of(about) and len(good) > 1:
        warnings.append(
            f"{named(odometry_frame_of(about))} is the frame of an odometry: its origin is where a robot "
            "was started; the bags fit together where all were started at one place"
        )
    return Bags(
        *([column[i] for i in good] for column in (jobs, reports, robots, cells, calibrated)),
        failed,
        about,
        warnings,
    )


def _repeated(reports: dict[str, BagReport]) -> dict[str, str]:
    """Why bags would count twice, by bag: a copy, or a part, of another, or recorded beside it.

    The first of them counts.
    """
    first_of: dict[str, str] = {}
    earlier: dict[int, str] = {}  # hash of a measurement -> the bag that it is in
    out = {}

    for bag, report in reports.items():
        same = next((first_of[mark] for mark in report.marks if mark in first_of), None)
        if same is not None:
            out[bag] = f"{bag}: its measurements are those of {same}, and would count twice"
            continue

        hashes = hashes_in(report.about.get(MEASURED, "")).tolist()
        shared = Counter(earlier[h] for h in hashes if h in earlier).most_common(1)
        if shared and shared[0][1] >= SHARED:
            out[bag] = (
                f"{bag}: measurements of it are in {shared[0][0]}, too, and would count twice: two recorders have "
                "run at once; cut one where the other begins or ends"
            )
            continue

        first_of |= dict.fromkeys(report.marks, bag)
        earlier |= dict.fromkeys(hashes, bag)
    return out


def _commonest(values: dict[int, Any]) -> Any:
    """The value that most bags have, of several the first; None where there are no bags."""
    return next((value for value, _ in Counter(values.values()).most_common(1)), None)


def _outcomes(engine: Engine, handles: list, label: str, lost: Callable) -> list:
    """Results of steps.

    Args:
        engine: of the steps.
        handles: of the steps.
        label: of the progress bar.
        lost: called with the index of a step whose workers died and the reason; gives its result.
    """
    outcomes, results = [], engine.results(handles, label, small=True)

    for i in range(len(handles)):
        try:
            outcomes.append(next(results))
        except StepLost as error:
            outcomes.append(lost(i, str(error)))
            results = engine.results(
                handles[i + 1 :], small=True
            )  # a generator ends with its error

    return outcomes


def agreed_by(bags: Bags, settings: MapSettings) -> Agreed:
    """θ of all, from what each has learned.

    Args:
        bags: that were read.
        settings: as a person gave them.
    """
    return agree(settings, bags.reports, bags.robots)
