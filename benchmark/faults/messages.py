"""Hostile messages between good ones: real messages, over DDS, into a real node.

Each kind goes between the measurements of a drive, thousands of times. survived: the map is that of the
good messages alone, which an offline session makes of them: the same cells, and means and deviations
equal to 1e-9 of a predictive standard deviation. Where a kind takes good measurements with it, those
are `lost`, and each must have been counted. worst: arrival to map, the 99th percentile.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmark.faults.live import LiveMapper, field_at, place_at
from benchmark.faults.rows import Row
from gp_mapping.intake import Intake
from gp_mapping.intake.topics import feed
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters
from gp_mapping.store.checkpoint import load_checkpoint

__all__ = ["KINDS", "run"]

TOTAL = 1_000_000  # hostile messages in all
SECONDS, RATE = 10.0, 50.0  # of the good drive of each kind
AHEAD = 8000  # messages sent beyond what the node says it has seen
EQUAL = 1e-9  # predictive standard deviations


def spoiled(part: str, name: str, value) -> Callable:
    """A good message with one field spoiled: `part` is field or pose, `name` a dotted path, [i] an index."""
    def make(mapper: LiveMapper, t: float, rng: random.Random) -> None:
        x, y = place_at(t)
        message = mapper.measurement(t, field_at(x, y)) if part == "field" else mapper.pose(t, x, y)
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


_AXES = ("magnetic_field.x", "magnetic_field.y", "magnetic_field.z")
_POSITION = ("pose.pose.position.x", "pose.pose.position.y")
_TURN = tuple(f"pose.pose.orientation.{a}" for a in "xyzw")

KINDS: dict[str, Callable] = {
    **{f"field: {v}": _several("field", dict.fromkeys(_AXES, v)) for v in (
        math.nan, math.inf, -math.inf, 1e308, -1e200, 1e30, 1.0)},
    "field: any bits": _several("field", dict.fromkeys(_AXES, lambda rng: abs(_any_bits(rng)) + 1.0)),
    "pose: not a number": _several("pose", dict.fromkeys(_POSITION, math.nan)),
    "pose: infinite": _several("pose", dict.fromkeys(_POSITION, -math.inf)),
    **{f"pose: {v} m": _several("pose", dict.fromkeys(_POSITION, v)) for v in (
        1e308, -1e200, 1e154, 1e100, 1e30, 1e16, 1e9)},
    "pose: height 1e300 m": spoiled("pose", "pose.pose.position.z", 1e300),
    "orientation: not a number": _several("pose", dict.fromkeys(_TURN, math.nan)),
    "orientation: infinite": _several("pose", dict.fromkeys(_TURN, math.inf)),
    "orientation: 1e200": _several("pose", dict.fromkeys(_TURN, 1e200)),
    "orientation: zero": spoiled("pose", "pose.pose.orientation.w", 0.0),
    "frame of the field: another": spoiled("field", "header.frame_id", "somewhere_else"),
    "frame of the field: 10 kB": spoiled("field", "header.frame_id", "x" * 10_000),
    "frame of the field: always new": spoiled("field", "header.frame_id", lambda rng: f"frame{rng.random()}"),
    "frame of the pose: another": spoiled("pose", "header.frame_id", "another_world"),
    "frame of the pose: empty": spoiled("pose", "header.frame_id", ""),
    "frame of the pose: always new": spoiled("pose", "header.frame_id", lambda rng: f"frame{rng.random()}"),
    "stamp of the field: zero": spoiled("field", "header.stamp.sec", 0),
    "stamp of the field: negative": spoiled("field", "header.stamp.sec", -2**31),
    "stamp of the field: 2038": spoiled("field", "header.stamp.sec", 2**31 - 1),
    "stamp of the pose: zero": spoiled("pose", "header.stamp.sec", 0),
    "stamp of the pose: 2038": spoiled("pose", "header.stamp.sec", 2**31 - 1),
    "field said again": lambda mapper, t, rng: mapper.field.publish(mapper.measurement(_last(t), 45e-6)),
    "pose said again": lambda mapper, t, rng: mapper.odometry.publish(mapper.pose(_last(t), *place_at(_last(t)))),
}

# which frame is meant is what the many say: these come once to every second good message
FEW = ("frame of the field: another", "frame of the pose: another", "frame of the pose: empty")


def run(quick: bool) -> list[Row]:
    """All kinds, as many of each, but for the few."""
    each = 300 if quick else math.ceil(TOTAL / (len(KINDS) - len(FEW)))
    names = list(KINDS)[::6] if quick else list(KINDS)
    return [hostile(name, each) for name in names]


def reference(values: dict[str, object], times: list[float]) -> MapSession:
    """What an offline session makes of the good messages alone."""
    known = Parameters.build({k: v for k, v in values.items() if k not in ("reliable_inputs", "save_directory")})
    session, intake = MapSession(known.map), Intake(known.intake)
    for t in times:
        feed(intake, "pose", LiveMapper.pose(t, *place_at(t)), 0)
        feed(intake, "measurement", LiveMapper.measurement(t, field_at(*place_at(t))), 0)
        for begins, samples in intake.batches():
            if begins:
                session.break_pass()
            session.ingest(samples)
    session.flush()
    return session


def difference(saved: Path, session: MapSession) -> float:
    """Largest difference of means and standard deviations, in predictive standard deviations."""
    live = MapSession.from_state_dict(load_checkpoint(saved))
    live.flush()
    grid = torch.linspace(-0.5, 4.5, 40, dtype=torch.float64)
    x = torch.cartesian_prod(grid, grid)
    a, b = live.predict(x), session.predict(x)
    sigma = (b.variance + b.noise_variance).sqrt()
    return float(torch.maximum((a.mean - b.mean).abs() / sigma, (a.stddev - b.stddev).abs() / sigma).max())


def wait_for(mapper: LiveMapper, count: int) -> None:
    """Until the node says that it has seen so many messages: no queue of the middleware overflows."""
    mapper.until(lambda: mapper.received() + mapper.number("odometry received") >= count)


def hostile(name: str, count: int, seed: int = 0) -> Row:
    """One kind between the messages of a drive; then the map beside that of the good messages."""
    from std_srvs.srv import Trigger

    rng, make = random.Random(seed), KINDS[name]
    times = [i / RATE for i in range(round(SECONDS * RATE))]
    between, sent, posed, tried = count // len(times) + 1, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, LiveMapper(Path(folder), autosave_period=0.0, forked=True,
                                                             learn_hyperparameters=False) as mapper:
        fields = "field" in name.split(":")[0] and "pose" not in name.split(":")[0]
        for i, t in enumerate(times):
            mapper.publish(t)
            now = 0 if i < 5 else i % 2 if name in FEW else between  # the first good ones say which frames are meant
            for k in range(now):
                make(mapper, t + 1e-4 * (k + 1) / now, rng)
            tried += now
            sent, posed = sent + 1 + now * fields, posed + 1 + now * (not fields)
            wait_for(mapper, sent + posed - AHEAD)
        mapper.publish(times[-1] + 1.0 / RATE)
        mapper.settle(sent + 1)
        latency = mapper.number("latency p99_ms") / 1e3
        answer = mapper.call(Trigger, "/mapping/save")[0]
        used, dropped = int(mapper.number("samples")), mapper.dropped()
        waits = int(mapper.number("waiting for a pose"))
        wanted = reference(mapper.parameters | {"save_directory": ""}, [*times, times[-1] + 1.0 / RATE])
        far = difference(Path(folder) / "map.gpm", wanted) if answer.success else math.inf
    good = len(times) + 1
    lost = max(0, good - 1 - used)
    uncounted = max(0, sent + 1 - used - dropped - waits)
    remark = "" if far <= EQUAL else f"differs by {far:.1e} predictive sd"
    return Row(name, tried, tried if far <= EQUAL or lost else 0, lost, uncounted, latency, remark)

