"""Hostile messages between good ones: real messages, over DDS, into a real node.

Each kind goes between the measurements of a drive, thousands of times. survived: the map is that of the
good messages alone, which an offline session makes of them: the same cells, and means and deviations
equal to 1e-9 of a predictive standard deviation. Where a kind takes good measurements with it, those
are `lost`. uncounted: how far measurements sent are from used + dropped + waiting, either way. worst:
arrival to map, the 99th percentile.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmark.faults.live import COUNTS, LABELS, LIGHT, MAGNETIC, LiveMapper, Sensor, place_at
from benchmark.faults.rows import Row
from gp_mapping.core.likelihoods.outcomes import make_judge
from gp_mapping.intake import Intake
from gp_mapping.intake.topics import feed
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters
from gp_mapping.store.checkpoint import load_checkpoint

__all__ = ["KINDS", "run"]

TOTAL = 1_000_000  # hostile messages in all
SECONDS, RATE = 10.0, 50.0  # of the good drive of each kind
AHEAD = 8000  # messages sent beyond what the node says of those it has seen, and of measurements dealt with
EQUAL = 1e-9  # predictive standard deviations


def spoiled(part: str, name: str, value) -> Callable:
    """A good message with one field spoiled: `part` is field or pose, `name` a dotted path, [i] an index."""

    def make(mapper: LiveMapper, t: float, rng: random.Random) -> None:
        x, y = place_at(t)
        message = (
            mapper.measurement(t, mapper.sensor.truth(x, y))
            if part == "field"
            else mapper.pose(t, x, y)
        )
        target, given = message, value(rng) if callable(value) else value
        *path, last = name.split(".")
        for step in path:
            target = getattr(target, step)
        if last.endswith("]"):
            attribute, index = last[:-1].split("[")
            getattr(target, attribute)[int(index)] = given
        else:
            setattr(target, last, given)
        (mapper.field if part == "field" else mapper.odometry).publish(message)

    return make


def _several(part: str, changes: dict) -> Callable:
    makers = [spoiled(part, name, value) for name, value in changes.items()]
    return lambda mapper, t, rng: rng.choice(makers)(mapper, t, rng)


def _any_bits(rng: random.Random) -> float:
    """Any of the 2⁶⁴ numbers that is not one that a robot could mean."""
    while True:
        value = np.frombuffer(rng.randbytes(8), np.float64)[0]
        if not math.isfinite(value) or not 1e-12 < abs(value) < 1e7:
            return float(value)


def _last(t: float) -> float:
    """Stamp of the good message before t."""
    return math.floor(t * RATE + 1e-6) / RATE


@dataclass(frozen=True)
class Kind:
    """A kind of hostile message.  make: publishes one, by mapper, time and random numbers.  part: field or pose.

    sensor: of the robot it meets.  few: it comes once to every second good message, not sixty times to each.
    """

    make: Callable
    part: str
    sensor: Sensor = MAGNETIC
    few: bool = False


def _values(what: str, sensor: Sensor, values) -> dict[str, Kind]:
    """A kind for each value that the sensor's number cannot have."""
    return {
        f"{what}: {value}": Kind(spoiled("field", sensor.number, value), "field", sensor)
        for value in values
    }


def _fields(kinds: dict[str, Callable], few: bool = False) -> dict[str, Kind]:
    return {name: Kind(make, "field", few=few) for name, make in kinds.items()}


def _poses(kinds: dict[str, Callable], few: bool = False) -> dict[str, Kind]:
    return {name: Kind(make, "pose", few=few) for name, make in kinds.items()}


def _said_again_field(mapper: LiveMapper, t: float, _rng) -> None:
    mapper.field.publish(mapper.measurement(_last(t), 45e-6))


def _said_again_pose(mapper: LiveMapper, t: float, _rng) -> None:
    mapper.odometry.publish(mapper.pose(_last(t), *place_at(_last(t))))


