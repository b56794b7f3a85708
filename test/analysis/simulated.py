"""Simulated robots for the core's tests: benchmark/robots.py, on a smaller floor."""

from benchmark import robots
from benchmark.robots import Robot
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Robot", "mapped", "survey"]


def survey(robot, seed):
    """A mapping drive of about 36 m, and a test drive."""
    return robots.survey(robot, seed, width=3.6, depth=3.2)


def mapped(samples, **settings):
    session = MapSession(MapSettings(**settings))
    session.ingest(samples)
    session.flush()
    return session
