"""`gp-mapping check`: what to mend on the robot first, each with what it would gain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gp_mapping.analysis.calibration import Calibration
from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.metrics import BANDS
from gp_mapping.analysis.pass_biases import any_differs, biases_text
from gp_mapping.analysis.unlike.parts import CHANGED, DISPLACED, Unlike, unlike_text
from gp_mapping.mapping.frames.search import ALIKE, Break
from gp_mapping.mapping.notes.frames import break_note

__all__ = ["Advice", "advise"]

_WORTH = 0.03  # fraction of the RMSE below which a refit's gain is no reason to mend anything
_GROSS, _DROPPED = 0.002, 0.01  # fractions of the measurements above which they are mentioned
_CORRELATED = 0.3  # autocorrelation of residuals at 0.5 s beyond the expected one
_SURE = 3.0  # standard deviations that a score of the test is off before it says something
_SLOW = 0.2  # s; more is not expected of stamps
_UNKNOWN = 0.5  # fraction of the test where the map hardly knows the field


class Advice(NamedTuple):
    """One piece of advice.

    Attributes:
        text: a sentence.
        gain: the fraction of the RMSE that mending it is expected to save; None: not known.
    """

    text: str
    gain: float | None


@dataclass(frozen=True)
class _Corrections:
    """What the map's own corrections gain on the test, in RMSE.

    Attributes:
        rmse: with all corrections, in the unit.
        tried: RMSE of `refits`, by name.
        unit: of both.
    """

    rmse: float
    tried: dict[str, float]
    unit: str

    def gain(self, name: str) -> float | None:
        """Return the fraction of the RMSE that the correction of that name saves."""
        # Without any error there is nothing to gain.
        return 1.0 - self.rmse / self.tried[name] if self.tried.get(name) else None

    def gain_text(self, name: str) -> str:
        """Say what the correction of that name saves."""
        gain, without = self.gain(name), self.tried.get(name, 0.0)
        if gain is None:
            return ""
        if abs(gain) < 0.005:
            return f"; here the map is as good without this correction ({decimals(without, 2)} {self.unit})"
        less = f"{100 * gain:.0f} % less" if gain > 0 else "so here the correction did not help"
        return (
            f"; the map corrects it: RMSE {decimals(self.rmse, 2)} {self.unit} and "
            f"{decimals(without, 2)} {self.unit} without, {less}"
        )


def advise(
    c: Calibration | None, found: dict, tried: dict[str, float], context: dict
) -> list[Advice]:
    """Return advice: sensor faults, faults of the robot by gain, driving, what no refit measures.

    Where the sensor is dead nothing else is advised; nor where passes are in several frames, by
    which they differ as by late stamps, a sensor that drifts, or anything else; nor where the robot
    has not moved, which tells nothing of it. Where it turns with the robot, and the map takes that
    for the field, clocks and poses are not judged; where it sits elsewhere on the robot clocks are
    not.

    Args:
        c: None of a map from which no calibration is made.
        found: `quality` of the test, and `expected`, what the map expects of it
            (`expected_errors`).
        tried: RMSE of `refits`, by name.
        context: unit, sensor, sensor_faults (list), gross, measurements, dropped, explained (list),
            changes (list), follow_changes, frames (`frame_breaks`), biases (`pass_biases`), drift
            (`found_drift`), noise (of one measurement, in the unit), scale (one unit in SI), unlike
            (`unlike_parts`), standing (whether the robot has not moved), turning (what the map says
            of a sensor that turns with the robot, a list), place (of one that sits elsewhere on it,
            likewise).
    """
    faults = context["sensor_faults"]
    frames: list[Break] = context["frames"]
    texts = *(fault.text for fault in faults), *(break_note(each) for each in frames)
    first = [Advice(text, None) for text in texts]
    if any(fault.dead for fault in faults) or any(each.kind != ALIKE for each in frames):
        return first
    if context["standing"]:
        text = (
            "let the robot drive: its poses stay in one place, and a map comes of driving; where it did drive, look at "
            "what makes the poses (wheel encoders, a localiser)"
        )
        return [*first, Advice(text, None)]

    out = [Advice(text, None) for text in context["turning"]]
    if not out:
        placed = [Advice(text, None) for text in context["place"]]
        out = placed + _by_gain(c, tried, found, context)

    # What follows has no refit to be weighed by, or is no fault: it stays behind the sorted ones.
    return first + out + _driving_advice(found, context["unit"]) + _others(found, context)


def _by_gain(
    c: Calibration | None, tried: dict[str, float], found: dict, context: dict
) -> list[Advice]:
    """Return advice on faults of the robot, the largest gain first; arguments as of `advise`."""
    corrections = _Corrections(found["rmse_ut"], tried, context["unit"])
    out: list[Advice] = []
    placed = bool(context["place"])  # by exact evidence, which clocks and refits only approach
    if c is not None:
        out += [] if placed else _clock_advice(c, corrections, context["sensor"])
        out += _iron_advice(c, corrections, context["sensor"])
    out += [] if placed else _lever_arm_advice(corrections)
    out += _drift_advice(corrections, context)
    out += _unlike_advice(context)
    return sorted(out, key=lambda a: -(a.gain or 0.0))


def _clock_advice(c: Calibration, corrections: _Corrections, sensor: str) -> list[Advice]:
    """Return advice on a time offset of the sensor's stamps."""
    if not c.has_offset or c.offset_assumed or abs(c.offset) < 0.005:
        return []

    or_else = ""
    if not c.separable:
        side = "behind" if c.lag > 0 else "ahead of"
        or_else = (
            f", or measure whether the sensor sits {100 * abs(c.lag):.1f} cm "
            f"{side} the point that the pose means"
        )
    # seconds of a thermometer or of a gas sensor look like a late stamp
    if sensor != "magnetometer" and c.offset > _SLOW:
        or_else += (
            "; or the sensor itself takes that long, or longer, to follow the field (thermometer, gas): then "
            "set response_time to its time constant, and drive slowly"
        )

    later = "later" if c.offset > 0 else "earlier"
    by = f"{abs(c.offset):.3f} ± {max(c.offset_stddev, 0.001):.3f} s {later}"
    return [
        Advice(
            f"synchronise the clocks: the {sensor}'s stamps are {by} than the pose's{or_else}"
            f"{corrections.gain_text('without_offset')}",
            corrections.gain("without_offset"),
        )
    ]


