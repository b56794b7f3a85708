"""Robots that make one map over DDS: real processes, a link between them that loses, repeats and invents messages."""

import functools
import random
import signal
import time
from array import array

import numpy as np
import torch
from questions import NAMES, question
from rclpy.qos import QoSProfile
from ros_helpers import (
    NS,
    NodeProcess,
    Peer,
    cloud_array,
    field_at,
    magnetic_field,
    odometry,
    place_at,
)
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import UInt8MultiArray
from std_srvs.srv import SetBool

from gp_mapping.intake import Intake
from gp_mapping.mapping.session import MapSession
from gp_mapping.ros.mapper.team_port import QOS
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings

EPOCH = 1_700_000_000
RATE = 25  # Hz, of poses and measurements
MAP = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "lengthscale": 0.6,
    "signal_stddev": 6e-6,
    "noise_stddev": 1e-6,
    "constant_stddev": 2e-5,
    "follow_changes": False,
    "robust": False,
    "local_scale": False,
    "max_inducing": 400,
    "inducing_information": 0.0,
    "inducing_tolerance": 1e-3,
    "resolution": 0.1,
}
NODE = {
    "reliable_inputs": True,
    "publish_tiles": True,
    "tiles_period": 0.3,
    "tiles_round": 1.0,
    "merge_period": 0.3,
    "tiles_bandwidth": 2e6,
    "publish_rate": 2.0,
}
X = np.random.default_rng(0).uniform((0.2, 0.1), (1.8, 3.0), (60, 2))


class Link:
    """Hands the messages of one robot on to another: loses a fifth, repeats some, holds some back; sends rubbish."""

    def __init__(self, peer: Peer, robot: str, to: str, seed: int):
        self._rng, self._held = random.Random(seed), []
        self.out = peer.node.create_publisher(UInt8MultiArray, f"/{to}/hears/{robot}", QOS)
        peer.node.create_subscription(
            UInt8MultiArray, f"/{robot}/mapping/tiles", self._on_message, QOS
        )
        self.received = self.lost = 0
        self.last = b""

    def _on_message(self, message: UInt8MultiArray) -> None:
        self.received += 1
        self.last = bytes(message.data)
        if self._rng.random() < 0.2:
            self.lost += 1
            return
        if self._rng.random() < 0.3:
            self._held.append(message)
            return
        for _ in range(1 + (self._rng.random() < 0.3)):
            self.out.publish(message)
        if self._held and self._rng.random() < 0.5:
            self.out.publish(self._held.pop(0))

    def send(self, data: bytes) -> None:
        self.out.publish(UInt8MultiArray(data=array("B", data)))


def robot(folder, name: str, **more) -> NodeProcess:
    (folder / name).mkdir(exist_ok=True)
    others = [other for other in ("robot1", "robot2") if other != name]
    remaps = [
        word
        for other in others
        for word in ("-r", f"/{other}/mapping/tiles:=/{name}/hears/{other}")
    ]
    return NodeProcess(
        folder / name,
        arguments=("-r", f"__ns:=/{name}", *remaps),
        **(MAP | NODE | {"merge_from": ["robot1", "robot2"]} | more),
    )


def drive(peer: Peer, start: float, seconds: float) -> None:
    """At twenty times the speed, as `expected` has it; a pause ends the last cell."""
    for i in range(round(seconds * RATE) + 1):
        t = start + i / RATE
        stamp, (x, y) = EPOCH * NS + round(t * NS), place_at(t)
        peer.odometry_publisher.publish(odometry(stamp, x, y))
        peer.field_publisher.publish(magnetic_field(stamp, field_at(x, y)))
        peer.executor.spin_once(timeout_sec=0.0)
        time.sleep(0.002)
    peer.call(
        SetBool, f"{peer.node.get_namespace()}/mapping/pause", SetBool.Request(data=True), again=2.0
    )


@functools.cache
def expected(*drives: tuple[float, float]):
    """The map of all of them, each a pass: (mean, stddev) at X. In this process, without ROS."""
    session = MapSession(MapSettings(**MAP))
    for start, seconds in drives:
        worker = MapWorker(session, Intake(IntakeSettings()), queue_size=100_000)
        for i in range(round(seconds * RATE) + 1):
            t = start + i / RATE
            stamp, (x, y) = EPOCH * NS + round(t * NS), place_at(t)
            worker.put("pose", odometry(stamp, x, y))
            worker.put("measurement", magnetic_field(stamp, field_at(x, y)))
        worker.start()
        worker.stop()
        session.break_pass()
    told = session.predict(torch.from_numpy(X))
    return told.mean[:, 0].numpy(), told.variance[:, 0].sqrt().numpy(), session.raw_count


