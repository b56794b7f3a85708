"""What a person should know of a map and its settings, in sentences.

Diagnostics and reports show the same ones.
"""

from __future__ import annotations

import math

from gp_mapping.errors import one_line
from gp_mapping.mapping.drift.sensor_place import SensorPlace
from gp_mapping.mapping.motion.extent import Area
from gp_mapping.settings.mapping import AUTOMATIC, MapSettings

__all__ = [
    "anisotropy_note",
    "contradiction_note",
    "drawing_notes",
    "drift_note",
    "inconsistent_settings",
    "not_looked_note",
    "place_note",
    "refusal_note",
    "slow_and_late_note",
    "slow_sensor_note",
    "turning_note",
    "unused_starts",
    "warm_up_note",
]

_NAMED = 3  # areas that are named one by one
_RATIO = 1e4  # of standard deviations; beyond it the smaller one means nothing next to the larger
# settings of which a saved map has its own numbers
_STARTS = (*AUTOMATIC, "heading_stddev", "bias_stddev", "time_offset")
_LONGEST = 0.5  # s of time_offset; beyond, a robot that turns is elsewhere than its velocity says
_FIELD = 100.0  # times the stated signal_stddev; a field that varies by more gets a note


def drawing_notes(chosen: list[Area], others: list[Area], fits, settings: MapSettings) -> list[str]:
    """What is not drawn, and why.

    Args:
        chosen: areas that are drawn, the most important first.
        others: areas that are not.
        fits: fits(low, high) tells whether a grid at the asked-for resolution holds them.
        settings: of the drawing.
    """
    notes = []
    # even the first area alone is too large
    if chosen and not fits(chosen[0].low, chosen[0].high):
        sides = " x ".join(
            f"{b - a + 2 * settings.margin:.0f}" for a, b in zip(chosen[0].low, chosen[0].high)
        )
        notes.append(
            f"the mapped ground is {sides} m, more than max_grid_cells ({settings.max_grid_cells}) cells of "
            f"{settings.resolution:g} m; only a part of it is drawn, about where the robot is. Raise "
            "resolution, or max_grid_cells, to draw all of it"
        )

    for area in others[:_NAMED]:
        (x, y), away = area.place, _gap(area, chosen[0])
        notes.append(
            f"a sample at ({x:.6g}, {y:.6g}) m lies {_metres(away)} from the rest and is not drawn ("
            f"{area.samples} there): a glitch of the pose, or ground that has hardly been driven yet"
        )

    if len(others) > _NAMED:
        notes.append(f"{len(others) - _NAMED} more places that far from the rest are not drawn")
    return notes


def _gap(a: Area, b: Area) -> float:
    """Distance between the boxes of two areas, m."""
    return math.hypot(*(max(a.low[d] - b.high[d], b.low[d] - a.high[d], 0.0) for d in range(2)))


def _metres(distance: float) -> str:
    return f"{distance / 1e3:.3g} km" if distance >= 1e3 else f"{distance:.0f} m"


def inconsistent_settings(settings: MapSettings, spread: float | None) -> list[str]:
    """Settings in their ranges that make no sense together, or with what is measured.

    Args:
        settings: with a number for each automatic start.
        spread: of the measurements, SI; None while it is not known.
    """
    s, notes = settings, []
    if abs(s.time_offset) > _LONGEST:
        notes.append(
            f"time_offset {s.time_offset:g} moves what is measured along straight lines, by the robot's velocity, and "
            f"within {s.time_offset:.2g} s a robot turns: write stamp_offset: {s.time_offset:g} in place of it"
        )
    if not s.metric:
        return notes

    # a nearly exact sensor makes matrices singular
    if s.noise_stddev < s.signal_stddev / _RATIO:
        notes.append(
            f"noise_stddev {s.noise_stddev:.3g} is less than a {_RATIO:g}th of signal_stddev "
            f"{s.signal_stddev:.3g}: no sensor is that good, and factorisations fail; write what two passes "
            "of one place differ by"
        )

    if s.noise_stddev > 100.0 * s.signal_stddev:
        notes.append(
            f"noise_stddev {s.noise_stddev:.3g} is far more than signal_stddev {s.signal_stddev:.3g}: the map "
            "will stay flat; write what the field varies by as signal_stddev"
        )

    if spread is not None and spread > _FIELD * s.signal_stddev:
        notes.append(
            f"the field varies by {spread:.3g} and signal_stddev is {s.signal_stddev:.3g}: intervals will be "
            "far too narrow; write what it varies by as signal_stddev and signal_stddev_prior, and a "
            "field_scale of about that"
        )
    return notes


def unused_starts(saved: dict, given: MapSettings, used: dict[str, float]) -> list[str]:
    """Starts that a saved map was given anew, and which change nothing: it goes on from its own.

    Args:
        saved: settings that it was saved with.
        given: settings with which it goes on.
        used: its hyper-parameters, SI.
    """
    changed = [
        name
        for name in _STARTS
        if name in used and getattr(given, name) != saved.get(name, getattr(given, name))
    ]
    return [
        f"{name}: {getattr(given, name):.4g} has no effect: it is a start, and this map goes on with "
        f"{used[name]:.4g}; begin a new map to have another"
        for name in changed
    ]


def warm_up_note(count: int, value: float) -> str:
    """What was left out of a sensor that had not begun to measure.

    Args:
        count: raw samples that were left out.
        value: the last of them, SI.
    """
    return (
        f"the first {count} measurements are left out ({value:.3g}, SI): far from all that followed, as of a "
        "sensor that had not begun to measure"
    )


