"""`gp-mapping check`: what to mend on the robot first, each with what it would gain."""

from __future__ import annotations

import math
from typing import NamedTuple

from gp_mapping.analysis.calibration import Calibration
from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.metrics import BANDS
from gp_mapping.analysis.pass_biases import any_differs, biases_text
from gp_mapping.analysis.unlike import Unlike, unlike_text

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


def advise(
    c: Calibration | None, found: dict, tried: dict[str, float], context: dict
) -> list[Advice]:
    """Return advice: sensor faults, faults of the robot by gain, driving, what no refit measures.

    Where the sensor is dead nothing else is advised.

    Args:
        c: None of a map from which no calibration is made.
        found: `quality` of the test, and `expected`, what the map expects of it
            (`expected_errors`).
        tried: RMSE of `refits`, by name.
        context: unit, sensor, sensor_faults (list), gross, measurements, dropped, explained (list),
            changes (list), follow_changes, biases (`pass_biases`), drift (`found_drift`), noise (of
            one measurement, in the unit), scale (one unit in SI), unlike (`unlike_parts`).
    """
    rmse, unit, out = found["rmse_ut"], context["unit"], []

    def gain(name: str) -> float | None:
        """Return the fraction of the RMSE that the correction of that name saves."""
        # Without any error there is nothing to gain.
        return 1.0 - rmse / tried[name] if tried.get(name) else None

    def spared(name: str) -> str:
        """Say what the correction of that name saves."""
        g = gain(name)
        if g is None:
            return ""
        if abs(g) < 0.005:
            return f"; here the map is as good without this correction ({decimals(tried[name], 2)} {unit})"
        return (
            f"; the map corrects it: RMSE {decimals(rmse, 2)} {unit} and {decimals(tried[name], 2)} {unit} without, "
            + (f"{100 * g:.0f} % less" if g > 0 else "so here the correction did not help")
        )

    if c is not None and c.has_offset and not c.offset_assumed and abs(c.offset) >= 0.005:
        later = "later" if c.offset > 0 else "earlier"
        arm = (
            ""
            if c.separable
            else (
                f", or measure whether the sensor sits {100 * abs(c.lag):.1f} cm "
                f"{'behind' if c.lag > 0 else 'ahead of'} the point that the pose means"
            )
        )
        # seconds of a thermometer or of a gas sensor look like a late stamp
        if context["sensor"] != "magnetometer" and c.offset > _SLOW:
            arm += (
                "; or the sensor itself takes that long, or longer, to follow the field (thermometer, gas): then "
                "set response_time to its time constant, and drive slowly"
            )
        by = f"{abs(c.offset):.3f} ± {max(c.offset_stddev, 0.001):.3f} s {later}"
        out.append(
            Advice(
                f"synchronise the clocks: the {context['sensor']}'s stamps are {by} than the pose's{arm}"
                f"{spared('without_offset')}",
                gain("without_offset"),
            )
        )

    if c is not None and c.has_body_field:
        out.append(
            Advice(
                f"calibrate the {context['sensor']} (hard iron) or mount it further from motors and steel: "
                f"{decimals(c.turning / c.scale, 2)} ± "
                f"{decimals(c.turning_stddev / c.scale, 2)} {unit} turns with the robot"
                f"{spared('without_heading')}",
                gain("without_heading"),
            )
        )

    arm = tried.get("with_lever_arm")
    if arm is not None and rmse > 0.0 and 1.0 - arm / rmse > _WORTH:
        out.append(
            Advice(
                "tell where the sensor sits (sensor_offset_x, sensor_offset_y), or set learn_lever_arm: "
                f"RMSE {decimals(arm, 2)} {unit} with a learned lever arm, {decimals(rmse, 2)} {unit} now",
                1.0 - arm / rmse,
            )
        )

    if context["drift"] is not None:
        out.append(
            Advice(
                f"{_drift_text(context['drift'], unit)}{spared('without_bias')}",
                gain("without_bias"),
            )
        )
    elif any_differs(context["biases"], context["noise"]):
        out.append(
            Advice(
                "mount, warm-up or drift: from pass to pass the sensor reads differently ("
                f"{biases_text(context['biases'], unit)}); let it warm up, fasten it where nothing moves, keep "
                f"iron off it{spared('without_bias')}",
                gain("without_bias"),
            )
        )

    unlike: list[Unlike] = context["unlike"]
    for what in dict.fromkeys(part.what for part in unlike):  # of each kind the worst
        parts = [part for part in unlike if part.what == what]
        text = unlike_text(parts, context["sensor"], unit, context["scale"])
        out.append(Advice(text, 1.0 - math.sqrt(1.0 - parts[0].gain)))

    # What follows has no refit to be weighed by, or is no fault: it stays behind the sorted ones.
    out.sort(key=lambda a: -(a.gain or 0.0))

    near, unknown = found["bands"][BANDS[0]]["rmse_ut"], found["expected"]["unknown_share"]
    if unknown > _UNKNOWN:
        out.append(
            Advice(
                f"{100 * unknown:.0f} % of the test lies where the map hardly knows the field: errors there are "
                "alike along the way, and say little of sensor and poses; test on a drive that crosses what was "
                "mapped (--against), or drive lanes closer together",
                None,
            )
        )
    elif near is not None and found["square_beyond"] > 0.5 and near < (1 - _WORTH) * rmse:
        out.append(
            Advice(
                f"drive lanes closer together: {100 * found['square_beyond']:.0f} % of the squared error "
                f"lies more than 10 cm from where the map was driven; within, RMSE is {decimals(near, 2)} {unit}",
                1.0 - near / rmse,
            )
        )

    faults = context["sensor_faults"]
    sensor_advice = [Advice(fault.text, None) for fault in faults]
    return (
        sensor_advice
        if any(fault.dead for fault in faults)
        else sensor_advice + out + _others(found, context)
    )


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
    out, unit = [], context["unit"]

    if context["changes"]:
        places = ", ".join(f"({c['x']:.1f}, {c['y']:.1f})" for c in context["changes"][:5])
        more = f" and {len(context['changes']) - 5} more" if len(context["changes"]) > 5 else ""
        out.append(
            Advice(
                f"look at {places}{more} m: the field seems to have changed there; map these places again",
                None,
            )
        )

    fraction = context["dropped"] / max(1, context["dropped"] + context["measurements"])
    if fraction > _DROPPED and context["explained"]:
        why = context["explained"][0]
        out.append(
            Advice(f"{100 * fraction:.1f} % of the measurements could not be used: {why}", None)
        )

    fraction = context["gross"] / max(1, context["measurements"])
    if fraction > _GROSS:
        out.append(
            Advice(
                f"{100 * fraction:.1f} % of the measurements are gross errors (left out): look for a loose "
                "cable, a switching motor, a magnet that moves",
                None,
            )
        )

    # where the map does not know the field, it expects errors that persist
    expected, correlated = found["expected"], found["autocorrelation"].get("0.5", 0.0)
    if correlated - max(0.0, expected["autocorrelation"]) > _CORRELATED:
        out.append(
            Advice(
                f"errors persist along the way (correlation {correlated:.2f} after .5 s): they come from "
                "poses, attitude or passes too far apart rather than from the sensor's noise; a better "
                "sensor would not help, another pass would",
                None,
            )
        )
    elif correlated > _CORRELATED and expected["unknown_share"] <= _UNKNOWN:
        out.append(
            Advice(
                f"errors persist along the way (correlation {correlated:.2f} after .5 s), as the map expects "
                "between passes so far apart; a better sensor would not help, another pass would",
                None,
            )
        )

    inside = found["coverage_levels"].get("95", 0.95)
    chance = _SURE * math.sqrt(0.95 * 0.05 / expected["witnesses"])
    if not 0.90 <= inside <= 0.985 and abs(inside - 0.95) > chance:
        z = "narrow" if inside < 0.9 else "wide"
        out.append(
            Advice(
                f"the map's intervals are too {z} for the test (95 % intervals hold {100 * inside:.0f} %): "
                + (
                    "the test is unlike what was mapped"
                    if inside < 0.9
                    else "it has learned from harder driving than the test's"
                ),
                None,
            )
        )

    bias = abs(found["bias"])
    if bias > max(0.3 * found["rmse_ut"], _SURE * expected["bias_stddev"]) and math.isfinite(bias):
        out.append(
            Advice(
                f"all of the test reads {found['bias']:+.2f} {unit} beside the map: temperature, a changed "
                "load, or a sensor that was switched off in between",
                None,
            )
        )
    return out
