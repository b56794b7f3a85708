"""Numbers at the ends of what a sensor can tell, by message and by columns; and what is taken in again."""

import math
from itertools import product
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
from intake_messages import field_message, header, odometry_message

from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.columns import Columns
from gp_mapping.intake.sensors.adaptor import make_adaptor
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.sensors import SENSOR_TYPES


def compared(adaptor, messages, names):
    """What each message is read as: its reading, or why it cannot be used; by columns, too."""
    kind = [(name, float, np.shape(of(messages[0]))) for name, of in names.items()]
    rows = np.array([tuple(of(m) for of in names.values()) for m in messages], kind)
    together = adaptor.read_columns(Columns(rows, {}))
    out = []
    for i, message in enumerate(messages):
        one = adaptor.read(message, 5)
        assert together.refused.get(i) is (one if isinstance(one, DropReason) else None), message
        if not isinstance(one, DropReason):
            assert repr(together.row(i, 5)) == repr(one), message  # NaN is NaN
        out.append(one)
    return out


@pytest.mark.parametrize("sensor", ["temperature", "relative_humidity", "range"])
@pytest.mark.parametrize("bounds", [(0.0, 0.0), (0.25, 0.75)])
def test_a_number_is_good_from_its_lowest_to_its_highest(sensor, bounds):
    kind = SENSOR_TYPES[sensor]
    low, high = bounds if any(bounds) else (kind.low, kind.high)
    adaptor = make_adaptor(IntakeSettings(sensor=sensor, min_value=bounds[0], max_value=bounds[1]))
    high = min(high, 1e12)
    values = [low, low - 0.01, high, high * 1.01 + 0.01, 0.5 * (low + high), math.nan, math.inf]
    messages = [Namespace(**{kind.value: v}) for v in values]
    found = compared(adaptor, messages, {kind.value: lambda m: getattr(m, kind.value)})
    good, finite = [not isinstance(each, DropReason) for each in found], [True] * 5 + [False] * 2
    assert good[:3] == [True, False, True] and good[4] and not any(good[5:])
    assert not good[3] or kind.high > 1e12
    for each, is_finite in zip(found, finite):
        if isinstance(each, DropReason):
            assert each is (DropReason.OUT_OF_RANGE if is_finite else DropReason.NOT_FINITE)


def test_a_message_may_have_a_narrower_range_of_its_own():
    adaptor = make_adaptor(IntakeSettings(sensor="range", min_value=0.1, max_value=20.0))
    names = {n: lambda m, n=n: getattr(m, n) for n in ("range", "min_range", "max_range")}
    ends = [(0.0, 0.0), (1.0, 5.0), (math.nan, 5.0), (1.0, math.nan), (0.0, 5.0), (0.0, 90.0)]
    values = [0.05, 0.1, 0.5, 1.0, 5.0, 5.1, 20.0, 21.0]
    messages = [
        Namespace(range=v, min_range=low, max_range=high)
        for v, (low, high) in product(values, ends)
    ]
    found = compared(adaptor, messages, names)
    for message, each in zip(messages, found):
        low, high = message.min_range, message.max_range
        if math.isnan(low) or math.isnan(high) or low == high == 0.0:
            low, high = 0.1, 20.0
        inside = max(low, 0.1) <= message.range <= min(high, 20.0)
        assert (each is DropReason.OUT_OF_RANGE) != inside


def test_a_variance_is_at_most_the_square_of_the_range():
    kind = SENSOR_TYPES["relative_humidity"]
    adaptor = make_adaptor(IntakeSettings(sensor="relative_humidity"))
    most = (kind.high - kind.low) ** 2
    variances = [0.0, -1.0, -0.5, most, 1.01 * most, math.nan, math.inf, 0.01, -2.0]
    messages = [Namespace(relative_humidity=0.5, variance=v) for v in variances]
    names = {n: lambda m, n=n: getattr(m, n) for n in ("relative_humidity", "variance")}
    found = compared(adaptor, messages, names)
    assert [None if r is DropReason.BAD_COVARIANCE else r.covariance for r in found] == [
        None,
        None,
        None,
        (most,),
        None,
        None,
        None,
        (0.01,),
        None,
    ]
    bad = [i for i, each in enumerate(found) if each is DropReason.BAD_COVARIANCE]
    assert bad == [2, 4, 5, 6, 8]
    assert adaptor.read_columns(Columns(np.zeros(2, [("other", float)]), {})) is None