_AXES = ("magnetic_field.x", "magnetic_field.y", "magnetic_field.z")
_POSITION = ("pose.pose.position.x", "pose.pose.position.y")
_TURN = tuple(f"pose.pose.orientation.{a}" for a in "xyzw")
_SPREAD = tuple(f"magnetic_field_covariance[{i}]" for i in (0, 4, 8))
_PLACED = ("pose.covariance[0]", "pose.covariance[7]")

KINDS: dict[str, Kind] = {
    **_fields(
        {
            f"field: {v}": _several("field", dict.fromkeys(_AXES, v))
            for v in (math.nan, math.inf, -math.inf, 1e308, -1e200, 1e30, 1.0)
        }
    ),
    **_fields(
        {
            "field: any bits": _several(
                "field", dict.fromkeys(_AXES, lambda rng: abs(_any_bits(rng)) + 1.0)
            )
        }
    ),
    **_fields(
        {
            f"covariance of the field: {v}": _several("field", dict.fromkeys(_SPREAD, v))
            for v in (math.nan, math.inf, 1e308, -1e200, 1e3)
        }
    ),
    **_values("lux", LIGHT, (math.nan, -math.inf, -1.0, 1e7, 1e308)),
    "variance of the lux: 1e+300": Kind(spoiled("field", "variance", 1e300), "field", LIGHT),
    **_values("count", COUNTS, (math.nan, math.inf, -1.0, -0.5, 1e300)),
    **_values("label", LABELS, (math.nan, -math.inf, -1.0, 0.5, 3.0, 1e8)),
    **_poses(
        {
            "pose: not a number": _several("pose", dict.fromkeys(_POSITION, math.nan)),
            "pose: infinite": _several("pose", dict.fromkeys(_POSITION, -math.inf)),
        }
    ),
    **_poses(
        {
            f"pose: {v} m": _several("pose", dict.fromkeys(_POSITION, v))
            for v in (1e308, -1e200, 1e154, 1e100, 1e30, 1e16, 1e9)
        }
    ),
    **_poses(
        {
            "pose: height 1e300 m": spoiled("pose", "pose.pose.position.z", 1e300),
            "covariance of the pose: 1e30 m²": _several("pose", dict.fromkeys(_PLACED, 1e30)),
            "orientation: not a number": _several("pose", dict.fromkeys(_TURN, math.nan)),
            "orientation: infinite": _several("pose", dict.fromkeys(_TURN, math.inf)),
            "orientation: 1e200": _several("pose", dict.fromkeys(_TURN, 1e200)),
            "orientation: zero": spoiled("pose", "pose.pose.orientation.w", 0.0),
        }
    ),
    # which frame is meant is what the many say
    **_fields(
        {"frame of the field: another": spoiled("field", "header.frame_id", "somewhere_else")},
        few=True,
    ),
    **_poses(
        {
            "frame of the pose: another": spoiled("pose", "header.frame_id", "another_world"),
            "frame of the pose: empty": spoiled("pose", "header.frame_id", ""),
        },
        few=True,
    ),
    **_fields(
        {
            "frame of the field: 10 kB": spoiled("field", "header.frame_id", "x" * 10_000),
            "frame of the field: always new": spoiled(
                "field", "header.frame_id", lambda rng: f"frame{rng.random()}"
            ),
        }
    ),
    **_poses(
        {
            "frame of the pose: always new": spoiled(
                "pose", "header.frame_id", lambda rng: f"frame{rng.random()}"
            )
        }
    ),
    **_fields(
        {
            f"stamp of the field: {name}": spoiled("field", "header.stamp.sec", v)
            for name, v in (("zero", 0), ("negative", -(2**31)), ("2038", 2**31 - 1))
        }
    ),
    **_poses(
        {
            f"stamp of the pose: {name}": spoiled("pose", "header.stamp.sec", v)
            for name, v in (("zero", 0), ("2038", 2**31 - 1))
        }
    ),
    **_fields({"field repeated": _said_again_field}),
    **_poses({"pose repeated": _said_again_pose}),
}


