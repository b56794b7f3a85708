"""A short drive through a smooth field of known shape, as a bag: what tests of the road from bag to map run on."""

import numpy as np

from gp_mapping.recording.bag_writer import BagWriter

# Starts that fit it, and cells of a quarter of its lengthscale. To find starts a map takes its first cells in again and
# again, which is most of the work of so short a drive: test_start.py asks for that, and whoever asks for something else
# may give them.
GIVEN = [
    word
    for start in (
        "lengthscale=0.8",
        "signal_stddev=8e-6",
        "noise_stddev=3e-7",
        "constant_stddev=2.4e-5",
        "cell_length=0.2",
    )
    for word in ("--set", start)
]


def field(x, y):
    """|B| in tesla."""
    return (45.0 + 8.0 * np.sin(1.5 * x) * np.cos(1.2 * y) + 3.0 * x) * 1e-6


def lanes(shift=0.0, count=5, length=2.0):
    """Corner points of a lawnmower path."""
    return np.array(
        [(length * ((i + 1) // 2 % 2), 0.4 * (i // 2) + shift) for i in range(2 * count)]
    )


def write_drive(
    path,
    corners,
    start=1000.0,
    speed=0.4,
    rate=10.0,
    storage="mcap",
    seed=0,
    noise=0.1e-6,
    spoil=None,
):
    """A bag of a drive along corners; spoil(i, field (3,), position (3,)) may return others. The number of samples."""
    generator = np.random.default_rng(seed)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    times = np.arange(0.0, along[-1] / speed, 1.0 / rate)
    position = np.stack(
        [np.interp(times * speed, along, corners[:, k]) for k in (0, 1)] + [0.0 * times], 1
    )
    values = field(position[:, 0], position[:, 1]) + noise * generator.standard_normal(len(times))
    with BagWriter(path, storage) as bag:
        for i, t in enumerate(times):
            vector, place = np.array([0.6, 0.0, 0.8]) * values[i], position[i]
            if spoil is not None:
                vector, place = spoil(i, vector, place)
            stamp = round((start + t) * 1e9)
            bag.odometry(stamp, place, (0.0, 0.0, 0.0, 1.0))
            bag.magnetic_field(stamp, vector)
    return len(times)
