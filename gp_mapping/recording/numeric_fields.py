"""Which fields of a message type hold a number."""

from __future__ import annotations

from collections.abc import Iterator

from rosbags.interfaces import Nodetype, Typestore

from gp_mapping.intake.sensors.value_field import DEFAULT, Choice, steps_of

__all__ = ["has_number", "numbers_of"]

_PLAIN = ("int", "uint", "float", "bool")
_DEEP = 4  # fields within fields that are looked at
# no measurement is in them
_HEADERS = ("std_msgs/msg/Header", "builtin_interfaces/msg/Time", "std_msgs/msg/MultiArrayLayout")


def has_number(kind: str, path: str, store: Typestore) -> bool:
    """Whether messages of a type have a number, or yes or no, there.

    Args:
        kind: ROS type.
        path: of a field; "": `data`, or else `value`.
        store: knows the type.
    """
    if kind not in store.fielddefs:
        return False
    if not path:
        names = dict(store.fielddefs[kind][1])
        path = next((name for name in DEFAULT if name in names), "")
        if not path:
            return False

    node, what, holder = Nodetype.NAME, kind, kind
    for step in steps_of(path):
        if isinstance(step, Choice):
            if node in (Nodetype.ARRAY, Nodetype.SEQUENCE):
                node, what = holder_node, holder = what[0]
                if holder_node != Nodetype.NAME:
                    return False
            if step.field not in dict(store.fielddefs[holder][1]):
                return False
        elif isinstance(step, int):
            if node not in (Nodetype.ARRAY, Nodetype.SEQUENCE):
                return False
            node, what = what[0]
        else:
            fields = dict(store.fielddefs[what][1]) if node == Nodetype.NAME else {}
            if step not in fields:
                return False
            holder = what
            node, what = fields[step]
    return node == Nodetype.BASE and what[0].startswith(_PLAIN)


def numbers_of(kind: str, store: Typestore) -> list[str]:
    """Paths of all numbers of a type.

    Of an array its first one, or where a text of the elements tells which is which, the one of a
    name that is to be filled in: the order may be another one in each message.
    """
    return list(_numbers("", Nodetype.NAME, kind, store, _DEEP))


def _numbers(path: str, node: Nodetype, what, store: Typestore, deep: int) -> Iterator[str]:
    """As `numbers_of`, of one field."""
    if node == Nodetype.BASE:
        if what[0].startswith(_PLAIN):
            yield path
    elif node in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        inner, of = what[0]
        fields = store.fielddefs[of][1] if inner == Nodetype.NAME and of in store.fielddefs else []
        text = next(
            (name for name, (n, w) in fields if n == Nodetype.BASE and w[0] == "string"), ""
        )
        yield from _numbers(f"{path}[{text}=…]" if text else f"{path}.0", inner, of, store, deep)
    elif deep and what in store.fielddefs and what not in _HEADERS:
        for name, (inner, of) in store.fielddefs[what][1]:
            yield from _numbers(f"{path}.{name}" if path else name, inner, of, store, deep - 1)
