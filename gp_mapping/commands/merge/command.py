"""`gp-mapping merge MAP MAP… --output DIR`: add the maps of several robots, or of several days."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

from gp_mapping.analysis.calibration import turning_part
from gp_mapping.analysis.levels import LevelDifference, level_difference
from gp_mapping.commands.merge.ages import aged
from gp_mapping.commands.merge.text import summary
from gp_mapping.commands.output import folder_to_write
from gp_mapping.commands.saved import checkpoint_in, open_session
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.errors import UsageError, named
from gp_mapping.intake.sensors.setup import SETUP, common_setup
from gp_mapping.intake.sensors.sketch import MEASURED, Sketch, union
from gp_mapping.mapping.moving import move_session
from gp_mapping.mapping.notes.fullness import fullness_notes
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.recording.mapped import note_mapped, recordings_in
from gp_mapping.runtime.team.totals import MADE_OF, MAP_ID, map_ids
from gp_mapping.settings.fields import FULL_TURN
from gp_mapping.settings.team import SUM_BUDGETS
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.checkpoint import about_checkpoint, save_checkpoint
from gp_mapping.store.exports.export import export_all
from gp_mapping.store.holdings import (
    holdings_of,
    map_in,
    note_holdings,
    replaced,
    require_apart,
)
from gp_mapping.store.sessions import odometry_frame_of, quantity_of
from gp_mapping.store.trial import errors_about
from gp_mapping.store.wording import unit_text

__all__ = ["run"]

# s, m: where delays of two sensors, or their places on the robots, differ by more, each counts
_LATE, _ELSEWHERE = 0.01, 0.01


def run(args: argparse.Namespace) -> int:
    """Open the maps, check that they fit, add and write them; returns the exit code.

    Raises:
        UsageError: there are fewer than two maps, one is given twice, they do not fit together, or
            the sum cannot be written.
    """
    paths, output = [checkpoint_in(path) for path in args.maps], folder_to_write(args.output)
    _check_names(paths)
    transforms = _transforms(args.transform, args.maps)

    sessions = [open_session(path) for path in paths]
    holdings = [holdings_of(path, s.about) for path, s in zip(paths, sessions)]
    require_apart(paths, holdings)
    _check_recordings(paths, sessions)
    _check_quantities(paths, sessions)
    frames = [session.about.get("frame") for session in sessions]
    warnings = _in_one_frame(paths, sessions, transforms, args.allow_frame_change)

    # the map that has learned from most cells keeps its hyper-parameters; the others adopt these
    order = sorted(range(len(paths)), key=lambda i: -sessions[i].cell_count)
    ids = sorted({map_id for session in sessions for map_id in map_ids(session.about)})
    # the rows state what each map had learned: they are taken before anything is changed
    rows = [_row(path, session) for path, session in zip(paths, sessions)]
    for i, transform in transforms.items():
        rows[i] |= {"frame": frames[i], "moved": list(transform)}

    for session in sessions:
        session.map.widen_budget(SUM_BUDGETS)
    warnings += aged(paths, sessions)
    warnings += _transferred(paths, sessions, order)
    warnings += _turns_differ(paths, sessions, order)
    warnings += _added(paths, sessions, order, rows)

    first = sessions[order[0]]
    note_holdings(first.about, set().union(*holdings))
    _note_made_of(first.about, [sessions[i].about for i in order], ids)

    with errors_about(paths[order[0]]):
        report = first.report()
        result = {
            "maps": rows,
            "hyperparameters_of": str(paths[order[0]]),
            "map": report,
            "hyperparameters": report["hyperparameters"],
            "turning": _amplitude(first),
            "warnings": [*warnings, *_notes_of_sum(first, report)],
        }
        _write(output, first, result)
    print(json.dumps(result, allow_nan=False) if args.json else summary(result, first))
    return 0


def _check_names(paths: list[Path]) -> None:
    """Raise UsageError where there are fewer than two maps, or one is given twice."""
    if len(paths) < 2:
        raise UsageError(f"one map is given, {paths[0]}; expected two or more")

    # resolved: one file may be given by two names
    twice = next(
        (p for i, p in enumerate(paths) if p.resolve() in [q.resolve() for q in paths[:i]]), None
    )
    if twice is not None:
        raise UsageError(f"{twice} is given twice; its measurements would count twice")


def _in_one_frame(
    paths: list[Path],
    sessions: list[MapSession],
    transforms: dict[int, tuple[float, float, float]],
    any_frame: bool,
) -> list[str]:
    """Move the maps that have a transform into the frame of the others.

    Args:
        paths: of the maps.
        sessions: the maps; those that are moved are replaced.
        transforms: index of a map -> x, y (m) and yaw (rad) of its origin in the others' frame.
        any_frame: frames of different names are one place (--allow-frame-change).

    Returns:
        Warnings about the frames.

    Raises:
        UsageError: two maps without a transform name different frames, or a model cannot be turned.
    """
    unmoved = [i for i in range(len(paths)) if i not in transforms]
    warnings = _frames([paths[i] for i in unmoved], [sessions[i] for i in unmoved], any_frame)

    for i, transform in transforms.items():
        with errors_about(paths[i]):
            sessions[i] = _moved(paths[i], sessions[i], transform, sessions[unmoved[0]])
    return warnings


def _added(
    paths: list[Path], sessions: list[MapSession], order: list[int], rows: list[dict]
) -> list[str]:
    """Add all maps to the one that has learned from most cells.

    Args:
        paths: of the maps.
        sessions: the maps; all but the first in `order` are used up.
        order: indices of the maps, that with most cells first.
        rows: what the report says of each map; gains `apart`, its offset from the sum so far,
            and `reads`, the largest value of that, and `newest_pass`, the number of its newest pass
            in the sum.

    Returns:
        A sentence for each map that reads otherwise than those before it.

    Raises:
        UsageError: two maps do not fit together.
    """
    first, warnings = sessions[order[0]], []
    rows[order[0]]["newest_pass"] = _newest_pass(first)
    for i in order[1:]:
        apart = level_difference(first, sessions[i]) if first.settings.metric else None
        rows[i]["apart"] = None if apart is None else asdict(apart)
        rows[i]["reads"] = None if apart is None else max(apart.values, key=abs)
        signal = first.map.hyperparameters()["signal_stddev"]
        if apart is not None and apart.is_another_field(signal):
            warnings.append(_another_field(paths[i], apart, first))
        elif apart is not None and apart.is_seen(math.sqrt(first.noise_variance)):
            warnings.append(_apart(paths[i], apart, first))

        with errors_about(paths[i]):
            try:
                first.merge(sessions[i])
            except ValueError as error:
                raise UsageError(
                    f"{paths[i]}: not merged into {paths[order[0]]}: {error}"
                ) from error
        rows[i]["newest_pass"] = _newest_pass(first)

    with errors_about(paths[order[0]]):
        first.map.use_budget()
    return warnings


def _newest_pass(session: MapSession) -> float:
    """Largest number of a pass in a map whose constant is known; NO_PASS where there is none."""
    biases = session.map.biases() if session.map.started else []
    return max((bias.number for bias in biases), default=NO_PASS)


def _note_made_of(about: dict, parts: list[dict], ids: list[str]) -> None:
    """Note what the sum is.

    Args:
        about: of the sum.
        parts: of all maps that it was made of.
        ids: theirs, which must not be added to the sum again.
    """
    # what the first map does not state about itself, another may
    for part in parts:
        for name, value in part.items():
            if not about.get(name):
                about[name] = value

    # robots that carry the sensor in different ways have no setup that another bag could go on with
    if (setup := common_setup(parts)) is None:
        about.pop(SETUP, None)
    else:
        about[SETUP] = setup

    about.pop(MAP_ID, None)  # the sum is a new map, which gets its own
    about[MADE_OF] = ids
    about[MEASURED] = union(part.get(MEASURED, "") for part in parts)
    note_mapped([], about, parts)


def _notes_of_sum(session: MapSession, report: dict) -> list[str]:
    """Say what the sum cannot hold; `report` is its own."""
    notes = fullness_notes(report)
    if report.get("merged_without"):
        notes.append(
            f"{report['merged_without']} cells that the maps of tiles no longer remember one by one are left out: "
            "they cannot be told apart by place; raise memory_size, or map the recordings together"
        )
    return notes + session.map.notes()


def _write(output: Path, session: MapSession, result: dict) -> None:
    """Write the sum, its pictures and the report.

    Args:
        output: the folder.
        session: the sum.
        result: the report; gains `files`, and a warning where a map was written over.

    Raises:
        UsageError: the folder cannot be written.
    """
    before = map_in(output / "map.gpm")
    try:
        checkpoint = save_checkpoint(output / "map.gpm", session.state_dict())
        result["warnings"] += replaced(checkpoint, before, session.about)
        written = {
            "checkpoint": checkpoint,
            **export_all(session, output, map_id=about_checkpoint(checkpoint)["id"]),
        }
        written["report"] = output / "report.json"
        result["files"] = {name: str(path) for name, path in written.items()}
        write_atomic(
            written["report"], (json.dumps(result, indent=2, allow_nan=False) + "\n").encode()
        )
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error


def _transforms(given: list[str], maps: list[str]) -> dict[int, tuple[float, float, float]]:
    """Parse --transform.

    Args:
        given: texts MAP=x,y,yaw.
        maps: the maps as they stand on the command line.

    Returns:
        Index of a map -> x, y (m) and yaw (rad) of its frame's origin in the frame of the others.

    Raises:
        UsageError: a text is no transform or fits no single map, a map has two, or every map is to
            be moved.
    """
    parsed: dict[int, tuple[float, float, float]] = {}
    for text in given:
        name, _, numbers = text.rpartition("=")
        matches = [
            i for i, path in enumerate(maps) if name in (path, path.rstrip("/"), Path(path).name)
        ]

        try:
            x, y, yaw = map(float, numbers.replace(",", " ").split())
        except ValueError:
            x = y = yaw = math.nan
        if not math.isfinite(x + y + yaw) or abs(yaw) > FULL_TURN or not name:
            raise UsageError(
                f"--transform {text}: expected a map and x, y and yaw, for example {Path(maps[-1]).name}="
                "1.5,-2.0,0.79 (metres, radians: 45° are 0.785)"
            )
        if not are_valid_places([(x, y)]).all():
            raise UsageError(f"--transform {text}: farther than {FARTHEST:g} m from the origin")
        if len(matches) != 1:
            raise UsageError(
                f"--transform {text}: {name!r} is {'none' if not matches else 'more than one'} of the "
                f"maps; expected one of {', '.join(maps)}"
            )
        if matches[0] in parsed:
            raise UsageError(
                f"--transform {text}: {maps[matches[0]]} has one already; a map lies in one place only"
            )
        parsed[matches[0]] = (x, y, yaw)
    if len(parsed) == len(maps):
        raise UsageError("--transform is given for every map; the frame of one of them has to stay")
    return parsed


def _moved(
    path: Path, session: MapSession, transform: tuple[float, float, float], into: MapSession
) -> MapSession:
    """Move a map into the frame of another one.

    Args:
        path: of the map, for the error.
        session: the map; it is used up.
        transform: x, y (m) and yaw (rad) of its origin in that frame.
        into: a map in that frame.

    Raises:
        UsageError: the map's model cannot be turned.
    """
    try:
        session = move_session(session, *transform)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    session.about["frame"] = into.about.get("frame") or ""
    return session


def _transferred(paths: list[Path], sessions: list[MapSession], order: list[int]) -> list[str]:
    """Give the first one's θ to maps whose kernel differs, or their sensor's delay or place.

    What such a map remembers is taken in again by that θ, put where its own sensor was.

    Args:
        paths: of the maps, for the notes.
        sessions: the maps; those in question are changed.
        order: indices of the maps, that with most cells first.

    Returns:
        A sentence for each difference that was settled.
    """
    notes, first = [], order[0]
    found = [session.map.hyperparameters() for session in sessions]
    kernels = [session.started_settings.kernel for session in sessions]
    delays = [float(each.get("time_offset") or 0.0) for each in found]
    arms = [
        [float(each.get(f"lever_arm_{axis}") or 0.0) for axis in ("along", "across")]
        for each in found
    ]

    learned = sessions[first].map.learned()
    for i in order[1:]:
        unlike = kernels[i] != kernels[first]
        late = abs(delays[i] - delays[first]) > _LATE
        apart = math.dist(arms[i], arms[first])
        if not (unlike or late or apart > _ELSEWHERE):
            continue
        # agree_on changes the map, and is False where it cannot: then nothing is reported
        if learned is None or not sessions[i].agree_on(learned.theta):
            continue
        if unlike:
            notes.append(
                f"the kernel of {paths[i]} was {kernels[i]}, and that of {paths[first]} is {kernels[first]}: the "
                f"sum has {kernels[first]}; what was remembered of the former is taken in again by it"
            )
        own, other = map(_lateness, (delays[i], delays[first]))
        if late:
            notes.append(
                f"the sensor of {paths[i]} is {own}, and that of {paths[first]} {other}: each is put right "
                "by its own"
            )
        if apart > _ELSEWHERE:
            notes.append(
                f"the sensor of {paths[i]} sits {apart:.3g} m from where that of {paths[first]} does on its "
                "robot: each is put right by its own"
            )
    return notes


def _lateness(delay: float) -> str:
    """A delay (s) of a sensor's stamps in words."""
    return f"{abs(delay):.3g} s {'early' if delay < 0.0 else 'late'}"


