"""By how much the passes of a map differ as wholes: mount, warm-up or drift of the sensor."""

from __future__ import annotations

from gp_mapping.analysis.digits import decimals
from gp_mapping.mapping.session import MapSession

__all__ = ["any_differs", "biases_text", "found_drift", "pass_biases"]

_SURE = 3.0  # standard deviations by which a pass differs from the mean of all
_NAMED = 6  # passes that are listed one by one


def pass_biases(session: MapSession) -> list[dict]:
    """Return a record of each pass whose constant is estimated.

    Keys are pass (from 1; None: another robot's), stamp (s), mean, stddev and apart. mean and
    stddev are in the field's unit; of three axes those of the largest mean. apart is the standard
    deviation of its difference from the mean of all. A pass that drifts has several records
    (`bias_time`).
    """
    scale, began = session.settings.field_scale, session.bias_numbers.began
    biases = session.map.biases() if session.map.started else []
    out = []

    for bias in biases:
        number, stamp = began.get(bias.number, (None, None))
        axis = int(bias.mean.abs().argmax())
        out.append(
            {
                "pass": number,
                "stamp": stamp,
                "mean": float(bias.mean[axis]) / scale,
                "stddev": float(bias.stddev[axis]) / scale,
                "apart": float(bias.stddev_apart[axis]) / scale,
            }
        )
    return out


def found_drift(session: MapSession) -> dict | None:
    """Return by how much and how fast the sensor was found to drift; None: it was not.

    Keys are stddev (the field's unit), seconds, warms_up (whether it decays from the beginning of
    each pass), gain (nats) and bias_time (s).
    """
    drift = session.drift.drift
    if drift is None:
        return None
    return {
        "stddev": drift.stddev / session.settings.field_scale,
        "seconds": drift.seconds,
        "warms_up": drift.warms_up,
        "gain": drift.gain,
        "bias_time": session.drift.bias_time,
    }


def any_differs(biases: list[dict], noise: float) -> bool:
    """Return whether a pass clearly differs from the mean of all.

    By more than three standard deviations of that difference, and by more than the noise.

    Args:
        biases: as of pass_biases.
        noise: standard deviation of one measurement, in the field's unit.
    """
    if len(biases) < 2:
        return False
    middle = sum(b["mean"] for b in biases) / len(biases)
    return any(abs(b["mean"] - middle) > max(_SURE * b["apart"], noise) for b in biases)


def biases_text(biases: list[dict], unit: str) -> str:
    """Return each pass ± its standard deviation as text; of many, those that differ most.

    Args:
        biases: as of pass_biases.
        unit: of its numbers.
    """
    far = sorted(biases, key=lambda b: -abs(b["mean"]))[:_NAMED]

    # Chosen by size, listed in their own order.
    texts = [
        f"{'another robot' if b['pass'] is None else 'pass ' + str(b['pass'])} {decimals(b['mean'], 2, '+')} ± "
        f"{decimals(b['stddev'], 2)} {unit}"
        for b in sorted(far, key=lambda b: biases.index(b))
    ]

    omitted = len(biases) - len(far)
    return ", ".join(texts) + (f", and {omitted} that differ less" if omitted else "")
