"""A sensor that rounds and tells changes alone: its numbers are those of the edges of its steps."""

import copy

import numpy as np
import pytest
import torch

from gp_mapping.analysis.sensor_faults import sensor_faults
from gp_mapping.core.types import Samples
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.repeated.on_change import OnChange
from gp_mapping.settings.mapping import MapSettings

SETTINGS = MapSettings(field_scale=1.0, field_unit="degC")
STEP = 0.5
K = np.arange(3000)
X = np.stack([0.02 * K, np.zeros(len(K))], 1)
FIELD = 21.0 + 4.0 * np.sin(0.011 * K) + 1.3 * np.cos(0.0067 * K)


def noisy(sd: float) -> np.ndarray:
    return FIELD + sd * np.random.default_rng(0).standard_normal(len(K))


def rounded(sd: float = 0.02, step: float = STEP) -> np.ndarray:
    return np.round(noisy(sd) / step) * step


def changes(values: np.ndarray, beat: int = 10**9) -> np.ndarray:
    """Which numbers differ from that before them, or come `beat` after the last one."""
    kept = [0]
    for k in range(1, len(values)):
        if values[k] != values[kept[-1]] or k - kept[-1] >= beat:
            kept.append(k)
    return np.array(kept)


def moved_by(values: np.ndarray, least: float) -> np.ndarray:
    """Which numbers differ by so much from that published before them."""
    kept = [0]
    for k in range(1, len(values)):
        if abs(values[k] - values[kept[-1]]) > least - 1e-9:
            kept.append(k)
    return np.array(kept)


def watched(values: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, OnChange]:
    """What the numbers are taken for."""
    watch = OnChange()
    y = [watch.correct(*each) for each in zip(values[kept].tolist(), X[kept].tolist())]
    return np.array(y), watch


@pytest.mark.parametrize("beat", [10**9, 600], ids=["changes_alone", "heartbeat"])
def test_numbers_at_edges_are_taken_back_to_them_and_it_is_said(beat):
    kept = changes(values := rounded(), beat)
    y, watch = watched(values, kept)
    known = y != values[kept]
    assert known.mean() > 0.5
    told, taken = np.abs(values[kept] - FIELD[kept])[known], np.abs(y - FIELD[kept])[known]
    assert told.mean() > 0.4 * STEP and taken.mean() < 0.1 * STEP
    assert watch.variance == pytest.approx(STEP**2 / 12.0)
    (note,) = watch.notes(1.0, "°C")
    assert "one step of 0.5 °C" in note and f"{known.sum()} numbers" in note


@pytest.mark.parametrize(("steps", "taken"), [(1.0, 0.5), (3.0, 3.0)])
def test_over_a_break_one_step_goes_on_and_any_other_number_stays(steps, taken):
    values = rounded()
    _, watch = watched(values, changes(values))
    last = values[-1]
    watch.begin_pass()
    assert watch.correct(last + steps * STEP, [60.0, 0.0]) == pytest.approx(last + taken * STEP)


def test_a_pass_that_begins_with_another_number_goes_on_from_no_step():
    """A robot that was carried to where it is warmer by three steps."""
    kept = changes(values := rounded())
    last, told = samples_of(kept, values), []
    for ends in (False, True):
        gathering = Gathering(SETTINGS)
        list(gathering.gather(last, Judge()))
        gathering.close()
        if ends:
            gathering.end_pass()
        beyond = float(last.y[-1]) + 3.0 * STEP
        one = Samples(last.x[-1:], last.y[-1:] * 0.0 + beyond, stamp=last.stamp[-1:] + 1.0)
        list(gathering.gather(one, Judge()))
        told.append(float(gathering.close().y) - beyond)
    assert told == pytest.approx([-0.5 * STEP, 0.0])


def test_numbers_of_a_deadband_stay_with_the_variance_of_half_a_step():
    kept = moved_by(values := rounded(0.01, 0.1), STEP)
    y, watch = watched(values, kept)
    assert (y == values[kept]).all() and watch.variance >= STEP**2 / 4.0
    assert "may all be half a step too high" in watch.notes(1.0, "°C")[0]


@pytest.mark.parametrize(
    "values",
    [
        rounded(),
        rounded()[::20],
        rounded(0.4),
        rounded(step=0.1)[::20],
        noisy(0.02),
        FIELD,
        np.full(len(K), 21.0),
        np.random.default_rng(0).poisson(1.0, len(K)).astype(float),
        np.random.default_rng(0).poisson(FIELD - 15.0).astype(float),
        np.float64(FIELD > 21.0),
        np.float64(noisy(0.5) > 21.0)[changes(np.float64(noisy(0.5) > 21.0))],
    ],
    ids=(
        "steady slow rough tenths fine noiseless constant few_counts counts yes_no switch_on_change"
    ).split(),
)
def test_nothing_is_said_of_others(values):
    y, watch = watched(values, np.arange(len(values)))
    assert (y == values).all() and not watch.notes(1.0, "") and watch.variance == 0.0
    assert watched(values, np.arange(10))[1].variance < np.inf


