"""All three axes of protocol P: one curl-free map against three independent ones, paired on the same held-out samples.

`python -m benchmark vector_field [--quick] [--only off,learned,axle]` prints the table of docs/models.md. Everything is
learned online, from the default start, through MapSession; of the independent maps every one learns its own θ, time
offset and heading term. off: no time offset and no heading; learned: both; axle: with the headings of the path, too.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace

import numpy as np
import torch

from benchmark.all_models.models_rows import AXLE
from benchmark.protocol import TEST, TRAIN, stream
from benchmark.recordings import recordings_folder
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.types import Samples
from gp_mapping.mapping.drawing.vector import excess, norm
from gp_mapping.recording.magnetic_csv import read_trial

__all__ = ["TABLES", "run"]

TABLES = ("off", "learned", "axle")
UNIT = 1e-6  # T
EVERY = 5  # of the training samples one of so many: ten a second
THINNED = 5  # every fifth held-out sample, 10 a second
SETTINGS = {
    "harmonic": {"model": "curl_free"},
    "single": {},
    "free": {"model": "curl_free", "potential": "free", "kernel": "rbf"},
}
ROBOTS = {
    "off": {"heading_stddev": 0.0, "learn_time_offset": False},
    "learned": {},
    "axle": {"axle_distance": AXLE},
}


def trial(number: int, most: int | None, every: int = 1) -> Samples:
    """All three axes, T; of the first `most` samples every so many."""
    t = read_trial(recordings_folder(), str(number))
    return Samples(t.position[:most:every, :2], t.field[:most:every], stamp=t.time[:most:every])


def component(samples: Samples, c: int) -> Samples:
    return replace(samples, y=samples.y[:, c : c + 1])


def predict(sessions: list, samples: Samples) -> tuple[np.ndarray, ...]:
    """Measured, as the map sees it, mean, latent variance, noise variance, (n, 3) each; mean and latent stddev of the
    norm, (n,); µT, at every THINNED-th sample of a pass."""
    whole = [
        s.as_mapped(samples if len(sessions) == 1 else component(samples, c))
        for c, s in enumerate(sessions)
    ]
    some, speed = [w[::THINNED] for w in whole], velocities(samples)[::THINNED]
    parts = [s.predict(w.x, speed, w.heading) for s, w in zip(sessions, some)]
    told, spread = (torch.cat([getattr(p, k) for p in parts], 1) for k in ("mean", "variance"))
    noise = torch.cat([p.noise_variance.expand_as(p.mean) for p in parts], 1).numpy()
    beyond = torch.from_numpy(excess(parts[0])) if len(parts) == 1 else 0.0
    of_norm = [part.numpy() / UNIT for part in norm(told.mT, spread.mT, beyond)]
    mean, variance = told.numpy(), spread.numpy()
    y = torch.cat([w.y for w in some], 1).numpy()
    return y / UNIT, mean / UNIT, variance / UNIT**2, noise / UNIT**2, *of_norm


def scores(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> tuple[float, float, float]:
    """RMSE, NLPD, share in the 95 % interval, over samples and components."""
    square = (y - mean) ** 2
    nlpd = 0.5 * (np.log(2 * math.pi * variance) + square / variance)
    return (
        float(np.sqrt(square.mean())),
        float(nlpd.mean()),
        float((square <= 1.96**2 * variance).mean()),
    )


def velocities(samples: Samples) -> torch.Tensor:
    """Over half a second about each sample, (N, 2) m/s."""
    x, t, k = samples.x, samples.stamp, 12
    ahead = torch.arange(len(x)).add(k).clamp_max(len(x) - 1)
    behind = torch.arange(len(x)).sub(k).clamp_min(0)
    return (x[ahead] - x[behind]) / (t[ahead] - t[behind])[:, None]


def protocol_p(quick: bool, robots) -> tuple[Table, list[Goal]]:
    """Trials 1, 2, 3, 5 in time order, test on 4."""
    most = 1200 if quick else None
    train, test = [trial(k, most, EVERY) for k in TRAIN], trial(TEST, most)
    table = Table(
        "Protocol P, three axes, everything learned online",
        [
            ("map", ""),
            ("time offset, heading", ""),
            ("M", "d"),
            ("RMSE µT", ".3f"),
            ("NLPD", ".3f"),
            ("in 95 %", ".3f"),
            ("RMSE x", ".2f"),
            ("y", ".2f"),
            ("z", ".2f"),
            ("RMSE of the norm", ".3f"),
            ("in 95 %", ".3f"),
            ("s", ".0f"),
        ],
    )
    found = {}
    for robot in robots:
        extra = ROBOTS[robot]
        for name, settings in SETTINGS.items():
            start = time.perf_counter()
            channels = range(3) if name == "single" else [slice(None)]
            streams = [
                train if name != "single" else [component(t, c) for t in train] for c in channels
            ]
            sessions = [stream(s, **settings | extra) for s in streams]
            seconds = time.perf_counter() - start
            truth, mean, variance, noise, far, spread = predict(sessions, test)
            length = np.linalg.norm(truth, axis=1)
            unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
            total = np.sqrt(spread**2 + (unit**2 * noise).sum(1))
            found[robot, name] = scores(truth, mean, variance + noise)
            each = np.sqrt(((truth - mean) ** 2).mean(0)).tolist()
            table.add(
                {
                    "single": "three independent (dual_svgp)",
                    "free": "curl_free, free (RBF)",
                    "harmonic": "curl_free, harmonic",
                }[name],
                robot,
                sum(len(s.inducing) for s in sessions),
                *found[robot, name],
                *each,
                float(np.sqrt(((length - far) ** 2).mean())),
                float((np.abs(length - far) <= 1.96 * total).mean()),
                seconds,
            )
            print(
                f"vector_field: {name}, {robot}: {table.rows[-1][2:]}", file=sys.stderr, flush=True
            )
            if name == "harmonic":
                print(
                    f"vector_field: {sessions[0].report()['hyperparameters']}",
                    file=sys.stderr,
                    flush=True,
                )
    goals = []
    for robot in robots:
        one, three = found[robot, "harmonic"], found[robot, "single"]
        with_robot = {"axle": "with headings of the path"}.get(robot, f"offset and heading {robot}")
        goals += [
            Goal(f"curl_free / independent RMSE, {with_robot}", one[0] / three[0], high=0.85),
            Goal(f"nats gained, {with_robot}", three[1] - one[1], low=0.3),
            Goal(f"curl_free in 95 %, {with_robot}", one[2], 0.90, 0.97),
        ]
    table.notes = [
        f"Every {THINNED}th held-out sample; mean over components. M: of the three together, or places "
        "with an inducing variable. The norm to first order."
    ]
    return table, goals


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """RecordingsAbsent where there is nothing to run on."""
    table, goals = protocol_p(quick, only)
    return Part("vector_field", goals, [table], where)
