"""A field that changes between two visits, simulated: what following it is worth; and one that never changes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from benchmark.calibration.honesty_recordings import mapped, say
from benchmark.protocol import positions
from benchmark.robots import Robot, drive, survey, world_of
from benchmark.tables import Goal, Table
from gp_mapping.analysis.residuals import LEVELS, residuals
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.robot import lawnmower

__all__ = ["Change", "changed_worlds", "unchanged_worlds"]

_HOURS = 0.5  # of each robot in an unchanging world
_ALLOWED = 0.1  # reported changes an hour in a field that never changes
_ROBOTS = {
    "white .2 µT": Robot(),
    "OU .4 µT, .7 s; δ .1 s": Robot(correlated=0.4e-6, delay=0.1),
    "OU 1 µT, 2 s; δ .3 s": Robot(correlated=1e-6, correlation=2.0, delay=0.3),
    "OU .4 µT; 3 µT turn with it": Robot(correlated=0.4e-6, bias=3e-6),
    "OU .4 µT; δ −.1 s; .6 m/s": Robot(correlated=0.4e-6, delay=-0.1, speed=0.6),
}
_NEAR = 1.0  # m; an alarm this near to the middle of what was brought in has found it


class Change:
    """Something is brought into the room: ΔB(x) = A (1 + .8 u·d) exp(−½|u|²), u = (x − c)/h; A, c, h, d of the seed.

    |A| 6 to 15 µT, h .25 to .6 m, c where the first half of a visit meets the second.
    """

    def __init__(self, seed: int):
        rng = np.random.default_rng([seed, 11])
        self.centre = np.array([rng.uniform(1.2, 3.8), rng.uniform(1.6, 2.4)])
        self.size, self.width = (
            rng.uniform(6e-6, 15e-6) * rng.choice([-1.0, 1.0]),
            rng.uniform(0.25, 0.6),
        )
        angle = rng.uniform(0, 2 * math.pi)
        self.direction = np.array([math.cos(angle), math.sin(angle)])

    def __call__(self, samples: Samples) -> Samples:
        """The samples with it in the room."""
        u = (samples.x.numpy() - self.centre) / self.width
        more = self.size * (1 + 0.8 * u @ self.direction) * np.exp(-0.5 * np.square(u).sum(1))
        return replace(samples, y=samples.y.numpy() + more[:, None])

    def distances(self, alarms) -> list[float]:
        """How far from the middle each alarm was, m."""
        return [float(np.hypot(c.x - self.centre[0], c.y - self.centre[1])) for c in alarms]


def changed_worlds(seeds: range) -> tuple[Table, list[Goal]]:
    """One visit maps the room, half of a second one sees part of the change; the other half is the test."""
    table = Table(
        "A field that changed, simulated: a visit, then half of another; tested on its other half",
        [
            ("map", ""),
            ("RMSE µT", ".3f"),
            ("ratio to not followed", ".3f"),
            ("NLPD", ".3f"),
            *((f"in {100 * level:g} %", ".3f") for level in LEVELS),
            ("changes found", ".1f"),
            ("found, of worlds", ".2f"),
            ("after the whole visit", ".2f"),
            ("false changes", ".1f"),
        ],
    )
    kinds = {
        "changes followed": {},
        "not followed": {"follow_changes": False},
        "of the first half alone": {},
    }
    rows = {name: [] for name in kinds}
    for seed in seeds:
        robot, change = Robot(correlated=0.4e-6), Change(seed)
        before, _ = survey(robot, seed)
        lanes = lawnmower(0.45, 0.5, 4.6, 3.6, 0.45, 0.75)
        after = change(drive(robot, world_of(seed), lanes, seed + 500, start=3001.0))
        first, second = after[: len(after) // 2], after[len(after) // 2 :]
        for name, settings in kinds.items():
            say(f"a change, seed {seed}, {name}")
            passes = [first] if "alone" in name else [before, first]
            session = mapped(passes, **settings)
            found = residuals(session, [second], positions(passes)).summary()
            half = change.distances(session.changes)
            session.ingest(second)
            session.break_pass()
            whole = change.distances(session.changes)
            rows[name].append(
                [
                    found["rmse_ut"],
                    found["nlpd"],
                    *found["coverage_levels"].values(),
                    len(half),
                    any(a <= _NEAR for a in half),
                    any(a <= _NEAR for a in whole),
                    sum(a > _NEAR for a in whole),
                ]
            )
    base = np.array([r[0] for r in rows["not followed"]])
    for name, found in rows.items():
        mean = np.mean(found, axis=0).tolist()
        table.add(name, mean[0], float((np.array([r[0] for r in found]) / base).mean()), *mean[1:])
    table.notes = [
        f"{len(seeds)} worlds. Found: an alarm within {_NEAR:g} m of the middle, after half of the second "
        "visit, when the RMSE is taken, and after all of it; false: farther away."
    ]
    followed = table.rows[0]
    return table, [
        Goal("Simulated change: RMSE followed / not followed", followed[2], high=0.9),
        Goal(
            "Simulated change: fraction of worlds where a whole visit finds it",
            followed[-2],
            low=0.95,
        ),
        Goal("Simulated change: false changes a world", followed[-1], high=0.1),
    ]


def unchanged_worlds(seeds: range) -> tuple[Table, list[Goal]]:
    """Surveys of one room over and over, lanes moved and turned, and drives to and fro: nothing changes in it."""
    table = Table(
        "A field that never changes, simulated: surveys of one room over and over",
        [
            ("robot", ""),
            ("hours", ".1f"),
            ("path m", ".0f"),
            ("changes reported", ".0f"),
            ("in ten hours", ".2f"),
        ],
    )
    for name, robot in _ROBOTS.items():
        hours, metres, reported = 0.0, 0.0, 0
        for seed in seeds:
            say(f"nothing changes, {name}, seed {seed}")
            spent, path, found = _hours_of_nothing(robot, seed)
            hours, metres, reported = hours + spent, metres + path, reported + found
        table.add(name, hours, metres, reported, 10.0 * reported / hours)
    total, found = sum(row[1] for row in table.rows), sum(row[3] for row in table.rows)
    table.notes = [
        f"{len(seeds)} worlds each; lanes lie elsewhere in every survey, and every third drive goes to "
        "thirty places drawn at random."
    ]
    return table, [
        Goal("A field that never changes: reported changes an hour", found / total, high=_ALLOWED)
    ]


def _hours_of_nothing(robot: Robot, seed: int) -> tuple[float, float, int]:
    """Hours that were driven, metres of path, and changes reported."""
    rng, session, at, n = np.random.default_rng([seed, 5]), MapSession(MapSettings()), 1.0, 0
    while at < _HOURS * 3600.0:
        corner = 0.35 + 0.2 * rng.random(2)
        way = lawnmower(
            *corner, 5 - corner[0], 4 - corner[1], rng.uniform(0.4, 0.6), rng.uniform(0.6, 1.0)
        )
        if n % 3 == 2:
            way = rng.uniform((0.3, 0.3), (4.7, 3.7), (30, 2))
        elif rng.random() < 0.5:
            way = way[::-1]
        samples = drive(robot, world_of(seed), way, 1000 * seed + n, start=at)
        session.ingest(samples)
        session.break_pass()
        at, n = float(samples.stamp[-1]) + 1.0, n + 1
    report = session.report()
    return at / 3600.0, report["path_length"], report["changes"]