def _turns_differ(paths: list[Path], sessions: list[MapSession], order: list[int]) -> list[str]:
    """Say which maps have another part that turns with the robot; the sum has one for all.

    Args:
        paths: of the maps.
        sessions: the maps.
        order: indices of the maps, that with most cells first.
    """
    first, notes = sessions[order[0]], []
    part = turning_part(first)
    for i in order[1:]:
        own = turning_part(sessions[i])
        if part is None or own is None or own.shape != part.shape:
            continue
        apart = float((own - part).norm(dim=0).max())
        if apart > math.sqrt(first.noise_variance):
            scale, unit = first.settings.field_scale, unit_text(first.settings.field_unit)
            notes.append(
                f"what turns with the robot differs by {apart / scale:.3g} {unit} between {paths[i]} and "
                f"{paths[order[0]]}, and the sum has one such part for all: calibrate the robots, or map their bags "
                "together with --workers, where each has its own"
            )
    return notes


def _apart(path: Path, apart: LevelDifference, first: MapSession) -> str:
    """Return a sentence that a map reads otherwise than those before it."""
    scale, unit = first.settings.field_scale, unit_text(first.settings.field_unit)
    values = ", ".join(f"{value / scale:+.3g}" for value in apart.values)
    return (
        f"{path} reads {values} {unit} relative to what it is added to, where both know the field ({apart.places} "
        "places): the sensors do not read alike, or the field has changed; the sum lies in between: calibrate "
        "the sensors, or map the newer recordings alone"
    )


