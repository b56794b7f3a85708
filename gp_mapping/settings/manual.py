"""Write config/mapping.yaml, the manual of all parameters, from the settings.

    python -m gp_mapping.settings.manual > config/mapping.yaml

A test fails where the file and the settings disagree.
"""

from __future__ import annotations

import textwrap
from dataclasses import fields

from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import LIVE_PARAMETERS, NodeSettings

__all__ = ["manual"]

HEAD = """\
# All parameters of mapping_node with meaning, unit, range and default; the same file serves `gp-mapping map --params`.
# Written by `python -m gp_mapping.settings.manual > config/mapping.yaml`; copy it, keep what you change.
# Everything is in SI units (tesla, metres, seconds). [live] may be set while the node runs (ros2 param set); the
# rest belongs to the map that is being built and is read at the start. '/**:' reaches the node whatever its name and
# namespace. For a recording or a simulator that publishes /clock, add `use_sim_time: true`.

/**:
  ros__parameters:
"""
TITLES = {
    MapSettings: "the map: model, noise, learning, grid",
    IntakeSettings: "from messages to samples",
    NodeSettings: "the node: rates, queues, frames, files",
}


def _value(value) -> str:
    """Format a value so that YAML 1.1 reads it back with its type: 1e-06 becomes 1.0e-06."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    return repr(value)


def _range(meta) -> str:
    """Return the choices or the range of a setting in words; empty where it has none."""
    if meta.get("choices"):
        return "one of " + ", ".join(meta["choices"])

    low, high = meta.get("low"), meta.get("high")
    if low is None and high is None:
        return ""
    return f"{'' if low is None else f'{low:g}'} to {'' if high is None else f'{high:g}'}"


def manual() -> str:
    """Return the text of config/mapping.yaml."""
    out = [HEAD]
    for kind, title in TITLES.items():
        out.append(f"\n    # ---- {title} {'-' * (100 - len(title))}\n")
        for f in fields(kind):
            facts = [
                f"unit {f.metadata['unit']}" if f.metadata.get("unit") else "",
                _range(f.metadata),
                f"default {_value(f.default)}",
            ]

            live = " [live]" if f.name in LIVE_PARAMETERS else ""
            text = f"{f.metadata['doc']} ({'; '.join(fact for fact in facts if fact)}){live}"
            out += [f"    # {line}\n" for line in textwrap.wrap(text, 112)]
            out.append(f"    {f.name}: {_value(f.default)}\n")
    return "".join(out)


if __name__ == "__main__":
    print(manual(), end="")
