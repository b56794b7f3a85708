"""What the node listens to: subscriptions for the inputs of an intake, and what is wrong with those who publish."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from gp_mapping.intake import Input, inputs_of
from gp_mapping.intake.fixes import ROLE as FIX
from gp_mapping.intake.messages import has_header, stamp_ns
from gp_mapping.ros.mapper.descriptors import ParameterError
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.ros.wire.qos import sensor_data
from gp_mapping.runtime.health import InputWatch
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["InputPort", "Inputs"]

TF_DEPTH = 100  # as tf2_ros listens
STALL = 0.5  # s without a look at any input: what is missing afterwards was overwritten, nobody was silent
MOMENT = 0.02  # s between two looks at inputs that bring something: one costs a millisecond of the executor's Python
FILLED = 0.25  # share of what the middleware keeps of an input that may come in between
WAITED = 5.0  # s; no message has waited longer for the executor: an older time of arrival is of another clock
BATCH = 64  # messages of one topic taken in one callback: one at a time, a busy interpreter would fall behind


class InputPort:
    """One input: its subscription, or, where its topic may have several types, the wait for the first publisher."""

    def __init__(self, wanted: Input, classes: dict[str, type], qos: QoSProfile, steady: bool):
        self.role, self.topic, self.qos = wanted.role, wanted.topic, qos
        self.classes = classes
        self.any_scalar = len(wanted.messages) > 1
        self.watch = InputWatch(wanted.topic.lstrip("/"), steady)
        self.subscription, self.type = None, ""
        self.newest: int | None = None  # stamp of the newest message, ns
        self.taken = 0  # messages since the last look
        self.wrong_type = self.wrong_qos = ""


class _Gate(MutuallyExclusiveCallbackGroup):
    """Callbacks that the executor leaves alone while they are held."""

    def __init__(self):
        super().__init__()
        self.held = False

    def can_execute(self, entity) -> bool:
        return not self.held and super().can_execute(entity)


class Inputs:
    """All inputs of an intake with these settings.

    on_message: callable(port, message, age), age in ns since the middleware had it, for messages without a header, else
    0.  find: type name -> class or None.  listens: False: there are none.
    Raises ParameterError where the messages of an input are not installed.
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
        self._group = _Gate()
        self._came = self._more = False  # since the last look: anything, more than was taken
        self._looked = self._asked = (
            time.monotonic()
        )  # when the executor has last come by here, and asked for a moment
        self.ports: list[InputPort] = []
        for wanted in inputs_of(settings) if listens else ():
            classes = {name: found for name in wanted.messages if (found := find(name)) is not None}
            if not classes:
                raise ParameterError(_absent(wanted, settings))
            # links that never move are not silent, and beside other poses TF may be all static
            steady = wanted.role in ("measurement", "pose", FIX) or (
                wanted.role,
                settings.pose_source,
            ) == ("tf", "tf")
            self.ports.append(
                InputPort(wanted, classes, _qos(wanted.role, depth, reliable), steady)
            )
            resolved, known = node.resolve_topic_name(wanted.topic), wanted.topic.lstrip("/")
            if resolved != f"/{known}":
                self.ports[-1].watch.label = f"{resolved} ({known})"

    @property
    def watches(self) -> list[InputWatch]:
        """For diagnostics, the measurement first."""
        return [port.watch for port in self.ports]

    @property
    def problems(self) -> list[str]:
        """What is wrong with those who publish, in words."""
        return [text for port in self.ports for text in (port.wrong_type, port.wrong_qos) if text]

    def describe(self) -> str:
        """The topics, resolved, for the log."""
        return " and ".join(self._node.resolve_topic_name(port.topic) for port in self.ports)

    def open(self) -> None:
        """Subscribe to everything whose type is known."""
        for port in self.ports:
            if not port.any_scalar:
                self._subscribe(port, *next(iter(port.classes.items())))

    def close(self) -> None:
        """Listen to nothing."""
        for port in self.ports:
            if port.subscription is not None:
                self._node.destroy_subscription(port.subscription)
                port.subscription = None
        self._group.held = False

    def hold(self) -> None:
        """The executor takes nothing more: what comes waits in the middleware for drain(), until close()."""
        self._group.held = True

    def drain(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Hand on what the middleware holds, while go_on(), asked between batches; whether there may be more."""
        found = True
        while found and go_on():
            found = False
            for port in (
                self.ports
            ):  # the measurement first, and with each of them the poses up to its stamp
                found = self._take_in(port, BATCH) > 0 or found
        return found

    def discard(self) -> Counter[str]:
        """Take what the middleware holds and use nothing of it; how many there were, by the role of their input."""
        found: Counter[str] = Counter()
        for port in self.ports:
            for _ in range(port.qos.depth):
                if self._take(port) is None:
                    break
                port.watch.arrived(time.monotonic())
                found[port.role] += 1
        return found

    def alive(self) -> None:
        """The executor comes by here several times a second: where it did not, it was the node that was silent."""
        self._looked = time.monotonic()

    def look(self) -> None:
        """Subscribe where a publisher has shown the type by now. Cheap where nothing waits for one.

        Fast DDS lets a process have one type on a topic, so that it is no way to subscribe to all of them.
        """
        for port in self.ports:
            if port.subscription is None:
                for kind in self._published_types(port):
                    found = port.classes.get(kind) or self._scalar(kind)
                    if found is not None:
                        self._subscribe(port, kind, found)
                        break

    def check_types(self) -> None:
        """Note where a topic is published with another type only: DDS connects nothing and says nothing."""
        for port in self.ports:
            there, port.wrong_type = self._published_types(port), ""
            port.watch.publishers = self._node.count_publishers(port.topic)
            port.watch.listening = port.subscription is not None
            if there and port.type not in there:
                expected = port.type or " or ".join(port.classes)
                port.wrong_type = (
                    f"{self._node.resolve_topic_name(port.topic)} is published as {', '.join(there)}, "
                    f"expected {expected}: remap the topic, or set sensor or pose_source"
                )

    def _published_types(self, port: InputPort) -> list[str]:
        return sorted(
            {each.topic_type for each in self._node.get_publishers_info_by_topic(port.topic)}
        )

    def _scalar(self, kind: str) -> type | None:
        """A stamped scalar of some other package: any message with a number `data` or `value`."""
        found = self._find(kind)
        named = found.get_fields_and_field_types() if found is not None else {}
        numeric = any(named.get(name, "") in ("double", "float") for name in ("data", "value"))
        return found if numeric else None

    def _subscribe(self, port: InputPort, kind: str, found: type) -> None:
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
        """rclpy has taken one message; the rest of what waits comes with it, on whatever input."""
        self._hand_on(port, message, info)
        self._more = max(self._take_in(each, BATCH) for each in self.ports) == BATCH
        self._came = True

    def moment(self) -> float:
        """s in which more may come, asked after each look; 0 where nothing came since the last, or more waits already.

        No longer than it takes until FILLED of an input's queue in the middleware has come, at the rate of late.
        """
        came, self._came = self._came, False
        since, self._asked = time.monotonic() - self._asked, time.monotonic()
        fills = [FILLED * port.qos.depth * since / port.taken for port in self.ports if port.taken]
        for port in self.ports:
            port.taken = 0
        return min(MOMENT, *fills) if came and fills and not self._more else 0.0

    def _take_in(self, port: InputPort, most: int) -> int:
        for n in range(most):
            taken = self._take(port)
            if taken is None:
                return n
            self._hand_on(port, *taken)
        return most

    @staticmethod
    def _take(port: InputPort):
        """(message, info) from the middleware, as the executor would take it; None: nothing is there."""
        subscription = port.subscription
        if subscription is None:
            return None
        with subscription.handle:
            return subscription.handle.take_message(subscription.msg_type, subscription.raw)

    def _hand_on(self, port: InputPort, message, info: dict) -> None:
        """To the node, a measurement after the poses up to its stamp that are there.

        Else, of two queues that are worked off in turn, the slower topic's would get ahead in time, and its
        measurements would be given up before their poses are looked at.
        """
        stamp = stamp_ns(message) if has_header(message) else None
        if port.role == "measurement":
            for other in self.ports[1:]:
                for _ in range(other.qos.depth):
                    behind = stamp is None or other.newest is None or other.newest < stamp
                    taken = self._take(other) if behind else None
                    if taken is None:
                        break
                    self._hand_on(other, *taken)
        now = time.monotonic()
        if stamp is not None:
            number, stalled = info.get("publication_sequence_number"), now - self._looked > STALL
            port.watch.stream.add(stamp, now, number, stalled)
        self._looked, port.newest = now, stamp
        port.taken += 1
        self._on_message(port, message, 0 if stamp is not None else _age(info))

    def _on_incompatible(self, port: InputPort, event) -> None:
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
    """ns since the middleware has received a message; 0 where it does not say so."""
    age = time.time_ns() - info.get("received_timestamp", 0)
    return age if 0 < age < 1e9 * WAITED else 0


def _on_lost(watch: InputWatch, event) -> None:
    watch.lost += event.total_count_change


def _qos(role: str, depth: int, reliable: bool) -> QoSProfile:
    """As sensors are published; TF as tf2 publishes it, where late joiners get all of /tf_static."""
    if role in ("measurement", "pose", FIX):
        return sensor_data(depth, reliable)
    static = role == "tf_static"
    return QoSProfile(
        depth=TF_DEPTH,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if static else DurabilityPolicy.VOLATILE,
    )


def _absent(wanted: Input, settings: IntakeSettings) -> str:
    """Which parameter asks for messages that are not there, and what to do."""
    name, value = (
        ("sensor", settings.sensor)
        if wanted.role == "measurement"
        else ("fix_topic", settings.fix_topic)
        if wanted.role == FIX
        else ("mounting", settings.mounting)
        if wanted.role.startswith("tf") and settings.pose_source != "tf"
        else ("pose_source", settings.pose_source)
    )
    package = wanted.messages[0].split("/")[0]
    return (
        f"parameter {name}: {value!r} needs {' or '.join(wanted.messages)}, and {package} is not installed here; "
        f"install it (apt: ros-$ROS_DISTRO-{package.replace('_', '-')}), or choose another {name}"
    )
