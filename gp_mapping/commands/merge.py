"""`gp-mapping merge MAP MAP… --output DIR`: one map of what several robots, or several days, have measured."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from gp_mapping.commands.output import folder_to_write
from gp_mapping.commands.saved import checkpoint_in, open_session
from gp_mapping.errors import UsageError, named
from gp_mapping.mapping.fullness import spoiled
from gp_mapping.mapping.moving import moved
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.totals import MADE_OF, MAP_ID, map_ids
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.checkpoint import about_checkpoint, save_checkpoint
from gp_mapping.store.export import export_all
from gp_mapping.store.sessions import odometry_frame_of, quantity_of
from gp_mapping.store.trial import blaming
from gp_mapping.store.wording import unit_text

__all__ = ["run"]

_LATE = 0.01  # s by which delays of two sensors differ before each counts for itself
_SHOWN = (("lengthscale", "m"), ("signal_stddev", ""), ("noise_stddev", ""), ("time_offset", "s"))


def run(args: argparse.Namespace) -> int:
    """Open, compare, add, write."""
    paths, output = [checkpoint_in(path) for path in args.maps], folder_to_write(args.output)
    if len(paths) < 2:
        raise UsageError(f"one map is given, {paths[0]}; expected two or more")
    twice = next(
        (p for i, p in enumerate(paths) if p.resolve() in [q.resolve() for q in paths[:i]]), None
    )
    if twice is not None:
        raise UsageError(f"{twice} is given twice; its measurements would count twice")
    transforms = _transforms(args.transform, args.maps)
    sessions = [open_session(path) for path in paths]
    _check_copies(paths)
    _check_quantities(paths, sessions)
    still = [i for i in range(len(paths)) if i not in transforms]
    warnings = _frames(
        [paths[i] for i in still], [sessions[i] for i in still], args.allow_frame_change
    )
    for i, transform in transforms.items():
        with blaming(paths[i]):
            sessions[i] = _moved(paths[i], sessions[i], transform, sessions[still[0]])

    # the map that has learned from most cells keeps its hyper-parameters, the others are carried to these
    order = sorted(range(len(paths)), key=lambda i: -sessions[i].cell_count)
    ids = sorted({each for session in sessions for each in map_ids(session.about)})
    first, rows = (
        sessions[order[0]],
        [_row(path, session) for path, session in zip(paths, sessions)],
    )
    warnings += _own_delays(paths, sessions, order)
    for i in order[1:]:
        with blaming(paths[i]):
            try:
                first.merge(sessions[i])
            except ValueError as error:
                raise UsageError(
                    f"{paths[i]}: not merged into {paths[order[0]]}: {error}"
                ) from error
        for name, value in sessions[i].about.items():  # what the one does not say, the other may
            if not first.about.get(name):
                first.about[name] = value
    first.about.pop(MAP_ID, None)
    first.about[MADE_OF] = ids
    with blaming(paths[order[0]]):
        report = first.report()
        thin = spoiled(report)
        result = {
            "maps": rows,
            "hyperparameters_of": str(paths[order[0]]),
            "map": report,
            "hyperparameters": report["hyperparameters"],
            "warnings": warnings + ([thin] if thin else []),
        }
        if report.get("merged_without"):
            result["warnings"].append(
                f"{report['merged_without']} cells that the maps of tiles no longer remember one by one are left out: "
                "they cannot be told apart by place; raise memory_size, or map the recordings together"
            )
        result["warnings"] += first.map.notes()
        try:
            checkpoint = save_checkpoint(output / "map.gpm", first.state_dict())
            written = {
                "checkpoint": checkpoint,
                **export_all(first, output, map_id=about_checkpoint(checkpoint)["id"]),
            }
            written["report"] = output / "report.json"
            result["files"] = {name: str(path) for name, path in written.items()}
            write_atomic(
                written["report"], (json.dumps(result, indent=2, allow_nan=False) + "\n").encode()
            )
        except OSError as error:
            raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error
    print(json.dumps(result, allow_nan=False) if args.json else _summary(result, first))
    return 0


def _transforms(given: list[str], maps: list[str]) -> dict[int, tuple[float, float, float]]:
    """Number of a map -> x, y, yaw; UsageError for one that is none, and where no map is left whose frame counts."""
    out: dict[int, tuple[float, float, float]] = {}
    for text in given:
        name, _, numbers = text.rpartition("=")
        named_so = [
            i for i, each in enumerate(maps) if name in (each, each.rstrip("/"), Path(each).name)
        ]
        try:
            x, y, yaw = map(float, numbers.replace(",", " ").split())
        except ValueError:
            x = y = yaw = math.nan
        if not math.isfinite(x + y + yaw) or not name:
            raise UsageError(
                f"--transform {text}: expected a map and x, y and yaw, for example {Path(maps[-1]).name}="
                "1.5,-2.0,0.79 (metres, radians)"
            )
        if len(named_so) != 1:
            raise UsageError(
                f"--transform {text}: {name!r} is {'none' if not named_so else 'more than one'} of the "
                f"maps; expected one of {', '.join(maps)}"
            )
        out[named_so[0]] = (x, y, yaw)
    if len(out) == len(maps):
        raise UsageError("--transform is given for every map; the frame of one of them has to stay")
    return out


def _moved(
    path: Path, session: MapSession, transform: tuple[float, float, float], into: MapSession
) -> MapSession:
    """The map in the frame of the others; UsageError where its model cannot be turned."""
    try:
        session = moved(session, *transform)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    session.about["frame"] = into.about.get("frame") or ""
    return session


def _own_delays(paths: list[Path], sessions: list[MapSession], order: list[int]) -> list[str]:
    """Where sensors' delays differ, the others' samples go to where their own says that they were; what is said."""
    told, first = [], sessions[order[0]]
    delays = [
        float(session.map.hyperparameters().get("time_offset") or 0.0) for session in sessions
    ]
    learned = first.map.learned()
    for i in order[1:]:
        if (
            learned is not None
            and abs(delays[i] - delays[order[0]]) > _LATE
            and sessions[i].map.agree_on(learned.theta)
        ):
            told.append(
                f"the sensor of {paths[i]} is {delays[i]:.3g} s late, and that of {paths[order[0]]} "
                f"{delays[order[0]]:.3g} s: each is put right by its own"
            )
    return told


def _row(path: Path, session: MapSession) -> dict:
    report = session.report()
    return {
        "file": str(path),
        "frame": session.about.get("frame"),
        "samples": report["samples"],
        "cells": report["cells"],
        "passes": report["passes"],
        "hyperparameters": report["hyperparameters"],
    }


def _frames(paths: list[Path], sessions: list[MapSession], any_frame: bool) -> list[str]:
    """UsageError where frames differ and nobody has said that they are one place; what is to be said otherwise."""
    frames = [session.about.get("frame") or "" for session in sessions]
    known = [i for i, frame in enumerate(frames) if frame]
    other = next((i for i in known if frames[i] != frames[known[0]]), None)
    if other is not None and not any_frame:
        raise UsageError(
            f"{paths[other]} is in frame {named(frames[other])} and {paths[known[0]]} in "
            f"{named(frames[known[0]])}; where both are one place, add --allow-frame-change, else say "
            f"where the one lies in the other: --transform {Path(paths[other]).parent.name}=x,y,yaw"
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


def _check_quantities(paths: list[Path], sessions: list[MapSession]) -> None:
    """UsageError where two maps say that they are of different things."""
    known = [
        (path, quantity) for path, s in zip(paths, sessions) if (quantity := quantity_of(s.about))
    ]
    for path, quantity in known[1:]:
        if quantity != known[0][1]:
            raise UsageError(
                f"{path} is a map of {named(quantity)} and {known[0][0]} of {named(known[0][1])}; only "
                "maps of one quantity add up"
            )


def _check_copies(paths: list[Path]) -> None:
    """UsageError where two files hold one map."""
    seen: dict[str, Path] = {}
    for path in paths:
        other = seen.setdefault(str(about_checkpoint(path)["id"]), path)
        if other is not path:
            raise UsageError(
                f"{path} and {other} are copies of one map; its measurements would count twice"
            )


def _summary(result: dict, session: MapSession) -> str:
    """What was put together, what differed, what counts."""
    scale, unit = session.settings.field_scale, unit_text(session.settings.field_unit)
    lines = []
    for row in result["maps"]:
        told = []
        for name, its in _SHOWN:
            value = row["hyperparameters"].get(name)
            if value is not None:
                told.append(
                    f"{name} {value:.3g} {its}" if its else f"{name} {value / scale:.3g} {unit}"
                )
        lines.append(
            f"{row['file']}: {row['samples']} measurements, {row['cells']} cells, {row['passes']} passes; "
            + ", ".join(told)
        )
    report = result["map"]
    lines.append(
        f"together {report['samples']} measurements, {report['cells']} cells, {report['passes']} passes, "
        f"{report['path_length']:.1f} m; hyper-parameters are those of {result['hyperparameters_of']}, which "
        "has learned from most cells"
    )
    lines += [f"  warning: {text}" for text in result["warnings"]]
    lines.append("written: " + ", ".join(result["files"].values()))
    return "\n".join(lines)
