"""Simulated robots for the core's tests: benchmark/robots.py, on a smaller floor."""

from benchmark import robots
from benchmark.robots import Robot
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.robot import lawnmower

__all__ = ["Robot", "mapped", "survey"]


def survey(robot, seed):
    """The mapping drive of robots.survey, of about 36 m."""
    world = robots.world_of(seed, 3.6, 3.2)
    return robots.drive(robot, world, lawnmower(0.4, 0.4, 3.2, 2.8, 0.5, 0.8), seed)


# near what the room is: to find starts takes the first cells in again and again, which is mapping/test_start.py's
STARTS = {
    "lengthscale": 0.6,
    "signal_stddev": 8e-6,
    "noise_stddev": 0.5e-6,
    "constant_stddev": 24e-6,
    "cell_length": 0.2,
}


def mapped(samples, **settings):
    """What is learned is learned as by default, from given starts."""
    session = MapSession(MapSettings(**STARTS | settings))
    session.ingest(samples)
    session.flush()
    return session
