"""What a map of classes or counts cannot be told is dropped when it comes, whether or not its pose is there."""

import numpy as np
import pytest
import torch
from intake_messages import drain, field_message, odometry_message, scalar_message

from gp_mapping.core.likelihoods.outcomes import OutcomeJudge, make_judge
from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.columns import Columns
from gp_mapping.intake.messages import Reading
from gp_mapping.intake.sensors.adaptor import make_adaptor
from gp_mapping.intake.sensors.judged import JudgedAdaptor
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings

CLASSES = {"likelihood": "softmax", "classes": 3}
COUNTS = {"likelihood": "poisson"}


def intake_of(kind: dict, **settings) -> Intake:
    parameters = Parameters.build({"sensor": "scalar", **kind, **settings})
    return Intake(parameters.intake, judge=make_judge(parameters.map))


def label(t: float, value: float):
    return scalar_message(t, data=value)


def values(intake) -> list[float]:
    return drain(intake)[0][:, 3].tolist()


@pytest.mark.parametrize(
    "kind, good, bad", [(CLASSES, 2.0, (7.0, -1.0, 0.5, 3.0)), (COUNTS, 4.0, (-1.0, 2e9))]
)
def test_a_flood_of_wrong_ones_takes_no_room_from_those_that_wait(kind, good, bad):
    """A queue of 20, and between two good ones ten wrong; the poses come when all have come."""
    intake = intake_of(kind, queue_size=20)
    intake.add_odometry(odometry_message(0.0))
    for i in range(15):
        intake.add_measurement(label(0.1 * i, good))
        for k in range(10):
            intake.add_measurement(label(0.1 * i + 0.005 * (k + 1), bad[k % len(bad)]))
    assert intake.waiting == 14 and intake.drops.as_dict() == {"impossible": 150}
    for t in np.arange(0.1, 1.6, 0.1):
        intake.add_odometry(odometry_message(t))
    assert values(intake) == [good] * 15
    assert intake.received["scalar"] == 15 + 150 and intake.drops.measurements == 150


def test_a_wrong_one_moves_no_clock():
    """Its stamp is not heard: one of a day ahead makes no good measurement late, nor is it a time jump."""
    intake = intake_of(CLASSES)
    for t in (0.0, 0.1, 0.2):
        intake.add_odometry(odometry_message(t))
    for t, value in ((0.0, 1.0), (86400.0, 9.0), (0.1, 2.0), (-86400.0, -3.0), (0.2, 0.0)):
        intake.add_measurement(label(t, value))
    assert values(intake) == [1.0, 2.0, 0.0] and intake.drops.as_dict() == {"impossible": 2}


def test_what_turns_with_the_robot_is_left_to_the_map():
    """A component in the map's axes is not known before the pose is."""
    settings = MapSettings(**COUNTS)
    parameters = Parameters.build({"field_component": "x"}).intake
    intake = Intake(parameters, judge=make_judge(settings))
    for t in (0.0, 0.1):
        intake.add_odometry(odometry_message(t))
    intake.add_measurement(field_message(0.05, (-3e-5, 0.0, 0.0)))
    assert values(intake) == [-3e-5] and not intake.drops.as_dict()


def test_a_map_of_plain_values_judges_nothing():
    assert (
        make_judge(MapSettings()) is None
        and make_judge(MapSettings(likelihood="student_t")) is None
    )
    assert OutcomeJudge(MapSettings()).rejected_rows(np.array([[-1e9]])) == []


@pytest.mark.parametrize("wrong", [(), (0,), (99,), (0, 1, 2), (17, 64, 65, 98), tuple(range(100))])
def test_strangers_are_found_by_their_rows(wrong):
    y = np.arange(100.0)[:, None] % 3
    y[list(wrong)] = 0.5
    judge = OutcomeJudge(MapSettings(**CLASSES))
    assert judge.rejected_rows(y) == list(wrong) and judge.accepts_all(torch.tensor(y)) == (
        not wrong
    )


def test_columns_are_judged_as_each_by_itself():
    kind = np.dtype([("data", float)])
    y = np.array([0.0, 5.0, np.nan, 2.0, -1.0, 1.5, 1.0])
    adaptor = make_adaptor(IntakeSettings(sensor="scalar"), OutcomeJudge(MapSettings(**CLASSES)))
    together = adaptor.read_columns(Columns(y.astype(kind), {}))
    alone = [adaptor.read(scalar_message(None, data=v), 0) for v in y]
    assert together.refused == {
        i: one for i, one in enumerate(alone) if isinstance(one, DropReason)
    }
    assert sorted(together.refused) == [1, 2, 4, 5]
    left = np.array([0, 3, 6])
    assert adaptor.values_of_rows(together.select(left), None)[0].tolist() == [0.0, 2.0, 1.0]


def test_an_adaptor_that_reads_one_by_one_still_does():
    class Own:
        needs_rotation = False

        def read(self, msg, stamp):
            return Reading(stamp, (2.0 * msg.data,), None)

        def values(self, readings, turn):
            return np.array([r.values[0] for r in readings]), np.zeros(len(readings))

    adaptor = JudgedAdaptor(Own(), OutcomeJudge(MapSettings(**CLASSES)))
    assert adaptor.read(scalar_message(None, data=1.0), 7) == Reading(7, (2.0,), None)
    assert adaptor.read(scalar_message(None, data=2.0), 7) is DropReason.IMPOSSIBLE
    assert adaptor.read_columns(Columns(np.zeros(3, [("data", float)]), {})) is None
