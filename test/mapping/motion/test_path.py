"""The path: its length without the pose's noise, its bounds, and a bounded trace."""

import copy
import math

import numpy as np
import pytest

from gp_mapping.mapping.motion import path as path_module
from gp_mapping.mapping.motion.path import Path


def test_length_and_bounds_of_a_known_way():
    path = Path(0.1)
    for x in np.linspace(0, 3, 301):
        path.add([x, -1.0])
    for y in np.linspace(-1, 1, 201):
        length = path.add([3.0, y])
    assert length == path.length == pytest.approx(5.0, abs=0.02)
    assert path.bounds() == ([0.0, -1.0], [3.0, 1.0])
    points = path.points().numpy()
    assert 45 <= len(points) <= 51
    assert np.linalg.norm(np.diff(points, axis=0), axis=1).min() >= 0.1 * (1 - 1e-9)


def test_a_standing_robot_with_pose_noise_drives_nowhere():
    path, rng = Path(0.1), np.random.default_rng(0)
    for _ in range(5000):
        path.add(list(rng.normal(0, 0.001, 2)))
    assert path.length < 0.05 and len(path.points()) == 1


def test_a_robot_that_stood_and_then_drives_leaps_for_a_moment_only():
    """What the pose of a standing robot moves by, a millimetre, is no measure for a slow sensor on a fast robot."""
    path, rng = Path(0.1), np.random.default_rng(0)
    for _ in range(2000):
        path.add(list(rng.normal(0, 0.001, 2)))
    for i in range(1000):
        path.add([0.6 * i, 0.0])
    assert path.length > 400.0 and not path.starts()[-400:].any()


def test_the_way_between_passes_is_not_driven():
    path = Path(0.1)
    path.add([0.0, 0.0])
    path.add([1.0, 0.0])
    path.begin_pass()
    path.add([50.0, 0.0])
    path.add([51.0, 0.0])
    assert path.length == pytest.approx(2.0)
    assert path.bounds()[1] == [51.0, 0.0]


def test_the_trace_is_bounded_and_covers_the_whole_way():
    path = Path(0.1)
    for i in range(60000):
        path.add([0.11 * i, 0.0])
    points = path.points()
    assert len(points) <= 20001 and path.length == pytest.approx(0.11 * 59999)
    gaps = points[1:, 0] - points[:-1, 0]
    assert (
        float(points[0, 0]) == 0.0
        and float(points[-1, 0]) > 0.98 * 0.11 * 59999
        and float(gaps.max()) < 1.0
    )
    assert float(gaps.min()) >= path.step * (1 - 1e-9), (
        "as far apart after each second one has gone"
    )


def test_empty():
    assert Path(0.1).points().shape == (0, 2)


def test_resume():
    one, rng = Path(0.1), np.random.default_rng(1)
    way = rng.normal(0, 0.05, (400, 2)).cumsum(0).tolist()
    for x in way[:200]:
        one.add(x)
    state, other = copy.deepcopy(one.state_dict()), Path(5.0)
    other.load_state_dict(state)
    for x in way[200:]:
        assert one.add(x) == other.add(x)
    assert one.points().tolist() == other.points().tolist() and one.bounds() == other.bounds()
    assert np.array_equal(state["points"], Path.points(_loaded(state))), (
        "the state was written into"
    )


def _loaded(state):
    path = Path(1.0)
    path.load_state_dict(state)
    return path


def strips(path: Path) -> list[np.ndarray]:
    return np.split(path.points().numpy(), np.flatnonzero(path.starts().numpy())[1:])


def test_no_line_leads_over_the_end_of_a_pass_or_a_jump():
    path = Path(0.1)
    for x in np.arange(0.0, 2.0, 0.02):
        path.add([x, 0.0])
    path.begin_pass()
    for x in np.arange(2.0, 0.0, -0.02):  # begins where the last one ended: the gap in time counts
        path.add([x, 0.15])
    for x in np.arange(5.0, 6.0, 0.02):  # the localiser jumps by 5 m
        path.add([x, 0.15])
    found = strips(path)
    assert [round(float(s[0, 0])) for s in found] == [0, 2, 5]
    assert all(np.linalg.norm(np.diff(s, axis=0), axis=1).max() < 0.2 for s in found)


@pytest.mark.parametrize("move", [0.01, 0.3, 2.0])
def test_a_slow_sensor_does_not_jump(move):
    """Samples far apart, at a speed that varies by four, are one line."""
    path, rng = Path(0.1), np.random.default_rng(0)
    for x in np.cumsum(rng.uniform(0.5, 2.0, 300) * move):
        path.add([float(x), 0.0])
    assert len(strips(path)) == 1


def test_starts_outlive_thinning_and_resume():
    path = Path(1.0)
    for k in range(50):
        path.begin_pass()
        for x in range(500):
            path.add([float(x), 3.0 * k])
        if k == 30:
            state, path = path.state_dict(), Path(1.0)
            path.load_state_dict(state)
    found = strips(path)
    assert len(found) == 50 and path.step > 1.0
    assert all(len(np.unique(s[:, 1])) == 1 for s in found)