def refusal_note(count: int, left_out: int, why: str) -> list[str]:
    """Why a map refuses measurements; nothing of one that is full, of which others speak.

    Args:
        count: measurements that were refused.
        left_out: cells that a full map has left out.
        why: what it said of the newest one.
    """
    notes = []
    if count and not left_out:
        notes.append(f"{count} measurements were refused, the newest because: {one_line(why)}")
    return notes


def not_looked_note(settings: MapSettings) -> list[str]:
    """What bags mapped side by side are not asked, where it matters: whether sensors lag, drift."""
    notes = []
    if settings.learns_response:
        notes.append(
            "bags that are mapped side by side are not asked whether the sensor follows the field slowly: write "
            "response_time with what gp-mapping map of one of them says, or learn_response_time: never"
        )
    if settings.learn_bias_time and not settings.bias_time and settings.learns_bias:
        notes.append(
            "bags that are mapped side by side are not asked whether the sensor drifts while the robot drives: write "
            "bias_time with what gp-mapping check of one of them says, or learn_bias_time: false"
        )
    return notes


def slow_sensor_note(seconds: float) -> str:
    """That a sensor follows the field slowly, as was found.

    Args:
        seconds: its time constant, s.
    """
    return (
        f"the sensor follows the field with a time constant of about {seconds:.2g} s: what it tells is taken back to "
        f"what it would settle at; response_time: {seconds:.2g} says so from the start, and learn_response_time: never "
        "leaves it as it comes"
    )


def slow_and_late_note(
    seconds: float, delay: float, stddevs: tuple[float, float], unplaced: int
) -> str:
    """That a sensor is late and then follows slowly, as was found.

    Args:
        seconds: its time constant, s.
        delay: by which it is late, s.
        stddevs: of both, s.
        unplaced: cells of the beginnings of passes that are left out.
    """
    return (
        f"the sensor follows the field with a time constant of {seconds:.3g} ± {stddevs[0]:.2g} s, and what it tells "
        f"comes {delay:.3g} ± {stddevs[1]:.2g} s late (a hose, a pump): it is taken back to where the robot was then, "
        f"and to what the sensor would settle at; {unplaced} cells that were drawn in before their pass began are left "
        f"out; response_time: {seconds:.2g}, and {delay:.2g} more in stamp_offset, "
        "say so from the start, and learn_response_time: never leaves it as it comes"
    )


def drift_note(stddev: float, unit: str, seconds: float, bias_time: float) -> str:
    """That a sensor drifts or warms up while the robot drives, as was found.

    Args:
        stddev: by how much, in the display unit.
        unit: the display unit.
        seconds: in which it changes, s.
        bias_time: after which a pass gets another constant, s.
    """
    return (
        f"warm-up or drift: what the sensor tells at one place changes during a pass, by about {stddev:.2g} {unit} in "
        f"{seconds:.2g} s; the map gives each pass another constant every {bias_time:.2g} s. bias_time: "
        f"{bias_time:.2g} says so from the start, and learn_bias_time: false leaves one constant for each pass"
    )


def contradiction_note() -> str:
    """That places which the robot passed twice differ, as was found."""
    return (
        "places that the robot passed twice contradict each other as where its poses wander (wheels that slip, an "
        "odometry without a localiser), or where the field changes while it drives: the map lies in between, and its "
        "intervals are too narrow; record a localiser's pose, or map shorter drives"
    )


def turning_note(stddev: float, scale: float, unit: str) -> str:
    """That what a sensor tells turns with the robot, as was found.

    Args:
        stddev: of that part, SI.
        scale: the display unit, SI.
        unit: its name.
    """
    return (
        f"what the sensor tells depends on which way the robot faces, by about {stddev / scale:.2g} {unit} (sun or "
        "wind on one side of it, an antenna, what the robot itself gives off), and this map takes that for the "
        f"field; heading_stddev: {stddev:.2g} makes one that tells the two apart"
    )


def place_note(place: SensorPlace, time_offset: float, learned: bool) -> str:
    """That a sensor sits elsewhere on the robot than is said, or its stamps are late, as was found.

    Args:
        place: what was found.
        time_offset: the setting, s.
        learned: whether the map learns it.
    """
    a, b, late = place.stddevs
    ways = []
    if place.along or place.across:
        # to a centimetre: evidence knows nothing of how well poses are known
        a_text, b_text = (f"{max(stddev, 0.01):.2f}" for stddev in (a, b))
        along = f"add {place.along:+.2f} ± {a_text} to sensor_offset_x and " if a else "add "
        ways.append(f"{along}{place.across:+.2f} ± {b_text} to sensor_offset_y")
    if place.delay and not learned:
        ways.append(f"time_offset: {time_offset + place.delay:.2g} ± {late:.2g}")
    text = ", ".join(ways)
    if place.late is not None and abs(place.along) > 2.0 * a:
        seconds = time_offset + place.late
        text += f", or time_offset: {seconds:.2g} in place of the former (the drive does not tell which)"
    return (
        "the values fit together as if measured elsewhere on the robot than their places say, or at another "
        f"time, and this map is blurred by that: {text}"
    )


def anisotropy_note(ratio: float) -> str:
    """That the field changes faster along one axis, as was found.

    Args:
        ratio: lengthscale along y over that along x.
    """
    fast, slow = ("x", "y") if ratio > 1.0 else ("y", "x")
    return (
        f"the field changes about {max(ratio, 1.0 / ratio):.2g} times faster along {fast} than along {slow} of the "
        f"map's frame, and this map takes it for alike in all directions; anisotropy: {ratio:.3g} makes one that is "
        "better between the lanes (not with wiski)"
    )
