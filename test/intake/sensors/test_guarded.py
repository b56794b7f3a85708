"""An adaptor of somebody else that fails: its measurement is counted and named, the others are mapped."""

import re
import threading
from itertools import count

import numpy as np
import pytest
from intake_messages import drain, odometry_message, scalar_message

from gp_mapping.errors import UserError
from gp_mapping.intake import Intake
from gp_mapping.intake.messages import Reading
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.sensors import SENSOR_TYPES, SensorType, register_sensor

FAILED = r"the adaptor of sensor own\d+ failed in "


class Own:
    """Takes `data` as it is."""

    needs_rotation = False

    def __init__(self, settings):
        pass

    def read(self, msg, stamp):
        return Reading(stamp, (msg.data,), None)

    def values(self, readings, turn):
        return np.array([r.values[0] for r in readings]), np.zeros(len(readings))


NUMBER = count()


@pytest.fixture(autouse=True)
def no_sensor_left(monkeypatch):
    """The sensors of these tests are gone after them; nothing public takes one off the table."""
    parts = dict(SENSOR_TYPES._parts)  # noqa: SLF001
    monkeypatch.setattr(SENSOR_TYPES, "_parts", parts)


def intake_with(adaptor, value=None):
    """An intake whose sensor has this adaptor."""
    name = f"own{next(NUMBER)}"
    kind = SensorType(("a/msg/B",), value, "u", -1e3, 1e3, 1.0, "u", adaptor=adaptor)
    register_sensor(name, kind)
    return Intake(IntakeSettings(sensor=name))


def through(intake, values):
    """The values that come out, of measurements every .1 s along poses."""
    for i, value in enumerate(values):
        intake.add_odometry(odometry_message(0.1 * i, (0.1 * i, 0.0, 0.0)))
        intake.add_measurement(scalar_message(0.1 * i, data=value))
    return drain(intake)[0][:, 3].tolist()


class RaisesInRead(Own):
    def read(self, msg, stamp):
        return Reading(stamp, (1.0 / msg.data,), None)


class NothingAtAll(Own):
    def read(self, msg, stamp):
        return None if msg.data == 0.0 else super().read(msg, stamp)


class TwoNumbers(Own):
    def read(self, msg, stamp):
        return Reading(stamp, (msg.data,) * (2 if msg.data == 0.0 else 1), None)


@pytest.mark.parametrize("adaptor", [RaisesInRead, NothingAtAll, TwoNumbers])
def test_what_read_fails_on_is_counted_and_the_others_are_mapped(adaptor):
    """It ended the command with "a fault of this program"; live, the measurement was in no count."""
    intake = intake_with(adaptor)
    assert through(intake, [1.0, 0.0, 1.0, 0.0, 1.0]) == [1.0] * 3
    assert intake.drops.as_dict() == {"adaptor_failed": 2}
    assert intake.received[intake.settings.sensor] == 5
    (note,) = [text for text in intake.warnings if re.match(FAILED, text)]
    assert re.match(FAILED + "read: .* are left out$", note)


class RaisesInValues(Own):
    def values(self, readings, turn):
        y, variance = super().values(readings, turn)
        if (y == 0.0).any():
            raise LookupError("no table for 0")
        return y, variance


class Negative(Own):
    def values(self, readings, turn):
        y, variance = super().values(readings, turn)
        return y, np.where(y == 0.0, -1.0, variance)


class WrongShape(Own):
    def values(self, readings, turn):
        y, variance = super().values(readings, turn)
        return (y[:-1] if (y == 0.0).any() else y), variance


@pytest.mark.parametrize("adaptor", [RaisesInValues, Negative, WrongShape])
def test_what_values_fails_on_does_not_cost_its_batch(adaptor):
    intake = intake_with(adaptor)
    assert through(intake, [0.0, 2.0, 3.0, 0.0, 5.0]) == [2.0, 3.0, 5.0]
    assert intake.drops.as_dict() == {"not_placeable": 2}
    assert any(re.match(FAILED + "values: ", text) for text in intake.warnings)


def test_different_exceptions_fill_no_memory():
    class Talkative(Own):
        def read(self, msg, stamp):
            raise RuntimeError(f"{stamp} " * 100_000)

    intake = intake_with(Talkative)
    through(intake, range(20))
    notes = [text for text in intake.warnings if re.match(FAILED, text)]
    assert len(notes) == 3 and max(map(len, notes)) < 400
    assert intake.drops.as_dict() == {"adaptor_failed": 20}


def test_a_field_that_the_messages_lack_is_named():
    intake = intake_with(None, value="volts")
    assert through(intake, [1.0, 2.0]) == []
    assert any("has no `volts`" in text for text in intake.warnings)


@pytest.mark.parametrize(
    "make", [lambda settings: 1 / 0, lambda settings: object(), "no.such:thing"]
)
def test_an_adaptor_that_cannot_be_made_is_one_sentence(make):
    with pytest.raises(UserError, match=r"^sensor 'own\d+': its adaptor .* cannot be made: \w+: "):
        intake_with(make)


def test_an_adaptor_that_calls_exit_in_the_thread_of_the_map_costs_its_measurement():
    class Leaves(Own):
        def read(self, msg, stamp):
            return exit(1) if msg.data > 20.0 else super().read(msg, stamp)

    intake = intake_with(Leaves)
    with pytest.raises(SystemExit):  # in the main thread it is what a signal asks for
        intake.add_measurement(scalar_message(1.0, data=21.0))

    def take():
        for value in (21.0, 20.0):
            intake.add_measurement(scalar_message(value, data=value))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert intake.drops.as_dict() == {"adaptor_failed": 1} and intake.waiting == 1
    assert any("SystemExit: 1" in text for text in intake.warnings)
