"""What to say where passes are not in one frame."""

from __future__ import annotations

import math

from gp_mapping.mapping.frames.search import ALIKE, CLOCK, MOVED, Break

__all__ = ["break_note"]


def break_note(found: Break) -> str:
    """What is wrong with the frames from a pass on, and what to do about it."""
    if found.kind == MOVED:
        x, y, yaw = found.moved
        return (
            f"from stamp {found.stamp:.1f} (pass {found.pass_number}) on "
            f"poses seem to lie in another frame than before: what is measured goes together where they are "
            f"moved by ({x:.2f}, {y:.2f}) m and turned by {math.degrees(yaw):.1f}° (± {found.stddev:.2g} m in the "
            f"middle of that drive, ± {math.degrees(found.turn_stddev):.1g}°). Has an odometry begun again elsewhere, "
            "or drifted? The map holds both frames, and is wrong: take the poses of a localiser (in TF: pose_source: "
            "tf), or map the drives by themselves and add them with gp-mapping merge FIRST SECOND --transform "
            f"SECOND={x:.3f},{y:.3f},{yaw:.4f}"
        )
    if found.kind == ALIKE:
        x, y, yaw = found.moved
        return (
            f"from stamp {found.stamp:.1f} (pass {found.pass_number}) on "
            f"what is measured would go together with what was measured before, which is elsewhere, if its "
            f"poses were moved by ({x:.2f}, {y:.2f}) m and turned by {math.degrees(yaw):.1f}° (± {found.stddev:.2g} m "
            f"in the middle of that drive, ± {math.degrees(found.turn_stddev):.1g}°): were both of one place, and has "
            "an odometry begun again between them? Then map the drives by themselves and add them with gp-mapping "
            f"merge FIRST SECOND --transform SECOND={x:.3f},{y:.3f},{yaw:.4f}; where two places are alike, nothing is "
            "wrong"
        )
    if found.kind == CLOCK:
        late = "later" if found.seconds > 0 else "earlier"
        return (
            f"from stamp {found.stamp:.1f} (pass {found.pass_number}) on "
            f"measurements are stamped about {abs(found.seconds):.2g} s {late} beside their poses than before: "
            "two clocks, or one that was set? What was measured then lies in wrong places: map the drives by "
            f"themselves, this one with a stamp_offset by {found.seconds:+.2g} s from the others', and add them with "
            "gp-mapping merge; and let all computers keep one time (NTP, PTP)"
        )
    return (
        f"from stamp {found.stamp:.1f} (pass {found.pass_number}) on "
        f"what is measured contradicts what was measured before in the same places, all along the way: are "
        "poses in another frame, as of an odometry that has begun again elsewhere, or is it another field (another "
        "sensor, height or day)? The map believes both, and is wrong: map the drives by themselves, and take the "
        "poses of a localiser"
    )
