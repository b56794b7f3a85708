"""An axis of a magnetometer that tells nothing is named, whichever way messages come; a live one is not."""

import numpy as np
import pytest
from intake_messages import drain, field_message, odometry_message
from scipy.spatial.transform import Rotation

from gp_mapping.intake import Intake
from gp_mapping.intake.columns import Columns
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.sensors.magnetic import MagneticField
from gp_mapping.settings.intake import IntakeSettings

N = 430
LEVEL = Rotation.identity(3 * N)
NAMED = "of the magnetometer's axes"


def fields(axes=(), value=0.0, step=0.0, rng=None):
    """A drive of N measurements, T, in steps of a converter, with some axes at one number."""
    rng = rng or np.random.default_rng(3)
    turn = np.linspace(0.0, 6.0, N)
    out = np.stack([20e-6 * np.cos(turn), -20e-6 * np.sin(turn), np.full(N, -42e-6)], 1)
    out += 0.3e-6 * rng.standard_normal(out.shape)
    out = step * np.round(out / step) if step else out
    out[:, list(axes)] = value
    return out


def notes_of(field, one_by_one, **settings):
    adaptor = MagneticField(IntakeSettings(**settings))
    if one_by_one:
        for i, each in enumerate(field):
            adaptor.values([adaptor.read(field_message(0.1 * i, each), i)], LEVEL[:1])
        return adaptor.notes
    names = [(f"magnetic_field.{a}", float) for a in "xyz"]
    rows = np.zeros(len(field), [*names, ("magnetic_field_covariance", float, 9)])
    for k, (name, _) in enumerate(names):
        rows[name] = field[:, k]
    for some in (rows[:70], rows[70:150], rows[150:]):
        read = adaptor.read_columns(Columns(some, {}))
        adaptor.values_of_rows(read, LEVEL[: len(some)])
    return adaptor.notes


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(
    ("axes", "value", "told", "remedy"),
    [
        ((2,), 0.0, "z told exactly 0 T in 400 of 400", "field_component: x or y"),
        ((2,), -43.1e-6, "z told exactly -4.31e-05 T in 400 of 400", "field_component: x or y"),
        ((0,), 0.0, "x told exactly 0 T in 400 of 400", "field_component: z"),
    ],
)
def test_an_axis_that_tells_nothing_is_named_with_what_can_be_mapped(
    one_by_one, axes, value, told, remedy
):
    (note,) = notes_of(fields(axes, value), one_by_one)
    assert note.startswith(NAMED) and told in note and remedy in note
    # what the remedy maps does not depend on that axis
    rest = remedy.split()[1]
    assert not notes_of(fields(axes, value), one_by_one, field_component=rest)


def test_an_axis_that_dies_on_the_way_is_named_by_how_much():
    field = np.concatenate([fields(), fields((1,), 7e-6)[:370], fields()])
    (note,) = notes_of(field, False)
    assert "y told exactly 7e-06 T in 200 of 1200 measurements" in note


@pytest.mark.parametrize("seed", range(10))
def test_axes_that_a_coarse_converter_holds_still_are_not_dead(seed):
    """In a uniform field, standing: steps of .15 to 5 noises."""
    rng = np.random.default_rng(seed)
    for step in (0.0, 0.05e-6, 0.3e-6, 0.6e-6, 1.5e-6, 4e-6):
        assert not notes_of(fields(step=step, rng=rng), False)


def test_the_intake_says_it_and_loses_nothing():
    intake = Intake(IntakeSettings())
    for i, field in enumerate(fields((2,))):
        intake.add_odometry(odometry_message(0.1 * i, (0.03 * i, 0.0, 0.0)))
        intake.add_measurement(field_message(0.1 * i, field))
    assert len(drain(intake)[0]) == N
    assert [w for w in intake.warnings if w.startswith(NAMED)]


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_sensor_of_the_strength_alone_is_none_with_broken_axes(one_by_one):
    """It writes what it tells into one axis and leaves the others 0."""
    assert notes_of(fields((0, 1)), one_by_one) == []
    assert notes_of(fields((0, 1), 3e-6), one_by_one), "but at another number they are broken"


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(
    ("axes", "settings", "said"),
    [
        ((1,), {}, "axis y is NaN (not measured), and field_component: norm does not"),
        ((0, 1), {}, "axes x and y are NaN (not measured), and field_component: norm does"),
        (
            (2,),
            {"field_component": "x"},
            "axis z is NaN (not measured), and field_component: x does",
        ),
    ],
)
def test_an_axis_that_is_not_measured_is_named_with_what_can_be_mapped(
    one_by_one, axes, settings, said
):
    """All was dropped as not_finite, and nothing said which axis it was."""
    adaptor = MagneticField(IntakeSettings(**settings))
    field = fields(axes, np.nan)[:20]
    if one_by_one:
        reasons = [adaptor.read(field_message(0.0, each), 0) for each in field]
    else:
        names = [(f"magnetic_field.{a}", float) for a in "xyz"]
        rows = np.zeros(20, [*names, ("magnetic_field_covariance", float, 9)])
        for k, a in enumerate("xyz"):
            rows[f"magnetic_field.{a}"] = field[:, k]
        reasons = list(adaptor.read_columns(Columns(rows, {})).refused.values())
    assert {reason.value for reason in reasons} == {"not_finite"} and len(reasons) == 20
    (note,) = adaptor.notes
    assert note.startswith(f"the magnetometer's {said}")

    if 2 not in axes:
        assert "field_component: z with rotate_field: false" in note
        remedied = MagneticField(IntakeSettings(field_component="z", rotate_field=False))
        assert not isinstance(remedied.read(field_message(0.0, field[0]), 0), DropReason)
    else:
        assert "have its driver write 0 there: field_component: x or y" in note


def test_single_messages_without_an_axis_are_a_glitch():
    adaptor = MagneticField(IntakeSettings())
    for each in fields((1,), np.nan)[:9]:
        adaptor.read(field_message(0.0, each), 0)
    assert adaptor.notes == []