class Asker:
    """What a mapper says at X."""

    def __init__(self, peer: Peer, node: str):
        self._peer, self._number = peer, 0
        self._out = peer.node.create_publisher(PointCloud2, f"{node}/query", QoSProfile(depth=10))
        self._in = peer.listen(PointCloud2, f"{node}/query_result", QoSProfile(depth=10))
        peer.until(lambda: self._out.get_subscription_count(), what=f"{node} does not listen")

    def __call__(self) -> np.ndarray | None:
        self._number += 1
        points = np.concatenate([X, np.zeros((len(X), 1))], 1)
        seen = len(self._in)
        self._out.publish(question(points, self._number, kind="<f8"))
        self._peer.until(lambda: len(self._in) > seen, 10.0, "no answer")
        answer = self._in[-1]
        return cloud_array(answer, NAMES)[:, 3:] if answer.width else None


def reaches(peer: Peer, ask: Asker, wanted, seconds: float = 25.0) -> None:
    """Within .1 standard deviations of the map of all data, at every place."""
    mean, sd = wanted[:2]
    end, worst = time.monotonic() + seconds, None
    while time.monotonic() < end:
        told = ask()
        if told is not None:
            worst = (
                np.abs(told[:, 0] - mean).max()
                if not sd.all()
                else (np.abs(told[:, 0] - mean) / sd).max()
            )
            wider = np.abs(told[:, 1] / sd - 1.0).max()
            if worst < 0.1 and wider < 0.1:
                return
            worst = worst, wider
        peer.spin(0.3)
    raise AssertionError(
        f"the team's map is off by (standard deviations, share) {worst}; {peer.messages[-2:]}, "
        f"{peer.values}"
    )


def test_two_robots_make_one_map_over_a_bad_link(tmp_path):
    """One is killed and started anew in the middle; strangers send rubbish. A base station shows the same map."""
    with (
        robot(tmp_path, "robot1") as one,
        robot(tmp_path, "robot2") as two,
        Peer("peer1", "/robot1") as peer1,
        Peer("peer2", "/robot2") as peer2,
    ):
        links = [Link(peer1, "robot2", "robot1", 1), Link(peer1, "robot1", "robot2", 2)]
        peer1.wait_for_node()
        peer2.wait_for_node()
        drive(peer1, 0.0, 8.0)
        drive(peer2, 12.0, 8.0)
        ask1 = Asker(peer1, "/robot1/mapping")
        reaches(peer1, ask1, expected((0.0, 8.0), (12.0, 8.0)))

        # killed, and started anew with an empty map: what it had sent was measured, and stays
        two.stop(signal.SIGKILL)
        reaches(peer1, ask1, expected((0.0, 8.0), (12.0, 8.0)))
        (tmp_path / "again").mkdir()
        # a driver of its own: to the old one the mapper that was killed is still there for a while
        with robot(tmp_path, "robot2") as again, Peer("peer3", "/robot2") as peer3:
            peer3.wait_for_node()
            drive(peer3, 22.0, 6.0)
            wanted = expected((0.0, 8.0), (12.0, 8.0), (22.0, 6.0))
            reaches(peer1, ask1, wanted)

            # rubbish on the same topic
            good = links[0].last
            rng = np.random.default_rng(0)
            hostile = [
                b"",
                rng.bytes(2000),
                good[:-5],
                good[:200],
                good[:100] + b"\x00\x01\x02" + good[103:],
                good[:4] + b"\x09\x00" + good[6:],
            ]
            for data in hostile:
                links[0].send(data)
            peer1.until(
                lambda: (
                    sum(float(v) for k, v in peer1.values.items() if k.startswith("robot2 dropped"))
                    >= len(hostile)
                ),
                what="rubbish is not counted",
            )
            peer1.spin(1.0)
            reaches(peer1, ask1, wanted)
            assert peer1.values["robots in the map"] == "2" and peer1.values["robot2 maps"] == "2"
            assert links[0].lost > 0
            assert again.stop() == 0 and "Traceback" not in again.log
        assert one.stop() == 0 and "Traceback" not in one.log


def test_a_base_station_shows_what_a_robot_sends(tmp_path):
    """fusion_node has no sensor; what it saves is the sum."""
    folder = tmp_path / "base"
    folder.mkdir()
    with (
        robot(tmp_path, "robot1") as one,
        Peer("peer1", "/robot1") as peer1,
        NodeProcess(
            folder,
            "gp_mapping.ros.fusion_node",
            merge_from=["robot1"],
            save_on_exit=True,
            save_directory=str(folder),
            **(MAP | NODE | {"publish_tiles": False}),
        ) as base,
    ):
        peer1.wait_for_node()
        drive(peer1, 0.0, 8.0)
        reaches(peer1, Asker(peer1, "/fusion"), expected((0.0, 8.0)))
        assert base.stop() == 0 and "Traceback" not in base.log and (folder / "map.gpm").is_file()
        assert one.stop() == 0
