"""Plays a rosbag2 where `ros2 bag` is absent: stored messages with /clock, rate and loop.

The CDR bytes are published on the recorded topics as they are. Topics are renamed as everywhere in
ROS: `--ros-args -r /old:=/new`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass

from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rosbags.interfaces import QosDurability

from gp_mapping.intake.poses.messages import TF_MESSAGE
from gp_mapping.recording.bag import BagError, Loss, bag_topics, read_raw
from gp_mapping.recording.bag_files import open_bag
from gp_mapping.ros.mapper.descriptors import ParameterError
from gp_mapping.ros.tools.playback import (
    ClockPublisher,
    Pacer,
    declare_groups,
    lossless,
    run_node,
    wait_for_any_subscriber,
    wait_for_subscribers,
)
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.settings.fields import check_settings, setting

__all__ = ["BagPlayerNode", "PlayerSettings", "main"]

CLOCK = "/clock"
STATIC = 1000  # messages of static transforms kept for late joiners, who need all of them


@dataclass(frozen=True)
class PlayerSettings:
    """What is played, and how."""

    path: str = setting("", "the bag: a rosbag2 folder, or a .mcap or .db3 file")
    rate: float = setting(1.0, "recorded seconds per second of wall time", "", 1e-3, 1000.0)
    loop: bool = setting(
        False, "begin again at the end (time jumps back, as with ros2 bag play --loop)"
    )
    publish_clock: bool = setting(True, "publish the recorded time as /clock")
    clock_rate: float = setting(
        50.0, "most /clock messages per recorded second", "Hz", 0.1, 10000.0
    )
    topics: str = setting("", "topics to play, separated by commas; empty plays all")
    wait_for_subscribers: float = setting(
        0.0,
        "wait this long for subscribers to the topics of wait_for; 0 starts at once",
        "s",
        0.0,
        3600.0,
    )
    wait_for: str = setting(
        "",
        "topics of the bag that must have a subscriber, separated by commas; empty: any one, "
        "and then until no more of them come",
    )
    linger: float = setting(
        0.5,
        "wall time after the last message in which /clock goes on, so that timers fire",
        "s",
        0.0,
        3600.0,
    )

    def __post_init__(self):
        check_settings(self)


def _names(text: str) -> list[str]:
    """Topic names as a bag has them, from a comma-separated list."""
    return ["/" + t.strip().lstrip("/") for t in text.split(",") if t.strip()]


def latched_topics(path: str) -> set[str]:
    """Topics recorded as transient local, as maps are: late joiners expect their last message."""
    with open_bag(path) as reader:
        return {
            c.topic
            for c in reader.connections
            if any(
                q.durability == QosDurability.TRANSIENT_LOCAL for q in c.ext.offered_qos_profiles
            )
        }


def quality_of(kind: str, latched: bool) -> QoSProfile:
    """Quality of service with which messages of a ROS type are published.

    Of a latched topic the last message counts. Of static transforms all do: when recorded, each
    node latched its own, and here all of them come from one publisher.

    Args:
        kind: The ROS type, as package/msg/Name.
        latched: Whether the topic was recorded as transient local.
    """
    qos = lossless()
    if latched:
        qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
        qos.depth = STATIC if kind == TF_MESSAGE else 1
    return qos


class BagPlayerNode(Node):
    """Plays a bag once, or for ever with loop, in `run`."""

    def __init__(self):
        super().__init__("bag_player", automatically_declare_parameters_from_overrides=True)
        self.settings: PlayerSettings = declare_groups(self, {"": PlayerSettings})[""]
        if not self.settings.path:
            raise ParameterError(
                "parameter path is empty; expected the bag to play, for example path:=/data/run1"
            )

        # not `_publishers`: that name is rclpy's own
        self._types = self._chosen_topics()
        self._outputs = self._create_publishers(self._types)
        self._clock_publisher = (
            ClockPublisher(self, self.settings.clock_rate) if self.settings.publish_clock else None
        )
        self.sent, self._unplayed = Counter(), Counter()

    def _chosen_topics(self) -> dict[str, str]:
        """Topics to play, with their types; BagError where a topic asked for is not in the bag."""
        path, recorded = self.settings.path, bag_topics(self.settings.path)
        wanted, waited = _names(self.settings.topics), _names(self.settings.wait_for)

        missing = [t for t in (*wanted, *waited) if t not in recorded]
        if missing:
            raise BagError(
                f"{path}: there is no topic {', '.join(missing)}; the bag has "
                + ", ".join(f"{t} ({kind}, {n} messages)" for t, (kind, n) in recorded.items())
            )

        chosen = {t: kind for t, (kind, n) in recorded.items() if n and (t in wanted or not wanted)}
        # two clocks on one topic would make time jump
        if self.settings.publish_clock and chosen.pop(CLOCK, None):
            self.get_logger().info(
                f"the recorded {CLOCK} is not played: this player's own gives the time at which the "
                "messages were recorded; publish_clock:=false plays the recorded one in its place"
            )

        unplayed = [t for t in waited if t not in chosen]
        if unplayed:
            raise BagError(
                f"{path}: wait_for names {', '.join(unplayed)}, which is not played (no messages, or not "
                "among topics)"
            )

        return chosen

    def _create_publishers(self, chosen: dict[str, str]) -> dict[str, object]:
        """A publisher for each topic whose type is installed; BagError where there is none."""
        publishers, latched, absent = {}, latched_topics(self.settings.path), []

        for topic, kind in chosen.items():
            message_type = message_class(kind)
            if message_type is None:
                absent.append(f"{topic} ({kind})")
                self.get_logger().warning(f"skipping {topic}: {kind} is not installed here")
                continue
            publishers[topic] = self.create_publisher(
                message_type, topic, quality_of(kind, topic in latched)
            )

        if not publishers:
            raise BagError(
                f"{self.settings.path}: nothing can be played; these types are not installed: "
                f"{', '.join(absent) or 'none is left'}"
            )
        return publishers

    def run(self, executor: SingleThreadedExecutor, stop: threading.Event) -> int:
        """Play the bag.

        Args:
            executor: Serves the node's callbacks between messages.
            stop: Set when asked to stop.

        Returns:
            Exit code: 0 at the end or when asked to stop, 1 where a reader did not acknowledge all.

        Raises:
            BagError: The bag cannot be read.
        """
        s, log = self.settings, self.get_logger()
        if s.wait_for_subscribers and not self._wait(executor, stop):
            log.info(
                f"stopped while it waited for subscribers: nothing of {s.path} has been played"
            )
            return 0
        log.info(
            f"playing {s.path} at {s.rate:g} times its speed: {', '.join(sorted(self._outputs))}"
        )
        pacer, started = Pacer(s.rate, executor, stop), time.monotonic()

        while True:
            stamp = self._play_once(pacer)
            if not s.loop or stop.is_set():
                break
            pacer.restart()
            log.info(f"{sum(self.sent.values())} messages so far; beginning again")

        self._finish(pacer, stamp)
        wall = time.monotonic() - started
        counts = ", ".join(f"{self.sent[t]} on {t}" for t in sorted(self._outputs))
        log.info(
            f"played {counts}; {wall:.1f} s" + (", stopped before the end" if stop.is_set() else "")
        )
        for (topic, kind), n in self._unplayed.items():
            log.warning(
                f"{n} messages on {topic} are of type {kind} and were not played: the others are of type "
                f"{self._types[topic]}"
            )
        if pacer.stalls:
            log.warning(
                f"fell behind by more than a second {pacer.stalls} times; use a smaller rate"
            )
        return 0 if stop.is_set() or self._delivered() else 1

    def _wait(self, executor: SingleThreadedExecutor, stop: threading.Event) -> bool:
        """Wait for subscribers, and log which topics have none; False when asked to stop."""
        required = [self._outputs[t] for t in _names(self.settings.wait_for) if t in self._outputs]
        wait = wait_for_subscribers if required else wait_for_any_subscriber
        if not wait(
            required or list(self._outputs.values()),
            self.settings.wait_for_subscribers,
            executor,
            stop,
        ):
            return False

        unheard = [t for t, p in self._outputs.items() if not p.get_subscription_count()]
        if unheard:
            self.get_logger().info(
                f"nobody listens to {', '.join(sorted(unheard))}; played all the same"
            )
        return True

    def _play_once(self, pacer: Pacer) -> int:
        """Publish all messages in record order; returns the last stamp (ns)."""
        stamp_ns, clock = 0, self._clock_publisher
        for message in read_raw(self.settings.path, list(self._outputs), on_loss=self._say_lost):
            stamp_ns = message.stamp_ns
            # /clock ticks on its own schedule up to the message, then the message's time is due
            if (clock and not clock.until(stamp_ns, pacer)) or not pacer.wait(stamp_ns):
                break
            if clock:
                clock.tick(stamp_ns)
            # a topic has one type where it is played
            if message.type != self._types[message.topic]:
                self._unplayed[message.topic, message.type] += 1
                continue
            # rclpy publishes bytes as they are, without serializing them
            self._outputs[message.topic].publish(bytes(message.data))
            self.sent[message.topic] += 1
        return stamp_ns

    def _say_lost(self, loss: Loss) -> None:
        """Say what could not be read of the bag."""
        self.get_logger().warning(f"{loss.path}: {loss.words}")

    def _finish(self, pacer: Pacer, stamp_ns: int) -> None:
        """Let time go on for `linger`, so that timers on simulated time fire on the last data."""
        end = stamp_ns + round(1e9 * self.settings.rate * self.settings.linger)
        if self._clock_publisher is None or self._clock_publisher.until(end, pacer):
            pacer.wait(end)

    def _delivered(self) -> bool:
        """Whether reliable readers acknowledged everything; logs an error where they did not."""
        unacknowledged = [
            t for t, p in self._outputs.items() if not p.wait_for_all_acked(Duration(seconds=30.0))
        ]
        if unacknowledged:
            self.get_logger().error(
                f"not everything was acknowledged on {', '.join(unacknowledged)}"
            )
        return not unacknowledged


def main(args=None) -> int:
    """Console script of bag_player_node; returns its exit code."""
    return run_node(BagPlayerNode, args)


if __name__ == "__main__":
    sys.exit(main())