def run(quick: bool) -> list[Row]:
    """All kinds, as many of each, but for the few."""
    each = 300 if quick else math.ceil(TOTAL / sum(not kind.few for kind in KINDS.values()))
    names = list(KINDS)[::6] if quick else list(KINDS)
    return [hostile(name, each) for name in names]


def reference(sensor: Sensor, values: dict[str, object], times: list[float]) -> MapSession:
    """What an offline session makes of the good messages alone."""
    known = Parameters.build(
        {k: v for k, v in values.items() if k not in ("reliable_inputs", "save_directory")}
    )
    session, intake = MapSession(known.map), Intake(known.intake, judge=make_judge(known.map))
    for t in times:
        place = place_at(t)
        feed(intake, "pose", LiveMapper.pose(t, *place), 0)
        feed(intake, "measurement", sensor.measurement(t, sensor.truth(*place)), 0)
        for begins, samples in intake.batches():
            if begins:
                session.break_pass()
            session.ingest(samples)
    session.finish()
    return session


def difference(saved: Path, session: MapSession) -> float:
    """Largest difference of means and standard deviations, in predictive standard deviations."""
    live = MapSession.from_state_dict(load_checkpoint(saved))
    live.flush()
    grid = torch.linspace(-0.5, 4.5, 40, dtype=torch.float64)
    x = torch.cartesian_prod(grid, grid)
    a, b = live.predict(x), session.predict(x)
    sigma = (b.variance + b.noise_variance).sqrt()
    return float(
        torch.maximum((a.mean - b.mean).abs() / sigma, (a.stddev - b.stddev).abs() / sigma).max()
    )


def wait_for(mapper: LiveMapper, measured: int, posed: int) -> None:
    """Until all but AHEAD of so many messages are seen, and measurements dealt with: no queue overflows."""
    mapper.until(
        lambda: (
            mapper.received() + mapper.number("odometry received") >= measured + posed - AHEAD
            and mapper.unaccounted(measured) <= AHEAD
        ),
        timeout=300.0,
    )


def hostile(name: str, count: int, seed: int = 0) -> Row:
    """One kind between the messages of a drive; then the map beside that of the good messages."""
    from std_srvs.srv import Trigger

    rng, kind = random.Random(seed), KINDS[name]
    times = [i / RATE for i in range(round(SECONDS * RATE))]
    between, measured, posed, tried = count // len(times) + 1, 0, 0, 0
    with (
        tempfile.TemporaryDirectory() as folder,
        LiveMapper(
            Path(folder),
            autosave_period=0.0,
            forked=True,
            sensor=kind.sensor,
            learn_hyperparameters=False,
        ) as mapper,
    ):
        for i, t in enumerate(times):
            mapper.publish(t)
            now = (
                0 if i < 5 else i % 2 if kind.few else between
            )  # the first good ones say which frames are meant
            for k in range(now):
                kind.make(mapper, t + 1e-4 * (k + 1) / now, rng)
            tried += now
            measured, posed = (
                measured + 1 + now * (kind.part == "field"),
                posed + 1 + now * (kind.part == "pose"),
            )
            wait_for(mapper, measured, posed)
        mapper.publish(times[-1] + 1.0 / RATE)
        measured += 1
        mapper.settle(measured)
        latency = mapper.number("latency p99_ms") / 1e3
        answer = mapper.call(Trigger, "/mapping/save")[0]
        used, uncounted = int(mapper.number("samples")), mapper.unaccounted(measured)
        wanted = reference(
            kind.sensor,
            mapper.parameters | {"save_directory": ""},
            [*times, times[-1] + 1.0 / RATE],
        )
        far = difference(Path(folder) / "map.gpm", wanted) if answer.success else math.inf
    lost = max(0, len(times) - used)  # the last one waits for a pose after it
    remark = "" if far <= EQUAL else f"differs by {far:.1e} predictive sd"
    return Row(name, tried, tried if far <= EQUAL else 0, lost, uncounted, latency, remark)