def _iron_advice(c: Calibration, corrections: _Corrections, sensor: str) -> list[Advice]:
    """Return advice on a part of the field that turns with the robot."""
    if not c.has_body_field:
        return []
    turning, stddev = (decimals(v / c.scale, 2) for v in (c.turning, c.turning_stddev))
    return [
        Advice(
            f"calibrate the {sensor} (hard iron) or mount it further from motors and steel: "
            f"{turning} ± {stddev} {corrections.unit} turns with the robot"
            f"{corrections.gain_text('without_heading')}",
            corrections.gain("without_heading"),
        )
    ]


def _lever_arm_advice(corrections: _Corrections) -> list[Advice]:
    """Return advice on a lever arm that is not stated."""
    arm, rmse, unit = corrections.tried.get("with_lever_arm"), corrections.rmse, corrections.unit
    if arm is None or not rmse > 0.0 or not 1.0 - arm / rmse > _WORTH:
        return []
    return [
        Advice(
            "tell where the sensor sits (sensor_offset_x, sensor_offset_y), or set learn_lever_arm: "
            f"RMSE {decimals(arm, 2)} {unit} with a learned lever arm, {decimals(rmse, 2)} {unit} now",
            1.0 - arm / rmse,
        )
    ]


def _drift_advice(corrections: _Corrections, context: dict) -> list[Advice]:
    """Return advice on a sensor that drifts, or reads differently from pass to pass."""
    if context["drift"] is not None:
        text = _drift_text(context["drift"], corrections.unit)
    elif any_differs(context["biases"], context["noise"]):
        text = (
            "mount, warm-up or drift: from pass to pass the sensor reads differently ("
            f"{biases_text(context['biases'], corrections.unit)}); let it warm up, fasten it where nothing moves, keep "
            "iron off it"
        )
    else:
        return []
    gain = corrections.gain("without_bias")
    return [Advice(f"{text}{corrections.gain_text('without_bias')}", gain)]


def _unlike_advice(context: dict) -> list[Advice]:
    """Return advice on parts of the recording unlike the others, of each kind the worst."""
    unlike: list[Unlike] = context["unlike"]
    out = []
    for what in dict.fromkeys(part.what for part in unlike):
        parts = [part for part in unlike if part.what == what]
        text = unlike_text(parts, context["sensor"], context["unit"], context["scale"])
        out.append(Advice(text, 1.0 - math.sqrt(1.0 - parts[0].gain)))
    return out


