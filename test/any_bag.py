"""Bags of any message types, for tests of sensors and poses other than the usual ones."""

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer

from gp_mapping.recording.bag import STORE

NS = 10**9


def make(kind, store=STORE, **values):
    """A message; fields that are not given are zero, nested ones may be dicts."""
    fields = {}
    for name, (node, what) in store.fielddefs[kind][1]:
        value, inner = values.pop(name, None), what if node.name == "NAME" else None
        if inner is not None:
            fields[name] = (
                value if hasattr(value, "__msgtype__") else make(inner, store, **(value or {}))
            )
        elif node.name == "BASE":
            fields[name] = value if value is not None else ("" if what[0] == "string" else 0)
        else:
            fields[name] = (
                value if value is not None else np.zeros(what[1]) if node.name == "ARRAY" else []
            )
    assert not values, (kind, values)
    return store.types[kind](**fields)


def header(stamp, frame):
    return {"stamp": {"sec": stamp // NS, "nanosec": stamp % NS}, "frame_id": frame}


def transform(stamp, parent, child, position, quaternion=(0.0, 0.0, 0.0, 1.0)):
    return make(
        "geometry_msgs/msg/TransformStamped",
        header=header(stamp, parent),
        child_frame_id=child,
        transform={
            "translation": dict(zip("xyz", map(float, position))),
            "rotation": dict(zip("xyzw", map(float, quaternion))),
        },
    )


def write_bag(path, entries, store=STORE):
    """entries: (topic, type, record time ns, message), in any order."""
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {}
        for topic, kind, stamp, message in sorted(entries, key=lambda e: e[2]):
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=store)
            writer.write(connections[topic], stamp, store.serialize_cdr(message, kind))
    return path
