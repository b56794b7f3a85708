"""A lifecycle node whose transitions go on in steps, and that says what went wrong.

rclpy's own transitions are one callback each, in which nobody else is served; it swallows their exceptions and dies of
those that are not possible.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import Future

from lifecycle_msgs.msg import Transition
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn

from gp_mapping.ros.mapper.late_services import Later, LateServices
from gp_mapping.ros.mapper.steps import StepRunner, Steps, at_once

__all__ = ["ManagedNode"]

EXPECTED = (
    ValueError,
    RuntimeError,
    OSError,
)  # wrong parameters, files, devices: the text says it all
WAITING = 100  # calls of change_state that may wait for an answer
DOING = {
    "configuring": "configure",
    "activating": "activate",
    "deactivating": "deactivate",
    "cleaningup": "cleanup",
    "shuttingdown": "shutdown",
}


class ManagedNode(LifecycleNode):
    """Subclasses write configuring, activating, deactivating, cleaning_up and shutting_down; each may raise.

    Each is a generator of steps (steps.py). Between two of them measurements, services and timers are served, get_state
    says what is being done, and another change_state is refused. An exception is logged, and the node stays in the
    state in which it was. There is no bond here: nav2 needs a lifecycle manager of its own for such a node, with
    bond_timeout: 0.0.
    """

    def __init__(self, name: str, **options):
        super().__init__(name, **options)
        self._steady = Clock(
            clock_type=ClockType.STEADY_TIME
        )  # runs before the first /clock and when it stands
        self._steps = StepRunner(self, self._steady)
        self._changes = LateServices(self, WAITING)
        self._offered: dict[str, LateServices] = {}
        self._changes.adopt(
            "change_state", self._service_change_state, self._on_change_state, self._refuse_change
        )

    def configuring(self) -> Steps:
        """From unconfigured to inactive."""
        raise NotImplementedError

    def activating(self) -> Steps:
        """From inactive to active."""
        raise NotImplementedError

    def deactivating(self) -> Steps:
        """From active to inactive."""
        raise NotImplementedError

    def cleaning_up(self) -> Steps:
        """From inactive to unconfigured."""
        raise NotImplementedError

    def shutting_down(self) -> Steps:
        """From any state to finalized."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """unconfigured, inactive, active or finalized; in between, configuring, activating, deactivating, …"""
        return self._state_machine.current_state[1]

    # ---- with an executor that turns -----------------------------------------------------------------------------

    def start(self) -> Future:
        """Configure and activate, for people without a lifecycle manager; False, and logged, where it failed."""
        done = TransitionCallbackReturn.SUCCESS

        def both() -> Steps:
            for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
                if (yield from self._changing(transition)) != done:
                    return False
            return True

        return self._steps.begin(both())

    def _on_change_state(self, request, response) -> Later | None:
        """lifecycle_msgs/ChangeState, in place of rclpy's callback."""
        transition = request.transition.id
        if self._steps.busy:
            raise RuntimeError(
                f"transition {request.transition.label or transition} is not possible while the node "
                f"is in state {self.state!r}"
            )
        if request.transition.label:
            try:
                transition = self._state_machine.get_transition_by_label(request.transition.label)
            except rclpy_implementation.RCLError as error:
                raise RuntimeError(
                    f"transition {request.transition.label!r} is not possible in state {self.state!r}"
                ) from error

        def finish(response, code: TransitionCallbackReturn) -> None:
            response.success = code == TransitionCallbackReturn.SUCCESS

        return Later(self._steps.begin(self._changing(transition)), finish)

    def _refuse_change(self, response, error: BaseException) -> None:
        response.success = False
        self.get_logger().error(str(error))

    def _changing(self, transition: int) -> Steps:
        """A transition from its begin to its end; how it went."""
        try:
            self._state_machine.trigger_transition_by_id(transition, True)
        except rclpy_implementation.RCLError as error:
            self._say_impossible(transition, error)
            return TransitionCallbackReturn.FAILURE
        code = yield from self._doing(DOING[self.state])
        self._state_machine.trigger_transition_by_label(code.to_label(), True)
        return code

    def _doing(self, name: str) -> Steps:
        """The work of a transition; FAILURE, and logged, where it raises."""
        work: dict[str, Callable[[], Steps]] = {
            "configure": self.configuring,
            "activate": self.activating,
            "deactivate": self.deactivating,
            "cleanup": self.cleaning_up,
            "shutdown": self.shutting_down,
        }
        try:
            yield from work[name]()
        except Exception as error:  # whatever it is, it is said, and the node can be asked again
            text = str(error) if isinstance(error, EXPECTED) else traceback.format_exc()
            self.get_logger().error(f"{name} failed: {text}")
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def _say_impossible(self, transition: int, error: Exception) -> None:
        self.get_logger().error(
            f"transition {transition} is not possible in state {self.state!r}: "
            f"{str(error).splitlines()[0]}"
        )

    def late_services(
        self, what: str, size: int, on_refused: Callable[[int], None]
    ) -> LateServices:
        """The services of that part of the node, which stay as long as the node does; at most `size` calls wait."""
        known = self._offered.get(what)
        if known is not None and known.size != size:  # it sets how many wait in the middleware, too
            known.close(
                RuntimeError("the service begins anew with another service_queue_size; ask again")
            )
            known = None
        if known is None:
            known = self._offered[what] = LateServices(self, size)
        known.begin(on_refused)
        return known

    def destroy_node(self) -> None:
        """Whoever waits for a transition, or calls a service, is answered before."""
        for services in (*self._offered.values(), self._changes):
            services.close(RuntimeError("the node is being destroyed"))
        super().destroy_node()

    # ---- here and now, without one -------------------------------------------------------------------------------

    def configure(self) -> None:
        """The work alone; raises what it raises."""
        at_once(self.configuring())

    def activate(self) -> None:
        """The work alone."""
        at_once(self.activating())

    def deactivate(self) -> None:
        """The work alone."""
        at_once(self.deactivating())

    def cleanup(self) -> None:
        """The work alone."""
        at_once(self.cleaning_up())

    def shutdown(self) -> None:
        """The work alone."""
        at_once(self.shutting_down())

    def on_configure(self, state) -> TransitionCallbackReturn:
        return at_once(self._doing("configure"))

    def on_activate(self, state) -> TransitionCallbackReturn:
        return at_once(self._doing("activate"))

    def on_deactivate(self, state) -> TransitionCallbackReturn:
        return at_once(self._doing("deactivate"))

    def on_cleanup(self, state) -> TransitionCallbackReturn:
        return at_once(self._doing("cleanup"))

    def on_shutdown(self, state) -> TransitionCallbackReturn:
        return at_once(self._doing("shutdown"))

    def trigger_shutdown(self) -> TransitionCallbackReturn:
        """As rclpy's, but an answer, as to any other transition that is not possible, where the node is finalized."""
        try:
            return super().trigger_shutdown()
        except rclpy_implementation.RCLError as error:
            self.get_logger().error(
                f"shutdown is not possible in state {self.state!r}: {str(error).splitlines()[0]}"
            )
            return TransitionCallbackReturn.FAILURE

    def _LifecycleNodeMixin__change_state(self, transition_id: int) -> TransitionCallbackReturn:
        """rclpy's own, under the name by which it calls it: an invalid transition (rclpy #1209) gets an answer.

        There it ends in an exception out of spin(), and whoever asked waits for ever.
        """
        try:
            return super()._LifecycleNodeMixin__change_state(transition_id)
        except (rclpy_implementation.RCLError, InvalidHandle) as error:
            self._say_impossible(transition_id, error)
            return TransitionCallbackReturn.FAILURE