def _another_field(path: Path, apart: LevelDifference, first: MapSession) -> str:
    """Return a sentence that a map contradicts those before it."""
    scale, unit = first.settings.field_scale, unit_text(first.settings.field_unit)
    return (
        f"{path} contradicts what it is added to: where both know the field ({apart.places} places) they differ by "
        f"{max(apart.scatters) / scale:.3g} {unit}, {max(apart.ratios):.3g} times what their standard deviations "
        "allow; their frames do not lie as is said (--transform, or where each odometry was started), or "
        "the field has changed"
    )


def _row(path: Path, session: MapSession) -> dict:
    """Return what the report says of one map."""

    report = session.report()
    return {
        "file": str(path),
        "frame": session.about.get("frame"),
        "samples": report["samples"],
        "cells": report["cells"],
        "passes": report["passes"],
        "hyperparameters": report["hyperparameters"],
        "turning": _amplitude(session),
        "moved": None,
        "reads": None,
    }


def _amplitude(session: MapSession) -> float | None:
    """Return what turns with the robot, SI; None where a map has no such part."""
    part = turning_part(session)
    return None if part is None else float(part.norm(dim=0).max())


def _frames(paths: list[Path], sessions: list[MapSession], any_frame: bool) -> list[str]:
    """Check that the maps are in one frame.

    Args:
        paths: of the maps.
        sessions: the maps.
        any_frame: frames of different names are one place (--allow-frame-change).

    Returns:
        Warnings: a map that names no frame, a frame whose origin changes with each start.

    Raises:
        UsageError: two maps name different frames.
    """
    # a map without a frame fits any, with a warning
    frames = [session.about.get("frame") or "" for session in sessions]
    known = [i for i, frame in enumerate(frames) if frame]
    different = next((i for i in known if frames[i] != frames[known[0]]), None)
    if different is not None and not any_frame:
        raise UsageError(
            f"{paths[different]} is in frame {named(frames[different])} and {paths[known[0]]} in "
            f"{named(frames[known[0]])}; where both are one place, add --allow-frame-change, else say "
            f"where the one lies in the other: --transform {Path(paths[different]).parent.name}=x,y,yaw"
        )

    warnings = [
        f"{path} does not say in which frame it is"
        for path, frame in zip(paths, frames)
        if not frame
    ]

    moving = next((s.about for s in sessions if odometry_frame_of(s.about)), None)
    if moving:
        warnings.append(
            f"{named(odometry_frame_of(moving))} is the frame of an odometry: its origin is where a robot "
            "was started; the maps fit together where all were started at one place"
        )
    return warnings


def _check_recordings(paths: list[Path], sessions: list[MapSession]) -> None:
    """Raise UsageError where two maps were made from one recording."""
    held = [recordings_in(session.about) for session in sessions]
    sketches = [Sketch(session.about.get(MEASURED, "")) for session in sessions]
    for i, j in combinations(range(len(paths)), 2):
        if held[i] & held[j] or sketches[i].shares(sketches[j]):
            raise UsageError(
                f"{paths[i]} and {paths[j]} hold measurements of one recording, which would count twice"
            )


def _check_quantities(paths: list[Path], sessions: list[MapSession]) -> None:
    """Raise UsageError where two maps state different quantities."""
    known = [
        (path, quantity) for path, s in zip(paths, sessions) if (quantity := quantity_of(s.about))
    ]
    for path, quantity in known[1:]:
        if quantity != known[0][1]:
            raise UsageError(
                f"{path} is a map of {named(quantity)} and {known[0][0]} of {named(known[0][1])}; only "
                "maps of one quantity add up"
            )