@pytest.mark.parametrize("component", ["norm", "x", "xyz"])
@pytest.mark.parametrize("rotate", [True, False])
def test_a_field_is_judged_by_what_of_it_is_mapped(component, rotate):
    settings = IntakeSettings(field_component=component, rotate_field=rotate, max_field=1e-4)
    adaptor = make_adaptor(settings)
    nan = math.nan
    fields = [
        (6e-5, 0.0, 8e-5),  # just the limit
        (6e-5, 0.0, 8.1e-5),
        (1.01e-4, 0.0, 0.0),
        (9e-5, 9e-5, 9e-5),
        (nan, 1e-5, 1e-5),
        (1e-5, nan, 1e-5),
        (1e-5, 1e-5, math.inf),
        (3e-5, 0.0, 0.0),
    ]
    known = np.diag([1e-16, 2e-16, 3e-16])
    stated = [known, 0.0 * known, -np.ones((3, 3)), known + nan, 0.99e-8 + 0 * known]
    stated += [1.01e-8 + 0 * known, known - 2e-16, np.eye(3) * [1, 1, -1] * 1e-16]
    stated += [np.ones((3, 3)) - np.eye(3)]
    messages = [
        field_message(0.0, field, covariance=covariance.ravel())
        for field, covariance in product(fields, stated)
    ]
    names = {f"magnetic_field.{a}": lambda m, a=a: getattr(m.magnetic_field, a) for a in "xyz"}
    names["magnetic_field_covariance"] = lambda m: m.magnetic_field_covariance
    found = compared(adaptor, messages, names)
    alone = component == "x" and not rotate
    whole = [found[i * len(stated)] for i in range(len(fields))]
    reasons = [each if isinstance(each, DropReason) else None for each in whole]
    out, none = DropReason.OUT_OF_RANGE, DropReason.NOT_FINITE
    assert reasons == (
        [None, None, out, None, none, None, None, None]
        if alone
        else [None, out, out, out, none, none, none, None]
    )
    of_one = found[-len(stated) :]
    bad = [each is DropReason.BAD_COVARIANCE for each in of_one]
    assert bad == [False, False, False, True, False, True, True, True, True]
    assert of_one[0].covariance == tuple(known.ravel())
    assert of_one[1].covariance is None and of_one[2].covariance is None
    if alone:  # of an axis that was not measured nothing is known
        assert found[5 * len(stated)].covariance == (1e-16, 0, 0, 0, 0, 0, 0, 0, 3e-16)
    assert adaptor.read_columns(Columns(np.zeros(2, [("other", float)]), {})) is None


def fix_message(seconds, latitude):
    return Namespace(
        header=header(round(seconds * 1e9), "gps"),
        status=Namespace(status=0),
        latitude=latitude,
        longitude=11.0,
    )


def test_all_that_came_before_the_frame_was_known_is_taken_in_again():
    """Two poses in another frame came first; each kind of message counts as if they had not decided."""

    def fed(**given):
        intake = Intake(IntakeSettings(fix_topic="fix", **given))
        for i in range(2):
            intake.add_pose_message(odometry_message(0.02 * i, frame="other"))
        restarts = 0
        for i in range(2, 60):
            t = 0.02 * i
            intake.add_measurement(field_message(t, (0.0, 0.0, (40 + i) * 1e-6)))
            intake.add_pose_message(odometry_message(t, (t, 0.0, 0.0)))
            if i == 4:
                intake.add_pose(round((t + 0.01) * 1e9), (t, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
                for role in ("measurement", "pose", "fix"):
                    intake.add_unreadable(role, f"a {role} is cut off")
            if i == 5:
                intake.add_fix(fix_message(t - 0.01, 48.0))
                intake.add_fix(fix_message(t, 148.0))
            if i == 6:
                intake.time_jump()
            restarts += intake.take_restart()
        rows = [np.column_stack([s.stamp, s.x, s.y]) for _, s in intake.batches(finish=True)]
        said = [text for text in intake.warnings if "frame" not in text]
        seen = intake.received, intake.drops.as_dict(), said, intake.fixes.take(True)
        return np.vstack(rows), seen, restarts, intake

    (rows, seen, _, intake), (wanted, named, none, _) = fed(), fed(odometry_frame="odom")
    np.testing.assert_array_equal(rows, wanted)
    assert seen == named and intake.frame == "odom" and none == 0
    assert seen[0] == {"magnetic_field": 59, "odometry": 61, "fix": 3}
    assert seen[1]["unreadable"] == seen[1]["pose_unreadable"] == seen[1]["fix_unreadable"] == 1
    assert seen[1]["fix_invalid"] == 1 and len(seen[2]) == 3
