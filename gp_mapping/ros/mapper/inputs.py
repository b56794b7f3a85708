"""What the node listens to: subscriptions for the inputs of an intake, and faults of publishers."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import (
    DurabilityPolicy,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
)

from gp_mapping.intake import Input, inputs_of
from gp_mapping.intake.clocks.arrival import NewestPose
from gp_mapping.intake.fixes import ROLE as FIX
from gp_mapping.intake.messages import has_header, stamp_ns
from gp_mapping.intake.sensors.value_field import DEFAULT
from gp_mapping.ros.mapper.descriptors import ParameterError
from gp_mapping.ros.wire.messages import field_type, message_class
from gp_mapping.ros.wire.qos import sensor_data
from gp_mapping.runtime.health import InputWatch
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["InputPort", "Inputs"]

TF_DEPTH = 100  # queue depth of TF, as tf2_ros has it
# s without any input served: what is missing then was overwritten in the queue; the publisher was
# not silent
STALL = 0.5
# s between two turns of the executor while messages come: a turn costs a millisecond of Python
MOMENT = 0.04
FILL_FRACTION = 0.25  # of an input's queue in the middleware, which may fill between two turns
# s; no message has waited longer for the executor: an older time of arrival is of another clock
MAX_AGE = 5.0
TOGETHER = 50_000_000  # ns; a time of arrival that goes back by more is of a clock that was set
_NUMBER = re.compile(r"double|float|boolean|u?int(8|16|32|64)")  # field types as rclpy names them
# messages of one topic taken in one callback: one at a time, a busy interpreter would fall behind
BATCH = 64


class InputPort:
    """One input: its subscription, or the wait for the type that the first publisher shows.

    Args:
        spec: Role, topic and possible message types of the input.
        classes: Those of the message types that are installed, by their ROS names.
        qos: Quality of service of the subscription.
        steady: Whether messages come regularly, so that silence is worth a warning.
    """

    def __init__(self, spec: Input, classes: dict[str, type], qos: QoSProfile, steady: bool):
        self.role, self.topic, self.qos = spec.role, spec.topic, qos
        self.classes = classes
        self.any_scalar = len(spec.messages) > 1
        self.watch = InputWatch(spec.topic.lstrip("/"), steady)
        self.subscription, self.type = None, ""
        self.newest: int | None = None  # stamp of the newest message, ns
        self._arrived: int | None = None  # when the newest message without a stamp came, ns
        self.taken = 0  # messages taken since moment() was last called
        self.wrong_type = self.wrong_qos = ""

    def in_order(self, arrived: int) -> int:
        """When the next message without a stamp came, ns, after the one before.

        Messages that came together, or between two messages of /clock, keep their order.

        Args:
            arrived: as it was found, ns: two clocks are read for it, one after the other.
        """
        if self._arrived is not None and 0 <= self._arrived - arrived < TOGETHER:
            arrived = self._arrived + 1
        self._arrived = arrived
        return arrived


class _Gate(MutuallyExclusiveCallbackGroup):
    """A callback group whose callbacks the executor leaves alone while it is held."""

    def __init__(self):
        super().__init__()
        self.held = False

    def can_execute(self, entity) -> bool:
        """Whether a callback may run now: none while the gate is held."""
        return not self.held and super().can_execute(entity)


class Inputs:
    """All inputs that an intake with these settings needs.

    Args:
        node: The node that subscribes.
        settings: Says which inputs there are.
        on_message: Called with (port, message, age, posed): age is the time in ns since the
            middleware received a message without a header, and 0 for a message with one; posed the
            stamp in ns of the newest pose that had arrived before a measurement, None where that is
            not known.
        depth: Messages of a sensor or pose topic that the middleware keeps.
        reliable: Subscribe to sensors and poses with reliable quality of service.
        find: ROS type name -> its class, or None where it is not installed.
        listens: False for a node without inputs.

    Raises:
        ParameterError: The messages of an input are not installed.
    """

    def __init__(
        self,
        node,
        settings: IntakeSettings,
        on_message,
        *,
        depth: int,
        reliable: bool,
        find: Callable[[str], type | None] = message_class,
        listens: bool = True,
    ):
        self._node, self._on_message, self._find = node, on_message, find
        self._value_field, self._newest_pose = settings.value_field, NewestPose()
        self._group = _Gate()
        # since moment() was last called: whether a message came; whether more wait than were taken
        self._received = self._more_waiting = False
        # monotonic s of the executor's last turn here, and of the last call of moment()
        self._last_turn = self._last_moment = time.monotonic()

        self.ports: list[InputPort] = []
        for spec in inputs_of(settings) if listens else ():
            classes = {name: found for name in spec.messages if (found := find(name)) is not None}
            if not classes:
                raise ParameterError(_absent(spec, settings))

            # TF is not steady with other pose sources: it may then hold static links only
            steady = spec.role in ("measurement", "pose", FIX) or (
                spec.role,
                settings.pose_source,
            ) == ("tf", "tf")
            self.ports.append(InputPort(spec, classes, _qos(spec.role, depth, reliable), steady))

            resolved, known = node.resolve_topic_name(spec.topic), spec.topic.lstrip("/")
            if resolved != f"/{known}":
                self.ports[-1].watch.label = f"{resolved} ({known})"

    @property
    def watches(self) -> list[InputWatch]:
        """What diagnostics need to know of each input, the measurement first."""
        return [port.watch for port in self.ports]

    @property
    def problems(self) -> list[str]:
        """What is wrong with the publishers of the inputs, in words."""
        return [text for port in self.ports for text in (port.wrong_type, port.wrong_qos) if text]

    def describe(self) -> str:
        """The resolved topics, for the log."""
        return " and ".join(self._node.resolve_topic_name(port.topic) for port in self.ports)

    def open(self) -> None:
        """Subscribe to all inputs whose message type is known; look() adds the others."""
        for port in self.ports:
            port.watch.open(time.monotonic())
            if not port.any_scalar:
                self._subscribe(port, *next(iter(port.classes.items())))

    def close(self) -> None:
        """Unsubscribe from all inputs."""
        for port in self.ports:
            self._unsubscribe(port)
        self._group.held = False

    def _unsubscribe(self, port: InputPort) -> None:
        """End the subscription of an input, if it has one."""
        if port.subscription is not None:
            self._node.destroy_subscription(port.subscription)
            port.subscription, port.type = None, ""

    def hold(self) -> None:
        """Keep the executor from taking messages: they wait for drain(), until close()."""
        self._group.held = True

    def drain(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Hand on the messages that the middleware holds.

        Args:
            go_on: Asked between batches; False stops.

        Returns:
            Whether there may be more.
        """
        found = True
        while found and go_on():
            found = False
            # the measurement is first, and brings with each message the poses up to its stamp
            for port in self.ports:
                found = self._take_in(port, BATCH) > 0 or found
        return found

    def discard(self) -> Counter[str]:
        """Take and drop the messages that the middleware holds; their numbers by input role."""
        found: Counter[str] = Counter()
        for port in self.ports:
            for _ in range(port.qos.depth):
                if self._take(port) is None:
                    break
                port.watch.arrived(time.monotonic())
                found[port.role] += 1
        return found

    def alive(self) -> None:
        """Note that the executor runs; called several times a second.

        Where it is not called for longer, the node has stalled, and no publisher was silent.
        """
        self._last_turn = time.monotonic()

    def look(self) -> None:
        """Subscribe to inputs of several possible types once a publisher shows the type.

        Cheap where no input waits for its type. Fast DDS allows a process only one type on a topic,
        so subscribing to all of the types is no way out.
        """
        for port in self.ports:
            if port.subscription is None:
                for kind in self._published_types(port):
                    found = port.classes.get(kind) or self._scalar(kind)
                    if found is not None:
                        self._subscribe(port, kind, found)
                        break

    def check_publishers(self) -> None:
        """Note inputs whose topic is published with another type only, which DDS never reports.

        Of a publisher that offered less than is asked for DDS does not report when it has gone.
        """
        for port in self.ports:
            published, port.wrong_type = self._published_types(port), ""
            if port.any_scalar and published and port.type and port.type not in published:
                self._unsubscribe(port)  # its driver has changed: look() takes what it sends now
            if port.wrong_qos and not self._offers_less(port):
                port.wrong_qos = ""
            # resolved: count_publishers does not know of remapped names
            resolved = self._node.resolve_topic_name(port.topic)
            port.watch.publishers = self._node.count_publishers(resolved)
            port.watch.stream.alone = port.watch.publishers == 1
            port.watch.listening = port.subscription is not None
            # what is not subscribed to yet, and can be read, look() is about to take
            coming = port.subscription is None and any(
                kind in port.classes or self._scalar(kind) for kind in published
            )
            if published and port.type not in published and not coming:
                expected = port.type or " or ".join(port.classes)
                if port.any_scalar and not port.type:
                    wanted = (
                        f"at {self._value_field}" if self._value_field else "called data or value"
                    )
                    expected += f", or any other with a number {wanted}"
                port.wrong_type = (
                    f"{self._node.resolve_topic_name(port.topic)} is published as {', '.join(published)}, "
                    f"expected {expected}: remap the topic, or set sensor or pose_source"
                )
            elif port.type in published and len(published) > 1:
                others = ", ".join(kind for kind in published if kind != port.type)
                port.wrong_type = (
                    f"{self._node.resolve_topic_name(port.topic)} is published as {others}, too, and only "
                    f"{port.type} is listened to: remap one of them"
                )

    def _published_types(self, port: InputPort) -> list[str]:
        """ROS names of the types with which the input's topic is published now."""
        return sorted(
            {each.topic_type for each in self._node.get_publishers_info_by_topic(port.topic)}
        )

    def _offers_less(self, port: InputPort) -> bool:
        """Whether a publisher of the input's topic offers less than is asked for."""
        return any(
            qos_check_compatible(each.qos_profile, port.qos)[0] == QoSCompatibility.ERROR
            for each in self._node.get_publishers_info_by_topic(port.topic)
        )

    def _scalar(self, kind: str) -> type | None:
        """The class of a scalar of another package: any with the number that is mapped."""
        found = self._find(kind)
        if found is None:
            return None
        paths = (self._value_field,) if self._value_field else DEFAULT
        numeric = any(_NUMBER.fullmatch(field_type(found, path, self._find)) for path in paths)
        return found if numeric else None

    def _subscribe(self, port: InputPort, kind: str, found: type) -> None:
        """Subscribe to an input with one of its types.

        Args:
            port: The input.
            kind: The ROS name of the type.
            found: Its class.
        """
        events = SubscriptionEventCallbacks(
            message_lost=partial(_on_lost, port.watch),
            incompatible_qos=partial(self._on_incompatible, port),
        )

        port.type = kind
        port.subscription = self._node.create_subscription(
            found,
            port.topic,
            partial(self._on_arrival, port),
            port.qos,
            callback_group=self._group,
            event_callbacks=events,
        )

    def _on_arrival(self, port: InputPort, message, info) -> None:
        """Take all other waiting messages, of every input, after the one that rclpy has taken."""
        self._hand_on(port, message, info)
        self._more_waiting = max(self._take_in(each, BATCH) for each in self.ports) == BATCH
        self._received = True

    def batching_pause(self) -> float:
        """Time (s) to sleep before the next turn, so that messages are taken in groups.

        0 where no message came since the last call, or more wait already. At the present rates the
        sleep ends before FILL_FRACTION of any input's queue in the middleware has filled.
        """
        came, self._received = self._received, False
        since, self._last_moment = time.monotonic() - self._last_moment, time.monotonic()
        # s until a queue fills to that fraction, at the rate since the last call
        fills = [
            FILL_FRACTION * port.qos.depth * since / port.taken for port in self.ports if port.taken
        ]
        for port in self.ports:
            port.taken = 0

        return min(MOMENT, *fills) if came and fills and not self._more_waiting else 0.0

    def _take_in(self, port: InputPort, most: int) -> int:
        """Hand on at most so many waiting messages of an input; returns how many there were."""
        for n in range(most):
            taken = self._take(port)
            if taken is None:
                return n
            self._hand_on(port, *taken)
        return most

    @staticmethod
    def _take(port: InputPort):
        """(message, info) from the middleware, as the executor takes it; None if there is none."""
        subscription = port.subscription
        if subscription is None:
            return None
        with subscription.handle:  # not destroyed meanwhile
            return subscription.handle.take_message(subscription.msg_type, subscription.raw)

    def _hand_on(self, port: InputPort, message, info: dict) -> None:
        """Hand a message to the node; before a measurement, the waiting poses up to its stamp.

        With two queues worked off in turn, that of the slower topic would get ahead in time, and
        its measurements would be given up before their poses are looked at.
        """
        stamp = stamp_ns(message) if has_header(message) else None
        if port.role == "measurement":
            # all ports but the first, which is the measurement
            for pose_port in self.ports[1:]:
                for _ in range(pose_port.qos.depth):
                    behind = stamp is None or pose_port.newest is None or pose_port.newest < stamp
                    taken = self._take(pose_port) if behind else None
                    if taken is None:
                        break
                    self._hand_on(pose_port, *taken)

        now = time.monotonic()
        if stamp is not None:
            number, stalled = info.get("publication_sequence_number"), now - self._last_turn > STALL
            port.watch.stream.add(stamp, now, number, stalled)

        self._last_turn, port.newest = now, stamp
        port.taken += 1
        posed, received = None, info.get("received_timestamp", 0)
        if port.role == "measurement":
            posed = self._newest_pose.at(received)
        elif port.role == "pose" and stamp is not None:
            self._newest_pose.add(received, stamp)
        self._on_message(port, message, 0 if stamp is not None else _age(info), posed)

    def _on_incompatible(self, port: InputPort, event) -> None:
        """Log and keep a QoS mismatch, which DDS reports for a subscription."""
        reliable = port.qos.reliability == ReliabilityPolicy.RELIABLE
        remedy = (
            "set reliable_inputs: false"
            if reliable and port.role in ("measurement", "pose", FIX)
            else "/tf_static is published reliable and transient local"
            if port.role == "tf_static"
            else "compare ros2 topic info --verbose"
        )
        text = (
            f"QoS mismatch: a publisher of {self._node.resolve_topic_name(port.topic)} offers less than is asked "
            f"for, so nothing of it arrives; {remedy}"
        )
        if text != port.wrong_qos:
            self._node.get_logger().warning(text)
        port.wrong_qos = text


