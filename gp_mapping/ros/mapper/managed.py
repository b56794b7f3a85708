"""A lifecycle node that says what went wrong: rclpy swallows exceptions in transitions and dies of invalid ones."""

from __future__ import annotations

import traceback

from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn

__all__ = ["ManagedNode"]

EXPECTED = (ValueError, RuntimeError, OSError)  # wrong parameters, files, devices: the text says it all


class ManagedNode(LifecycleNode):
    """Subclasses write configure, activate, deactivate, cleanup and shutdown; each may raise.

    An exception is logged, and the node stays in the state in which it was. There is no bond here: nav2 needs a
    lifecycle manager of its own for such a node, with bond_timeout: 0.0.
    """

    def start(self) -> bool:
        """Configure and activate, for people without a lifecycle manager; False, and logged, where it failed."""
        done = TransitionCallbackReturn.SUCCESS
        return self.trigger_configure() == done and self.trigger_activate() == done

    @property
    def state(self) -> str:
        """unconfigured, inactive, active or finalized."""
        return self._state_machine.current_state[1]

    def on_configure(self, state) -> TransitionCallbackReturn:
        return self._step("configure")

    def on_activate(self, state) -> TransitionCallbackReturn:
        return self._step("activate")

    def on_deactivate(self, state) -> TransitionCallbackReturn:
        return self._step("deactivate")

    def on_cleanup(self, state) -> TransitionCallbackReturn:
        return self._step("cleanup")

    def on_shutdown(self, state) -> TransitionCallbackReturn:
        return self._step("shutdown")

    def trigger_shutdown(self) -> TransitionCallbackReturn:
        """As rclpy's, but an answer, as to any other transition that is not possible, where the node is finalized."""
        try:
            return super().trigger_shutdown()
        except rclpy_implementation.RCLError as error:
            self.get_logger().error(f"shutdown is not possible in state {self.state!r}: {str(error).splitlines()[0]}")
            return TransitionCallbackReturn.FAILURE

    def _step(self, name: str) -> TransitionCallbackReturn:
        try:
            getattr(self, name)()
        except Exception as error:  # whatever it is, it is said, and the node can be asked again
            text = str(error) if isinstance(error, EXPECTED) else traceback.format_exc()
            self.get_logger().error(f"{name} failed: {text}")
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def _LifecycleNodeMixin__change_state(self, transition_id: int) -> TransitionCallbackReturn:
        """rclpy's own, under the name by which it calls it: an invalid transition (rclpy #1209) gets an answer.

        There it ends in an exception out of spin(), and whoever asked waits for ever.
        """
        try:
            return super()._LifecycleNodeMixin__change_state(transition_id)
        except (rclpy_implementation.RCLError, InvalidHandle) as error:
            self.get_logger().error(f"transition {transition_id} is not possible in state {self.state!r}: "
                                    f"{str(error).splitlines()[0]}")
            return TransitionCallbackReturn.FAILURE
