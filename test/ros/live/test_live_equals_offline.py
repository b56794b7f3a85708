"""A bag played into the node gives the very map that `gp-mapping map` makes of it: bit for bit, learning included."""

import math
import os
import random
import sys

import pytest
from pictures import draw_small
from ros_helpers import NS, ROOT, STARTS, NodeProcess, Peer, field_at, parameter_file, place_at
from states import differences

from benchmark import warm
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.store.checkpoint import load_checkpoint

# max_wait is of recorded time: at 20 times its speed the default 2 s are .1 s, for which a busy machine may stop
PARAMETERS = {"max_inducing": 60, "resolution": 0.1, "memory_size": 200, "max_wait": 60.0}


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    """12 s at 50 Hz: noise, a NaN, repeated stamps, a gap in the odometry, a pause; topics interleave at random."""
    path, chance = tmp_path_factory.mktemp("bags") / "drive", random.Random(3)
    entries = []
    for i in range(600):
        t = i / 50 + (5.0 if i > 420 else 0.0)
        stamp, (x, y) = 1_700_000_000 * NS + round(t * NS), place_at(i / 50)
        value = float("nan") if i == 100 else field_at(x, y) + chance.gauss(0, 0.3e-6)
        entries.append(
            (stamp + chance.randrange(30_000_000), "field", stamp + 3_000_000 * (i != 200), value)
        )
        if not 250 <= i < 300:
            entries.append((stamp + chance.randrange(30_000_000), "pose", stamp, (x, y, 0.0)))
    with BagWriter(path) as writer:
        last = {"field": 0, "pose": 0}
        for _, kind, stamp, content in sorted(entries, key=lambda e: e[0]):
            stamp = max(
                stamp, last[kind]
            )  # each topic in its own order, now and then a stamp twice
            last[kind] = stamp
            if kind == "field":
                writer.magnetic_field(stamp, (0.3 * content, -0.2 * content, 0.9 * content))
            else:
                writer.odometry(stamp, content, attitude_at((stamp - 1_700_000_000 * NS) / NS))
    return path


def attitude_at(t):
    """A robot that turns all the time, and pitches and rolls a little: x y z w, not quite of length 1."""
    yaw, tilt = 0.9 * t, 0.03 * math.sin(5.0 * t)
    return tilt, 0.7 * tilt, math.sin(yaw / 2), math.cos(yaw / 2)


@pytest.mark.parametrize(
    "rate, mounting",
    [
        (20.0, {}),
        (
            3.0,
            {
                "field_component": "x",
                "sensor_offset_x": 0.31,
                "sensor_offset_y": -0.12,
                "sensor_yaw": 0.4,
                "sensor_roll": 0.2,
                "lengthscale": 0.6,
                **STARTS,
            },
        ),
    ],
)
def test_playing_a_bag_gives_the_map_of_the_command_line(tmp_path, bag, rate, mounting):
    """Fast and slow: messages come in batches of other sizes, and each sample is turned as in any other batch.

    And with starts that the first cells have to tell, and with given ones.
    """
    offline, live, parameters = tmp_path / "offline", tmp_path / "live", PARAMETERS | mounting
    done = warm.run(
        [
            sys.executable,
            "-m",
            "gp_mapping.cli",
            "map",
            str(bag),
            "--output",
            str(offline),
            "--params",
            str(parameter_file(tmp_path, **parameters)),
            "--json",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=draw_small,
    )
    assert done.returncode == 0, done.stderr
    with (
        NodeProcess(
            tmp_path,
            **parameters,
            reliable_inputs=True,
            input_queue_depth=20000,
            use_sim_time=True,
            save_on_exit=True,
            save_directory=str(live),
        ) as node,
        Peer() as peer,
    ):
        arguments = (
            "-p",
            f"path:={bag}",
            "-p",
            f"rate:={rate}",
            "-p",
            "wait_for_subscribers:=20.0",
        )
        with NodeProcess(tmp_path, "gp_mapping.ros.bag_player_node", arguments) as player:
            peer.until(lambda: player.process.poll() is not None, 60, "the player did not end")
            assert player.process.returncode == 0, player.log
        peer.settle()
        drops = {
            key.removeprefix("dropped: "): int(n)
            for key, n in peer.values.items()
            if key.startswith("dropped")
        }
        assert node.stop() == 0, node.log
    states = [load_checkpoint(folder / "map.gpm") for folder in (offline, live)]
    assert states[0]["raw_count"] > 500 and states[0]["passes"] >= 2
    # a node does not know which recording it hears
    assert len(states[0]["about"].pop("recordings")) == 1 and "recordings" not in states[1]["about"]
    assert differences(*states) == [], drops
    assert drops["not_finite"] == 1 and drops["pose_gap"] >= 48