def _age(info: dict) -> int:
    """Time (ns) since the middleware received a message; 0 where it is not known."""
    age = time.time_ns() - info.get("received_timestamp", 0)
    return age if 0 < age < 1e9 * MAX_AGE else 0


def _on_lost(watch: InputWatch, event) -> None:
    watch.lost += event.total_count_change


def _qos(role: str, depth: int, reliable: bool) -> QoSProfile:
    """Quality of service of an input's subscription, by its role.

    Sensors and poses as in sensor_data; TF as tf2 publishes it: reliable, and /tf_static transient
    local, so that late joiners receive all of it.
    """
    if role in ("measurement", "pose", FIX):
        return sensor_data(depth, reliable)
    static = role == "tf_static"
    return QoSProfile(
        depth=TF_DEPTH,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if static else DurabilityPolicy.VOLATILE,
    )


def _absent(spec: Input, settings: IntakeSettings) -> str:
    """The error text for messages that are not installed: which parameter asks, what to do."""
    name, value = (
        ("sensor", settings.sensor)
        if spec.role == "measurement"
        else ("fix_topic", settings.fix_topic)
        if spec.role == FIX
        else ("mounting", settings.mounting)
        if spec.role.startswith("tf") and settings.pose_source != "tf"
        else ("pose_source", settings.pose_source)
    )

    package = spec.messages[0].split("/")[0]
    return (
        f"parameter {name}: {value!r} needs {' or '.join(spec.messages)}, and {package} is not installed here; "
        f"install it (apt: ros-$ROS_DISTRO-{package.replace('_', '-')}), or choose another {name}"
    )
