"""Notices another node of the same name: services, diagnostics and files of both are the same."""

from __future__ import annotations

__all__ = ["Namesakes"]

# s; a node that was killed is still announced for about 20 s after the one that takes its place
_LASTS = 30.0


class Namesakes:
    """Looks for other nodes that have this node's full name.

    Args:
        node: this node.
    """

    def __init__(self, node):
        self._node = node
        self._since: float | None = None  # monotonic s, when another one was first seen

    @property
    def count(self) -> int:
        """Nodes of this name that are announced, this one among them."""
        own = self._node.get_namespace(), self._node.get_name()
        names = self._node.get_node_names_and_namespaces()
        return sum((space, name) == own for name, space in names)

    def note(self, now: float) -> str:
        """What is wrong, in words, where another node has had this name for _LASTS; else ''.

        Args:
            now: monotonic s.
        """
        if self.count < 2:
            self._since = None
            return ""

        self._since = now if self._since is None else self._since
        if now - self._since < _LASTS:
            return ""
        return (
            f"another node is named {self._node.get_fully_qualified_name()}, too: either of them answers a "
            "service, and both save into the same files; end one, or start it in a namespace (-r __ns:=/robot2)"
        )
