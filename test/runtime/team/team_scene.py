"""Robots that drive in one room, and mappers with real workers that hand each other's messages on."""

from __future__ import annotations

import copy
import functools
import random
import time

import torch

from benchmark.robots import Robot, survey
from gp_mapping.intake import Intake
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.incoming import MemoryPool, Source
from gp_mapping.runtime.team.outgoing import Outgoing
from gp_mapping.runtime.team.summing import Member, sum_maps
from gp_mapping.runtime.team.team import Team
from gp_mapping.runtime.team.totals import totals_of
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings

# as many inputs as the data want, so that a sum differs from the map of all data by nothing but rounding and order
CLOSE = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "lengthscale": 0.6,
    "signal_stddev": 5e-6,
    "noise_stddev": 1e-6,
    # to guess it a map takes its first cells in again and again, which is for mapping/beginning/test_start.py
    "constant_stddev": 2e-5,
    "follow_changes": False,
    "robust": False,
    "local_scale": False,
    "inducing_information": 0.0,
    "inducing_tolerance": 1e-4,
    "max_inducing": 700,
    "cell_length": 0.2,
}
QUICK = CLOSE | {"inducing_information": 1.0, "max_inducing": 200}


@functools.cache
def drives(seed: int = 1):
    """Of two robots, in one world: Samples of each."""
    return tuple(survey(Robot(speed=0.6), seed, 2.8, 2.4))


_MADE: dict = {}


def session_of(*parts, frame: str = "odom", quantity: str = "field", **settings) -> MapSession:
    """A session that has taken in these drives, each a pass."""
    key = (
        *((len(part), float(part.x.sum()), float(part.y.sum())) for part in parts),
        *sorted(settings.items()),
    )
    if key not in _MADE:  # mapping takes seconds, a copy does not
        session = MapSession(MapSettings(**settings))
        for part in parts:
            session.ingest(part)
            session.break_pass()
        _MADE[key] = session.state_dict()
    session = MapSession.from_state_dict(copy.deepcopy(_MADE[key]))
    session.about = {"frame": frame, "quantity": quantity}
    return session


def difference(one, other, x) -> tuple[float, float]:
    """Largest difference of the means in standard deviations of the second, and of the standard deviations' ratio."""
    a, b = one.predict(x), other.predict(x)
    sd = b.variance.sqrt()
    return float(((a.mean - b.mean).abs() / sd).max()), float(
        (a.variance.sqrt() / sd - 1.0).abs().max()
    )


class Mapper:
    """A worker with its team. now: the clock of tick(), of its own. of: settings of the sum's map."""

    def __init__(self, name: str, session: MapSession, robots: list[str], of=None, **settings):
        self.name, self.settings = (
            name,
            NodeSettings(**({"publish_tiles": True, "tiles_bandwidth": 1e8} | settings)),
        )
        self.errors: list[str] = []
        self.worker = MapWorker(
            session, Intake(IntakeSettings()), queue_size=1000, on_error=self.errors.append
        )
        self.team = Team(
            self.worker,
            lambda: self.settings,
            lambda: of or session.settings,
            name,
            robots,
            lambda: str(session.about.get("frame") or ""),
            on_error=self.errors.append,
        )
        self.worker.start()

    def __enter__(self) -> Mapper:
        return self

    def __exit__(self, *_) -> None:
        self.worker.stop(abandon=True)

    def shown(self, x: torch.Tensor):
        return self.worker.ask(lambda session: session.predict(x)).result(30)

    def predict(self, x: torch.Tensor):
        return self.shown(x)

    def cells(self) -> int:
        return self.worker.ask(lambda session: session.cell_count).result(30)


def exchange(
    mappers: list[Mapper],
    seconds: float,
    now: float = 0.0,
    loss: float = 0.0,
    repeat: float = 0.0,
    shuffle: bool = False,
    seed: int = 0,
    until=lambda: False,
) -> float:
    """Let them talk for so many seconds of their clocks; the time then.

    loss, repeat: shares of messages.  shuffle: each is handed on late, in any order.
    """
    rng, waiting = random.Random(seed), []
    end = now + seconds
    while now < end and not until():
        for mapper in mappers:
            message = mapper.team.tick(now)
            if message is not None:
                waiting += [(mapper.name, message)] * (2 if rng.random() < repeat else 1)
        if shuffle:
            rng.shuffle(waiting)
        for _ in range(len(waiting) if not shuffle or rng.random() < 0.2 else len(waiting) // 3):
            name, message = waiting.pop()
            for other in mappers:
                if name in other.team.sources and rng.random() >= loss:
                    other.team.accept(name, message)
        time.sleep(0.01)  # threads beside
        now += 0.1
    return now


def messages_of(session, name="robot1", number=None) -> list[bytes]:
    """All parts of a session's totals, as they are sent."""
    out = Outgoing(name, session.map.slimmed)
    out.update(totals_of(session))
    found, now = [], 0.0
    while (part := out.due(now, 1e9, 1.0, 1e9)) is not None:
        message = out.message(part)()
        found.append(message[0])
        out.mark_sent(*message, now)
        now += 1.0
    return found


def source_of(*sessions, name="robot1", most=100.0) -> Source:
    source = Source(name, MemoryPool(most))
    for session in sessions:
        for message in messages_of(session, name):
            assert source.accept(message, 0.0), source.fault
    return source


def members_of(*sources) -> list[Member]:
    return [Member(g.source.name, g.map_id, g.state, g.version) for s in sources for g in s.ready()]


def own_of(session) -> Member:
    totals = totals_of(session)
    return Member(
        "this robot", totals.map_id, lambda: totals.state, ("own", totals.number), own=True
    )


def sum_of(*members, settings=None, frame="", transforms=None, **more):
    return sum_maps(members, settings or MapSettings(**QUICK), frame, "", transforms or {}, **more)
