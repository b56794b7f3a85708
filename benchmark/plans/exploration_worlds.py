"""Worlds to explore: a field that is known everywhere, rooms with walls and boxes, a robot and its measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch

from gp_mapping.core.types import Samples
from gp_mapping.planning import FreeSpace, SurveyArea
from gp_mapping.sim.world import DipoleWorld, WorldSettings

__all__ = ["KINDS", "Robot", "Sight", "World", "make_world"]

KINDS = ("gp open", "dipoles open", "gp rooms", "dipoles rooms", "rough corner")
SIDE, RESOLUTION, RADIUS = 7.4, 0.1, 0.2  # m
SIGHT = 4.0  # m, how far a robot sees that does not know the walls
SPEED, TURN_RATE, RATE = 0.3, 1.0, 50.0  # m/s, rad/s, Hz
WHITE, CORRELATED, CORRELATION_TIME = 0.2e-6, 0.4e-6, 0.7  # T, T, s


@dataclass
class World:
    """field: (N, 2) m -> (N,) T.  occupied (H, W): 0 or 100.  free: what a robot at start can reach.

    cells (G, 2) m, truth (G,) T: to be known.
    """

    name: str
    seed: int
    field: object
    occupied: np.ndarray
    free: FreeSpace
    start: np.ndarray
    area: SurveyArea
    truth: np.ndarray

    @property
    def size(self) -> float:
        return self.area.size

    @property
    def spread(self) -> float:
        """Standard deviation of the field over the area, T."""
        weights = self.area.areas.numpy() / self.area.size
        return float(np.sqrt(weights @ np.square(self.truth - weights @ self.truth)))


def make_world(kind: str, seed: int) -> World:
    """The world of that kind and seed. ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    rng = np.random.default_rng([seed, KINDS.index(kind), 7])
    if kind.startswith("dipoles"):
        dipoles = DipoleWorld.random(
            WorldSettings(
                seed=1000 + seed, width=SIDE, depth=SIDE, dipole_spacing=1.4, sensor_height=0.5
            )
        )
        field = dipoles.norm
    else:
        field = _gaussian(rng, rough=kind == "rough corner")
    occupied = _rooms(rng, walls=kind.endswith("rooms"))
    free = FreeSpace.from_occupancy_grid(_message(occupied), RADIUS)
    # the robot begins in a corner, as one that was carried in through the door
    centres = free.centres()
    corner = np.array([0.0, SIDE])[rng.integers(0, 2, 2)]
    start = centres[np.hypot(*(centres - corner).T).argmin()]
    area = SurveyArea.from_free_space(free, start, max_cells=2000)
    return World(kind, seed, field, occupied, area.free, start, area, field(area.cells.numpy()))


def _gaussian(rng: np.random.Generator, rough: bool):
    """A Matérn-5/2 field by random features, sd 10 µT; rough: of a third of the lengthscale in one corner."""
    lengthscale = rng.uniform(0.6, 1.1)

    def draw(scale: float):
        count = 2000
        frequency = (
            rng.normal(size=(count, 2)) / scale * np.sqrt(5.0 / rng.chisquare(5.0, (count, 1)))
        )
        phase = rng.uniform(0, 2 * np.pi, count)
        return lambda x: np.sqrt(2.0 / count) * np.cos(np.asarray(x) @ frequency.T + phase).sum(1)

    smooth, fine = draw(lengthscale), draw(lengthscale / 3)
    corner = np.array([0.0, SIDE])[rng.integers(0, 2, 2)]

    def field(x):
        x = np.asarray(x, dtype=np.float64).reshape(-1, 2)
        if not rough:
            return 45e-6 + 10e-6 * smooth(x)
        share = 1.0 / (1.0 + np.exp((np.hypot(*(x - corner).T) - 0.45 * SIDE) / 0.3))
        return 45e-6 + 10e-6 * (0.5 * smooth(x) + share * fine(x))

    return field