def test_two_robots_paths_are_one_trace_with_a_gap():
    mine, other = Path(0.1), Path(0.1)
    mine.extend([[x, 0.0] for x in np.linspace(0.0, 3.0, 301)])
    other.extend([[x, 40.0] for x in np.linspace(-2.0, 2.0, 401)])
    alone = mine.length, len(mine.points())
    mine.join(other)
    assert mine.length == alone[0] + other.length == pytest.approx(7.0, abs=0.02)
    assert mine.bounds() == ([-2.0, 0.0], [3.0, 40.0])
    assert len(mine.points()) == alone[1] + len(other.points())
    assert np.flatnonzero(mine.starts().numpy()).tolist() == [0, len(other.points())], (
        "nobody drove from the one to the other"
    )
    assert mine.newest == [3.0, 0.0] and mine.around(0.4).place[1] == 0.0, (
        "the robot is where it was"
    )
    areas = {area.low[1]: area.samples for area in mine.extent.areas(0.01)}
    assert areas == {0.0: 301, 40.0: 401}
    for x in ([3.1, 0.0], [9.0, 9.0]):
        mine.add(x)
    assert mine.starts()[-2:].tolist() == [True, True], "what is driven next goes on from neither"

    young = Path(0.1)
    young.join(other)
    assert (
        young.newest == other.points()[-1].tolist()
        and young.starts().tolist() == other.starts().tolist()
    )


def test_two_long_traces_are_one_that_is_bounded():
    mine, other = Path(0.1), Path(0.1)
    mine.extend([[0.1 * i, 0.0] for i in range(15000)])
    other.extend([[0.1 * i, 40.0] for i in range(15000)])
    mine.join(other)
    points = mine.points()
    assert len(points) <= 20000 and mine.starts().sum() == 2 and mine.step == 0.2
    assert {0.0, 40.0} == set(points[:, 1].tolist()) and points[-1, 1] == 0.0
    assert mine.newest == [0.1 * 14999, 0.0]


def test_a_bend_is_as_long_as_the_robot_drove():
    """Within a hundredth: a tenth of a cell is looked at."""
    angle = np.linspace(0.0, 3.0 * math.pi, 2000)
    x = np.stack([0.3 * np.cos(angle), 0.3 * np.sin(angle)], 1)
    path = Path(0.1)
    path.begin_pass()
    path.extend(x.tolist())
    assert path.length == pytest.approx(0.3 * 3.0 * math.pi, rel=0.01)


def test_of_a_trace_that_is_full_every_second_point_stays_and_so_does_each_start(monkeypatch):
    """Its spacing doubles, once and again: what is kept lies that far apart, from the first point on."""
    monkeypatch.setattr(path_module, "_MOST", 40)
    path, sides = Path(0.125), [0.125 * k for k in range(300)]
    most = 0
    for k, along in enumerate(sides):
        if k in (120, 201):
            path.begin_pass()
        path.add([along, 0.0])
        most = max(most, len(path.points()))
        step = path.step / 0.125
        assert step == 2.0 ** round(math.log2(step)) and len(path.points()) <= 40
    points, starts = path.points().numpy(), path.starts().numpy()
    assert most == 40 and path.step == 1.0, "three times full"
    np.testing.assert_array_equal(points[:, 0], np.arange(len(points)) * 1.0)
    assert path.length == pytest.approx((299 - 2) * 0.125), "no way leads to a start"

    # a start that is dropped is handed on to the point after it: at most a step further
    begins = points[starts, 0]
    assert starts[0] and len(begins) == 3
    for at, begin in zip((120, 201), begins[1:]):
        assert 0.125 * at - 1e-9 <= begin <= 0.125 * at + path.step


def test_the_square_about_the_robot_moves_in_eighths_and_ends_where_the_driven_ground_does():
    """Its middle is the median of the last nine points, as a multiple of an eighth of its side."""
    path = Path(0.1)
    path.extend([[1.1 * k, -0.5 * k] for k in range(30)])
    area = path.around(4.8)
    assert area.place == pytest.approx((27.5, -12.5))  # of the points 21 to 29, axis by axis
    assert area.points == 30 and (area.samples, area.squares) == (0, ())
    # 27.6 and −12.6 are multiples of .6
    np.testing.assert_allclose(area.low, (27.6 - 2.4, -14.5), atol=1e-9)
    np.testing.assert_allclose(area.high, (27.6 + 2.4, -12.6 + 2.4), atol=1e-9)
    np.testing.assert_allclose(path.around(8.0).high, (31.9, -12.0 + 4.0), atol=1e-9)

    # four of nine points are no place, also where all driven ground is left of the middle
    for k in range(4):
        path.add([500.0 + k, 300.0])
    assert path.around(4.8).place == pytest.approx((1.1 * 29, -0.5 * 25))
    few = Path(0.1)
    few.extend([[0.0, 0.0], [1.0, 2.0], [2.0, 0.5], [3.0, 9.0]])
    assert few.around(0.8).place == (1.0, 0.5), "of an even number the lower one"
    assert few.around(80.0)[:2] == ((0.0, 0.0), (3.0, 9.0))


@pytest.mark.parametrize("mine, step", [(20, 0.1), (21, 0.2)])
def test_joined_paths_are_thinned_beyond_the_most_only(monkeypatch, mine, step):
    monkeypatch.setattr(path_module, "_MOST", 40)
    one, other = Path(0.1), Path(0.1)
    for path, n, north in ((one, mine, 0.0), (other, 20, 9.0)):
        path.extend([[0.25 * k, north] for k in range(n)])
    one.join(other)
    assert one.step == step and 20 < len(one.points()) <= 40


@pytest.mark.parametrize("at", range(1, 9))
def test_a_start_that_is_dropped_is_the_start_of_the_next_point(monkeypatch, at):
    """Of nine points the second, fourth, … go."""
    monkeypatch.setattr(path_module, "_MOST", 8)
    path = Path(0.125)
    for k in range(9):
        if k == at:
            path.begin_pass()
        path.add([0.125 * k, 0.0])
    assert len(path.points()) == 5 and path.step == 0.25
    assert np.flatnonzero(path.starts().numpy()).tolist() == [0, (at + 1) // 2]
