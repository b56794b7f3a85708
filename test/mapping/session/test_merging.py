"""Two sessions' counts add up, and the robot is where the session that takes the other in has it."""

import numpy as np
import pytest

from gp_mapping import MapSettings, Samples
from gp_mapping.core.field_map import FieldMap
from gp_mapping.errors import NumericalError
from gp_mapping.mapping.session import MapSession

GIVEN = {
    "model": "exact",
    "lengthscale": 1.0,
    "signal_stddev": 5e-6,
    "noise_stddev": 5e-7,
    "constant_stddev": 1e-5,
    "learn_hyperparameters": False,
    "cell_length": 0.2,
}


def lane(y: float, wild: tuple[int, ...] = (), settings: dict = GIVEN) -> MapSession:
    """Of 6 m along x, a measurement each 2 cm."""
    x = np.stack([0.02 * np.arange(301), np.full(301, y)], 1)
    values = 45.0 + np.sin(x[:, 0]) + 0.2 * np.random.default_rng(int(y)).standard_normal(301)
    values[list(wild)] = 1e5
    session = MapSession(MapSettings(**settings))
    session.ingest(Samples(x, 1e-6 * values, stamp=0.1 * np.arange(301) + 100.0 * y))
    session.flush()
    return session


def test_the_counts_of_both_add_up():
    refuse = pytest.MonkeyPatch()
    update = type(lane(0.0).map).update

    def refuses(self: FieldMap, batch: Samples):
        if float(batch.x[0, 0]) > 5.5:
            raise NumericalError("a pivot is NaN")
        return update(self, batch)

    refuse.setattr(type(lane(0.0).map), "update", refuses)
    one, other = lane(0.0, (70, 150)), lane(1.0, (40, 130, 220))
    refuse.undo()
    before = [session.report() for session in (one, other)]
    lost = one.lost + other.lost
    assert [report["gross_errors"] for report in before] == [2, 3] and lost > 20
    one.merge(other)
    after = one.report()
    for name in ("samples", "cells", "gross_errors", "refused_samples"):
        assert after[name] == before[0][name] + before[1][name], name
    assert one.lost == lost and MapSession.from_state_dict(one.state_dict()).gross_errors == 5


def test_the_robot_stays_where_it_was():
    one, other = lane(0.0, settings=GIVEN | {"window": 2.0}), lane(8.0)
    place, drawn = one.position, one.render()
    assert place == (6.0, 0.0)
    one.merge(other)
    resumed = MapSession.from_state_dict(one.state_dict())
    assert one.position == resumed.position == place and one.position == (6.0, 0.0)
    after = one.render()
    assert after.origin[1] + after.resolution * after.shape[0] < 4.0, "drawn about where it is"
    assert after.origin[0] == pytest.approx(drawn.origin[0], abs=0.3)

    one.ingest(Samples(np.array([[6.1, 0.3]]), np.array([[4.5e-5]]), stamp=[1000.0]))
    assert one.position == (6.1, 0.3)


@pytest.mark.parametrize("part", ["map", "scores", "fixes"])
def test_a_merge_that_fails_halfway_changes_nothing(monkeypatch, part):
    one, other = lane(0.0), lane(1.0)
    one.break_pass()
    x = np.array([[1.0, 0.1], [3.0, 0.9]])
    before, mean = one.report(), one.predict(x).mean

    def fails(*_):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        name = "merge" if part == "map" else "join"
        patched.setattr(type(getattr(one, part)), name, fails)
        with pytest.raises(RuntimeError, match="out of memory"):
            one.merge(other)
    assert one.report() == before and one.predict(x).mean.equal(mean)
    one.merge(other)
    assert one.report()["samples"] == 2 * before["samples"]


def test_what_was_left_out_of_a_sensor_that_had_not_begun_is_said_of_both_maps():
    """Of the other one it was lost, though its measurements are counted as left out."""
    one, other, third = lane(0.0), lane(1.0, tuple(range(80))), lane(2.0)
    (note,) = other.beginning_notes
    assert "had not begun to measure" in note and not one.beginning_notes
    one.merge(other)
    resumed = MapSession.from_state_dict(one.state_dict())
    for session in (one, resumed):
        assert [f"of a map that was merged into this one: {note}"] == session.beginning_notes
        assert session.beginning_notes[0] in session.warnings
    third.merge(resumed)
    assert third.beginning_notes == one.beginning_notes, "said once, however far it has come"
    other.merge(one)
    assert other.beginning_notes == [note, *one.beginning_notes]

    old = one.state_dict()
    del old["first_values"]["notes"]
    for kept, told in (("so it was", ["so it was"]), ("", [])):
        old["first_values"]["note"] = kept  # as in files of before
        assert MapSession.from_state_dict(old).beginning_notes == told
