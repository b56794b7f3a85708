"""A lifecycle node whose transitions run in steps, and that logs why a transition failed.

rclpy runs each transition in one callback, during which no other callback of the node is served;
it swallows exceptions of that callback, and a transition that is not possible ends the process.
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

from gp_mapping.ros.mapper.late_services import LateServices, PendingAnswer
from gp_mapping.ros.mapper.steps import StepRunner, Steps, at_once

__all__ = ["ManagedNode"]

# wrong parameters, files, devices: the text of the error suffices, without a traceback
EXPECTED = (ValueError, RuntimeError, OSError)
MAX_WAITING = 100  # calls of change_state that may wait for an answer
# name of the transition state in rcl -> name of its work in ManagedNode._run_transition
WORK_OF = {
    "configuring": "configure",
    "activating": "activate",
    "deactivating": "deactivate",
    "cleaningup": "cleanup",
    "shuttingdown": "shutdown",
}


class ManagedNode(LifecycleNode):
    """A lifecycle node; subclasses write the work of the five transitions as generators of steps.

    configuring, activating, deactivating, cleaning_up and shutting_down may each raise. Between two
    steps (steps.py) measurements, services and timers are served, get_state reports the transition
    that is going on, and another change_state is refused. An exception is logged, and the node
    returns to the state before the transition; after shutting_down it is finalized in any case.

    There is no bond here: nav2 needs a lifecycle manager of its own for such a node, with
    bond_timeout: 0.0.
    """

    def __init__(self, name: str, **options):
        super().__init__(name, **options)
        # a steady clock runs before the first /clock message and while simulated time stands still
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._steps = StepRunner(self, self._steady)

        self._changes = LateServices(self, MAX_WAITING)
        self._offered: dict[str, LateServices] = {}
        # rclpy has made this service already; only its callback is replaced
        self._changes.adopt(
            "change_state", self._service_change_state, self._on_change_state, self._refuse_change
        )

    def configuring(self) -> Steps:
        """Work of the transition from unconfigured to inactive.

        Raises:
            NotImplementedError: A subclass does not define it.
        """
        raise NotImplementedError

    def activating(self) -> Steps:
        """Work of the transition from inactive to active.

        Raises:
            NotImplementedError: A subclass does not define it.
        """
        raise NotImplementedError

    def deactivating(self) -> Steps:
        """Work of the transition from active to inactive.

        Raises:
            NotImplementedError: A subclass does not define it.
        """
        raise NotImplementedError

    def cleaning_up(self) -> Steps:
        """Work of the transition from inactive to unconfigured.

        Raises:
            NotImplementedError: A subclass does not define it.
        """
        raise NotImplementedError

    def shutting_down(self) -> Steps:
        """Work of the transition from any state to finalized.

        Raises:
            NotImplementedError: A subclass does not define it.
        """
        raise NotImplementedError

    @property
    def state(self) -> str:
        """The lifecycle state: unconfigured, inactive, active, finalized, or a transition state.

        Transition states are configuring, activating, deactivating, cleaningup and shuttingdown.
        """
        return self._state_machine.current_state[1]

    # ---- transitions in steps, under an executor -------------------------------------------------

    def start(self) -> Future:
        """Configure and activate the node, where there is no lifecycle manager.

        Returns:
            Future of whether both succeeded; a failure is logged.
        """
        done = TransitionCallbackReturn.SUCCESS

        def configure_and_activate() -> Steps:
            """Make both transitions; False where one of them fails."""
            for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
                if (yield from self._changing(transition)) != done:
                    return False
            return True

        return self._steps.begin(configure_and_activate())

    def end(self) -> Future:
        """Clean up for the end of the process, after a transition that is going on.

        Returns:
            Future of whether that succeeded; a failure is logged.
        """

        def clean_up() -> Steps:
            """Clean up; whether that succeeds."""
            return (yield from self._run_transition("cleanup")) == TransitionCallbackReturn.SUCCESS

        return self._steps.begin(clean_up())

    def work_off(self) -> None:
        """Finish in this thread what has been begun, when no executor runs any more."""
        self._steps.finish()

    def _on_change_state(self, request, response) -> PendingAnswer | None:
        """Begin the transition of a lifecycle_msgs/ChangeState call; replaces rclpy's callback.

        Raises:
            RuntimeError: The transition is not possible in this state, or another one is going on.
        """
        transition = request.transition.id
        if self._steps.busy:
            raise RuntimeError(
                f"transition {request.transition.label or transition} is not possible while the node "
                f"is in state {self.state!r}"
            )

        # as in rclpy, a label takes precedence over the id
        if request.transition.label:
            try:
                transition = self._state_machine.get_transition_by_label(request.transition.label)
            except rclpy_implementation.RCLError as error:
                raise RuntimeError(
                    f"transition {request.transition.label!r} is not possible in state {self.state!r}"
                ) from error

        def finish(response, code: TransitionCallbackReturn) -> None:
            """Fill the answer."""
            response.success = code == TransitionCallbackReturn.SUCCESS

        return PendingAnswer(self._steps.begin(self._changing(transition)), finish)

    def _refuse_change(self, response, error: BaseException) -> None:
        response.success = False
        self.get_logger().error(str(error))

    def _changing(self, transition: int) -> Steps:
        """Run one transition, state machine and work; returns SUCCESS or FAILURE."""
        try:
            self._state_machine.trigger_transition_by_id(transition, True)
        except rclpy_implementation.RCLError as error:
            self._log_impossible(transition, error)
            return TransitionCallbackReturn.FAILURE
        # the state machine is in a transition state now, which get_state reports between the steps

        code = yield from self._run_transition(WORK_OF[self.state])
        self._state_machine.trigger_transition_by_label(code.to_label(), True)
        return code

    def _run_transition(self, name: str) -> Steps:
        """Run the work of a transition; FAILURE, with a log entry, where it raises."""
        work: dict[str, Callable[[], Steps]] = {
            "configure": self.configuring,
            "activate": self.activating,
            "deactivate": self.deactivating,
            "cleanup": self.cleaning_up,
            "shutdown": self.shutting_down,
        }

        try:
            yield from work[name]()
        except Exception as error:  # of whatever kind: the transition fails and can be tried again
            text = str(error) if isinstance(error, EXPECTED) else traceback.format_exc()
            self.get_logger().error(f"{name} failed: {text}")
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def _log_impossible(self, transition: int, error: Exception) -> None:
        """Log that a transition does not lead out of this state."""
        # rcl appends the place in its sources in further lines
        self.get_logger().error(
            f"transition {transition} is not possible in state {self.state!r}: "
            f"{str(error).splitlines()[0]}"
        )

    def late_services(
        self, part: str, size: int, on_refused: Callable[[int], None]
    ) -> LateServices:
        """The services of one part of the node, which live as long as the node.

        Args:
            part: Name of the part; its services are made at the first call and reused afterwards.
            size: Number of calls that may wait for an answer.
            on_refused: Called with a number of calls that were refused because too many wait.
        """
        services = self._offered.get(part)
        # the queue in the middleware has that size, too, and cannot be changed: begin anew
        if services is not None and services.size != size:
            services.close(
                RuntimeError("the service begins anew with another service_queue_size; ask again")
            )
            services = None

        if services is None:
            services = self._offered[part] = LateServices(self, size)
        services.begin(on_refused)
        return services

    def destroy_node(self) -> None:
        """Answer all calls that wait for a transition or a service, then destroy the node."""
        for services in (*self._offered.values(), self._changes):
            services.close(RuntimeError("the node is being destroyed"))
        super().destroy_node()

    # ---- transitions at once, without an executor ------------------------------------------------

    def configure(self) -> None:
        """Run the work of configuring at once, without the state machine; raises what it raises."""
        at_once(self.configuring())

    def activate(self) -> None:
        """Run the work of activating at once, without the state machine."""
        at_once(self.activating())

    def deactivate(self) -> None:
        """Run the work of deactivating at once, without the state machine."""
        at_once(self.deactivating())

    def cleanup(self) -> None:
        """Run the work of cleaning up at once, without the state machine."""
        at_once(self.cleaning_up())

    def shutdown(self) -> None:
        """Run the work of shutting down at once, without the state machine."""
        at_once(self.shutting_down())

    def on_configure(self, state) -> TransitionCallbackReturn:
        """Make the transition in one go, where rclpy itself asks for it."""
        return at_once(self._run_transition("configure"))

    def on_activate(self, state) -> TransitionCallbackReturn:
        """As on_configure."""
        return at_once(self._run_transition("activate"))

    def on_deactivate(self, state) -> TransitionCallbackReturn:
        """As on_configure."""
        return at_once(self._run_transition("deactivate"))

    def on_cleanup(self, state) -> TransitionCallbackReturn:
        """As on_configure."""
        return at_once(self._run_transition("cleanup"))

    def on_shutdown(self, state) -> TransitionCallbackReturn:
        """As on_configure."""
        return at_once(self._run_transition("shutdown"))

    def trigger_shutdown(self) -> TransitionCallbackReturn:
        """As rclpy's, but a node that is finalized already logs an error and returns FAILURE."""
        try:
            return super().trigger_shutdown()
        except rclpy_implementation.RCLError as error:
            self.get_logger().error(
                f"shutdown is not possible in state {self.state!r}: {str(error).splitlines()[0]}"
            )
            return TransitionCallbackReturn.FAILURE

    def _LifecycleNodeMixin__change_state(self, transition_id: int) -> TransitionCallbackReturn:
        """As rclpy's method of this (mangled) name, but an invalid transition is answered.

        In rclpy it ends in an exception out of spin(), and the client waits for ever (rclpy #1209).
        """
        try:
            return super()._LifecycleNodeMixin__change_state(transition_id)
        except (rclpy_implementation.RCLError, InvalidHandle) as error:
            self._log_impossible(transition_id, error)
            return TransitionCallbackReturn.FAILURE