def samples_of(kept: np.ndarray, values: np.ndarray) -> Samples:
    return Samples(
        x=torch.tensor(X[kept]),
        y=torch.tensor(values[kept])[:, None],
        stamp=torch.tensor(0.1 * kept),
    )


class Judge:
    """Takes all samples."""

    class counts:
        entered = used = 0

    def is_credible(self, values):
        return True

    def look(self, *args):
        pass


def test_cells_have_it_however_they_come_also_after_a_restart_and_check_says_it():
    kept = changes(values := rounded())
    whole, first = (Gathering(SETTINGS) for _ in range(2))
    cells = list(whole.gather(samples_of(kept, values), Judge()))
    half = len(kept) // 2
    parts = list(first.gather(samples_of(kept[:half], values), Judge()))
    second = Gathering(SETTINGS)
    second.load_state_dict(first.state_dict())
    parts += list(second.gather(samples_of(kept[half:], values), Judge()))
    assert [float(c.y) for c in parts] == [float(c.y) for c in cells]
    least = STEP**2 / 12.0
    assert all(float(c.sensor_variance) >= float(c.count) * least for c in cells[6:])
    assert any("one step of 0.5" in note for note in whole.notes)
    faults = sensor_faults([samples_of(kept, values)], 1.0, "°C")
    assert [f.text for f in faults] == watched(values, kept)[1].notes(1.0, "°C")


# --- just where it is known: steps of one sensor, with the ways between them ----------------------
WAYS = [1.0, 2.0]  # m, in turn; a way back is told apart


def stepped(signs: list[float], back: float = 0.1, ways: list[float] = WAYS) -> list[OnChange]:
    """A sensor after each of these steps, in sizes of STEP; back: way of one that turns, 0: as others."""
    watch, y, x, before, out = OnChange(), 20.0, 0.0, 1.0, []
    watch.correct(y, [x, 0.0])
    for k, sign in enumerate(signs):
        y += sign * STEP
        x += back if back and sign * before < 0.0 else ways[k % 2]
        before = sign
        watch.correct(y, [x, 0.0])
        out.append(copy.deepcopy(watch))
    return out


EDGES = [1, 1, 1, 1, -1, 1, 1, -1, 1, 1, 1, 1, 1, 1, 1, 1]  # with four ways back


def test_four_steps_are_suspected_and_sixteen_known():
    variances = [each.variance for each in stepped(EDGES)]
    assert variances == [0.0] * 3 + [STEP**2 / 4.0] * 12 + [STEP**2 / 12.0]
    assert [each.moved for each in stepped(EDGES)] == [0] * 15 + [1]


@pytest.mark.parametrize(
    ("signs", "back", "ways", "variance"),
    [
        (EDGES, 0.49, WAYS, STEP**2 / 12.0),  # of a usual way of 2 m
        (EDGES, 0.51, WAYS, STEP**2 / 4.0),  # as long as a deadband's
        ([1] * 10 + [-1, 1, 1, 1, 1, -1], 0.1, WAYS, STEP**2 / 12.0),
        ([1] * 10 + [-1, 1, 1, 1, 1, 1], 0.1, WAYS, STEP**2 / 4.0),  # two ways back alone
        ([1, -1] * 8, 0.0, WAYS, 0.0),  # a switch
        ([1, 1, -1, -1] * 4, 0.1, WAYS, STEP**2 / 12.0),
        (EDGES, 1.0, [1.0, 1.1], 0.0),  # at a steady rate
        (EDGES, 0.2, [1.0, 1.3], STEP**2 / 12.0),
        ([*EDGES, 2, 1, 2, 1], 0.1, WAYS, STEP**2 / 12.0),
        ([*EDGES, 2, 2, 2, 1], 0.1, WAYS, 0.0),  # less than nine of ten
    ],
)
def test_what_is_known_of_a_sensor_by_its_steps(signs, back, ways, variance):
    assert stepped(signs, back, ways)[-1].variance == variance


def test_of_what_a_sensor_told_the_newest_64_steps_count():
    """Ten of another size go one by one; up to six of them are less than a tenth."""
    known = [each.variance > 0.0 for each in stepped([2] * 10 + EDGES * 5)]
    assert known.index(True, 20) == 67 and all(known[67:])
    beyond = [each.variance for each in stepped(EDGES * 4 + [2] * 7)]
    assert beyond[-2] > 0.0 and beyond[-1] == 0.0


def test_rounding_of_a_number_that_is_repeated_is_no_step():
    watches = stepped([*EDGES, 1e-12, 1])
    assert watches[-1].step == STEP and watches[-1].moved == 2


def test_a_pass_that_was_begun_before_a_restart_is_begun_after_it():
    watch, again = stepped(EDGES)[-1], OnChange()
    watch.begin_pass()
    again.load_state_dict(watch.state_dict())
    assert again.correct(90.0, [50.0, 0.0]) == 90.0 and again.moved == watch.moved