def _rooms(rng: np.random.Generator, walls: bool) -> np.ndarray:
    n = round(SIDE / RESOLUTION)
    data = np.zeros((n, n))
    data[[0, -1]] = 100
    data[:, [0, -1]] = 100
    if walls:
        for axis in (0, 1):
            at, door = rng.integers(n // 3, 2 * n // 3), rng.integers(4, n - 16)
            wall = np.full(n, 100.0)
            wall[door : door + 10] = 0
            other = int(door + n // 2) % (n - 16)
            wall[other + 3 : other + 13] = 0
            part = data if axis == 0 else data.T
            part[at] = np.maximum(part[at], wall)
        for _ in range(3):
            row, column = rng.integers(4, n - 12, 2)
            data[row : row + rng.integers(4, 9), column : column + rng.integers(4, 9)] = 100
    return data


def _message(data: np.ndarray):
    still = SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)
    info = SimpleNamespace(
        resolution=RESOLUTION,
        width=data.shape[1],
        height=data.shape[0],
        origin=SimpleNamespace(position=SimpleNamespace(x=0.0, y=0.0, z=0.0), orientation=still),
    )
    return SimpleNamespace(info=info, data=data.ravel(), header=SimpleNamespace(frame_id="map"))


class Sight:
    """What a robot has seen of a world's walls so far, all around itself and as far as SIGHT."""

    def __init__(self, occupied: np.ndarray):
        self._occupied, self._seen = occupied, np.full(occupied.shape, -1.0)
        angles = np.arange(0.0, math.tau, 0.5 * RESOLUTION / SIGHT)
        ranges = np.arange(0.0, SIGHT, 0.5 * RESOLUTION)
        self._rays = ranges[None, :, None] * np.stack([np.cos(angles), np.sin(angles)], 1)[:, None]

    def look(self, position: np.ndarray) -> None:
        """See from a position (2,) m: each ray ends in the first cell that is occupied."""
        column, row = ((position + self._rays) / RESOLUTION).astype(int).transpose(2, 0, 1)
        height, width = self._occupied.shape
        inside = (0 <= row) & (row < height) & (0 <= column) & (column < width)
        row, column = row.clip(0, height - 1), column.clip(0, width - 1)
        hit = (self._occupied[row, column] > 0) | ~inside
        seen = np.cumsum(hit, axis=1) - hit == 0
        at = row[seen & inside], column[seen & inside]
        self._seen[at] = self._occupied[at]

    def free(self) -> FreeSpace:
        """Return the free space that is known; what has not been seen is unknown."""
        return FreeSpace.from_occupancy_grid(_message(self._seen), RADIUS)


class Robot:
    """Drives along lines at a steady pace, turning on the spot, and measures as it drives."""

    def __init__(self, world: World, seed: int):
        self.world, self.rng = world, np.random.default_rng([seed, world.seed, 13])
        self.position, self.heading = world.start.copy(), math.nan
        self.time = self.metres = self.turned = 0.0
        self._phase = 0.0
        self._track = [self.position.copy()]
        self.way = [self.position]  # all corners since the start
        self._error = CORRELATED * self.rng.normal()

    def track(self) -> np.ndarray:
        """Where it has been since this was last asked, (K, 2) m."""
        track, self._track = np.array(self._track), [self.position.copy()]
        return track

    def stand(self, seconds: float) -> Samples:
        """Measurements of a robot that does not move; for the first words about a field."""
        count = int(seconds * RATE)
        stamps = self.time + np.arange(count) / RATE
        self.time += seconds
        return self._measured(np.repeat(self.position[None], count, 0), stamps)

    def drive(self, line: np.ndarray, most: float) -> Samples:
        """Along line (K, 2), at most so many metres: the measurements on the way."""
        xs, stamps = [], []
        for a, b in pairwise(line):
            length = math.dist(a, b)
            if length < 1e-9:
                continue
            if most <= 1e-9:
                break
            heading = math.atan2(*(b - a)[::-1])
            if not math.isnan(self.heading):
                turn = abs(math.remainder(heading - self.heading, math.tau))
                self.time += turn / TURN_RATE
                self.turned += turn
            self.heading = heading
            go, step = min(length, most), SPEED / RATE
            marks = np.arange(self._phase, go, step)
            xs.append(a + (b - a) * (marks / length)[:, None])
            stamps.append(self.time + marks / SPEED)
            self._phase = float(marks[-1] + step - go) if len(marks) else self._phase - go
            self.position = a + (b - a) * (go / length)
            self._track.append(self.position)
            self.way.append(self.position)
            self.metres, self.time, most = self.metres + go, self.time + go / SPEED, most - go
        if not xs:
            return self._measured(np.empty((0, 2)), np.empty(0))
        return self._measured(np.concatenate(xs), np.concatenate(stamps))

    def _measured(self, x: np.ndarray, stamps: np.ndarray) -> Samples:
        """|B| with white noise and an Ornstein-Uhlenbeck error, T."""
        values = self.world.field(x) if len(x) else np.empty(0)
        keep = math.exp(-1.0 / RATE / CORRELATION_TIME)
        shocks = CORRELATED * math.sqrt(1 - keep * keep) * self.rng.normal(size=len(x))
        error = np.empty(len(x))
        for i, shock in enumerate(shocks):
            self._error = keep * self._error + shock
            error[i] = self._error
        values = values + error + WHITE * self.rng.normal(size=len(x))
        return Samples(
            torch.from_numpy(x), torch.from_numpy(values)[:, None], stamp=torch.from_numpy(stamps)
        )
