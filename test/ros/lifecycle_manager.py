"""The calls that nav2's lifecycle manager makes of each node in node_names, with bond_timeout 0.0 (no bond).

Written after what nav2_lifecycle_manager does; nav2 itself has no wheels. It asks change_state, then compares get_state
with the state that the transition leads to; a start-up stops at the first node that fails; what goes down goes in
reverse.
"""

from __future__ import annotations

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState

__all__ = ["LifecycleManager"]

LEADS_TO = {
    Transition.TRANSITION_CONFIGURE: State.PRIMARY_STATE_INACTIVE,
    Transition.TRANSITION_ACTIVATE: State.PRIMARY_STATE_ACTIVE,
    Transition.TRANSITION_DEACTIVATE: State.PRIMARY_STATE_INACTIVE,
    Transition.TRANSITION_CLEANUP: State.PRIMARY_STATE_UNCONFIGURED,
    Transition.TRANSITION_UNCONFIGURED_SHUTDOWN: State.PRIMARY_STATE_FINALIZED,
}


class LifecycleManager:
    """peer: ros_helpers.Peer.  node_names: in the order of start-up."""

    def __init__(self, peer, node_names):
        self._peer, self._names = peer, list(node_names)

    def state(self, name: str) -> int:
        """The node's primary state."""
        return self._peer.call(
            GetState, f"{name}/get_state", GetState.Request(), again=2.0
        ).current_state.id

    def _change(self, name: str, transition: int) -> bool:
        request = ChangeState.Request(transition=Transition(id=transition))
        done = self._peer.call(ChangeState, f"{name}/change_state", request, timeout=60.0).success
        return done and self.state(name) == LEADS_TO[transition]

    def _change_all(self, transition: int, names) -> bool:
        return all(self._change(name, transition) for name in names)

    def startup(self) -> bool:
        """Configure all, then activate all."""
        return self._change_all(Transition.TRANSITION_CONFIGURE, self._names) and self._change_all(
            Transition.TRANSITION_ACTIVATE, self._names
        )

    def pause(self) -> bool:
        """Deactivate."""
        return self._change_all(Transition.TRANSITION_DEACTIVATE, self._names[::-1])

    def resume(self) -> bool:
        """Activate again."""
        return self._change_all(Transition.TRANSITION_ACTIVATE, self._names)

    def reset(self) -> bool:
        """Deactivate and clean up what is up."""
        return self._change_all(
            Transition.TRANSITION_DEACTIVATE, self._names[::-1]
        ) and self._change_all(Transition.TRANSITION_CLEANUP, self._names[::-1])

    def shutdown(self) -> bool:
        """Down from wherever it is: deactivate, clean up, finalize."""
        return self.reset() and self._change_all(
            Transition.TRANSITION_UNCONFIGURED_SHUTDOWN, self._names[::-1]
        )
