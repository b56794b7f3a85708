"""By how much the passes of a map differ as wholes: mount, warm-up or drift of the sensor."""

from __future__ import annotations

from gp_mapping.mapping.session import MapSession

__all__ = ["compared", "differ", "pass_biases"]

_SURE = 3.0  # standard deviations by which a pass differs from the mean of all
_NAMED = 6  # passes that are named one by one


def pass_biases(session: MapSession) -> list[dict]:
    """Of each pass whose constant is kept apart: pass (from 1; None: another robot's), stamp (s), mean, stddev, apart.

    mean and stddev in the field's unit; of three axes the largest mean; apart: standard deviation of its difference
    from the mean of all. A pass that drifts has several (`bias_time`).
    """
    scale, began = session.settings.field_scale, session.bias_numbers.began
    told = session.map.biases() if session.map.started else []
    out = []
    for bias in told:
        number, stamp = began.get(bias.number, (None, None))
        k = int(bias.mean.abs().argmax())
        out.append(
            {
                "pass": number,
                "stamp": stamp,
                "mean": float(bias.mean[k]) / scale,
                "stddev": float(bias.stddev[k]) / scale,
                "apart": float(bias.stddev_apart[k]) / scale,
            }
        )
    return out


def differ(biases: list[dict], noise: float) -> bool:
    """Whether a pass differs from the mean of all by more than what is not known of that, and than the noise.

    noise: standard deviation of one measurement, in the field's unit.
    """
    if len(biases) < 2:
        return False
    middle = sum(b["mean"] for b in biases) / len(biases)
    return any(abs(b["mean"] - middle) > max(_SURE * b["apart"], noise) for b in biases)


def compared(biases: list[dict], unit: str) -> str:
    """Each pass ± its standard deviation; of many, those that lie farthest off."""
    far = sorted(biases, key=lambda b: -abs(b["mean"]))[:_NAMED]
    said = [
        f"{'another robot' if b['pass'] is None else 'pass ' + str(b['pass'])} {b['mean']:+.2f} ± "
        f"{b['stddev']:.2f} {unit}"
        for b in sorted(far, key=lambda b: biases.index(b))
    ]
    more = len(biases) - len(far)
    return ", ".join(said) + (f", and {more} that differ less" if more else "")