def _driving_advice(found: dict, unit: str) -> list[Advice]:
    """Return advice on lanes that are too far apart."""
    rmse, near = found["rmse_ut"], found["bands"][BANDS[0]]["rmse_ut"]
    unknown = found["expected"]["unknown_share"]

    if unknown > _UNKNOWN:
        text = (
            f"{100 * unknown:.0f} % of the test lies where the map hardly knows the field: errors there are "
            "alike along the way, and say little of sensor and poses; test on a drive that crosses what was "
            "mapped (--against), or drive lanes closer together"
        )
        return [Advice(text, None)]
    if near is None or not found["square_beyond"] > 0.5:
        return []

    # of white noise that is the same everywhere, two parts of the test differ by chance
    share = found["bands"][BANDS[0]]["n"] / found["n"]
    chance = _SURE * math.sqrt((1.0 - share) / (2.0 * share * found["n"]))
    if near < (1.0 - max(_WORTH, chance)) * rmse:
        text = (
            f"drive lanes closer together: {100 * found['square_beyond']:.0f} % of the squared error "
            f"lies more than 10 cm from where the map was driven; within, RMSE is {decimals(near, 2)} {unit}"
        )
        return [Advice(text, 1.0 - near / rmse)]
    return []


def _drift_text(drift: dict, unit: str) -> str:
    """Say by how much, how fast and when a sensor drifts, and what to do about it."""
    when = ", most at the beginning of each pass" if drift["warms_up"] else ""
    return (
        f"warm-up or drift: what the sensor tells at one place changes by about {decimals(drift['stddev'], 2)} {unit} "
        f"in {drift['seconds']:.2g} s of a pass{when}; let it warm up before the drive, keep it out of sun and "
        f"exhaust air; bias_time: {drift['bias_time']:.2g} says so from the first cell"
    )


def _others(found: dict, context: dict) -> list[Advice]:
    """Return advice on what no refit measures."""
    texts = [
        *_map_texts(context),
        *_error_texts(found, context["unit"]),
    ]
    return [Advice(text, None) for text in texts]


def _map_texts(context: dict) -> Iterator[str]:
    """Yield what the mapping itself has met: a changed field, lost measurements, gross errors."""
    changes = _unexplained(context["changes"], context["unlike"])
    if changes:
        places = ", ".join(f"({c['x']:.1f}, {c['y']:.1f})" for c in changes[:5])
        more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
        yield f"look at {places}{more} m: the field seems to have changed there; map these places again"

    dropped, used = context["dropped"], context["measurements"]
    fraction = dropped / max(1, dropped + used)
    if fraction > _DROPPED and context["explained"]:
        why = context["explained"][0]
        yield f"{100 * fraction:.1f} % of the measurements could not be used: {why}"

    fraction = context["gross"] / max(1, used)
    if fraction > _GROSS:
        yield (
            f"{100 * fraction:.1f} % of the measurements are gross errors (left out): look for a loose "
            "cable, a switching motor, a magnet that moves"
        )


def _unexplained(changes: list[dict], unlike: list[Unlike]) -> list[dict]:
    """Return the changes that were met where neither poses nor a changed field are named."""
    named = [part for part in unlike if part.what in (CHANGED, DISPLACED)]
    return [c for c in changes if not any(p.begin <= c["stamp"] <= p.end for p in named)]


def _error_texts(found: dict, unit: str) -> Iterator[str]:
    """Yield what the errors of the test say: they persist, are too large or small, or lie aside."""
    # where the map does not know the field, it expects errors that persist
    expected, correlated = found["expected"], found["autocorrelation"].get("0.5", 0.0)
    if correlated - max(0.0, expected["autocorrelation"]) > _CORRELATED:
        yield (
            f"errors persist along the way (correlation {correlated:.2f} after .5 s): they come from "
            "poses, attitude or passes too far apart rather than from the sensor's noise; a better "
            "sensor would not help, another pass would"
        )
    elif correlated > _CORRELATED and expected["unknown_share"] <= _UNKNOWN:
        yield (
            f"errors persist along the way (correlation {correlated:.2f} after .5 s), as the map expects "
            "between passes so far apart; a better sensor would not help, another pass would"
        )

    inside = found["coverage_levels"].get("95", 0.95)
    chance = _SURE * math.sqrt(0.95 * 0.05 / expected["witnesses"])
    if not 0.90 <= inside <= 0.985 and abs(inside - 0.95) > chance:
        size, why = (
            ("narrow", "the test is unlike what was mapped")
            if inside < 0.9
            else ("wide", "it has learned from harder driving than the test's")
        )
        yield (
            f"the map's intervals are too {size} for the test (95 % intervals hold {100 * inside:.0f} %): {why}"
        )

    bias = abs(found["bias"])
    if bias > max(0.3 * found["rmse_ut"], _SURE * expected["bias_stddev"]) and math.isfinite(bias):
        yield (
            f"all of the test reads {found['bias']:+.2f} {unit} relative to the map: temperature, a changed "
            "load, or a sensor that was switched off in between"
        )
