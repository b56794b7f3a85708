"""That a sensor drifts is found from places that it passed twice, and nothing else is taken for it."""

import copy
import math

import pytest
import torch
from drifting import LENGTH, crossing, done, lanes, passes, way
from slow_sensor import field

from gp_mapping.mapping.drift.blocks import blocks_of
from gp_mapping.mapping.drift.evidence import DriftSearch, DriftTrack
from gp_mapping.mapping.drift.sensor_place import SensorPlace, _Placed
from gp_mapping.mapping.drift.track_evidence import ANOTHER, LATE, Alternative

STEP = LENGTH / 5.0  # m, between blocks
LINE = torch.stack([torch.arange(0.0, 80.0, STEP), torch.zeros(200)], 1).double()


def found(seed, paths=None, **world):
    """What is found, another lengthscale being expected than the field has."""
    paths = crossing(STEP) if paths is None else paths
    return DriftSearch(way(passes(seed, paths, **world)), 2.4, "matern52").finish()


@pytest.mark.parametrize(("seconds", "seed"), [(40.0, 1), (120.0, 3)])
def test_a_sensor_that_wanders(seconds, seed):
    """How fast it does, s²/T, is found to a factor of three; T and s each less well."""
    drift = found(seed, drift=0.4, seconds=seconds)
    assert drift is not None and drift.gain > 4.0
    assert drift.shortest <= min(drift.seconds, 1.3 * seconds)
    assert abs(math.log(drift.stddev**2 / drift.seconds / (0.16 / seconds))) < math.log(3.0)


@pytest.mark.parametrize("seed", [4])
def test_a_sensor_that_warms_up(seed):
    drift = found(seed, drift=0.5, warms_up=True)
    assert drift is not None and drift.warms_up
    assert abs(math.log(drift.seconds / 40.0)) < math.log(2.5)


@pytest.mark.parametrize("seed", range(2))
def test_a_sensor_that_does_neither(seed):
    """Another constant in each pass is no drift."""
    parts = passes(seed, crossing(STEP))
    other = parts[1].y + 0.7
    parts[1] = type(parts[1])(parts[1].x, other, stamp=parts[1].stamp)
    assert DriftSearch(way(parts), 2.4, "matern52").finish() is None


@pytest.mark.parametrize("wander", [0.1, 0.3])
def test_what_is_no_drift(wander):
    """Each makes two passes of one place differ, by far more than noise; as faults of others do, below."""
    assert found(11, wander=wander) is None


def test_along_one_line_nothing_tells():
    """Whatever the sensor does there: the field itself may be so."""
    assert found(6, [LINE], drift=0.5) is None
    g = torch.Generator().manual_seed(0)
    steps = torch.randn(len(LINE), generator=g, dtype=torch.float64).cumsum(0)
    rough = DriftTrack(LINE, steps, 0.8 * torch.arange(200).double(), torch.ones(200))
    assert DriftSearch(rough, 2.0, "matern52").finish() is None


def test_of_a_pass_that_crosses_itself():
    one = torch.cat(crossing(STEP))
    assert found(8, [one], drift=0.4) is not None
    assert found(8, [one]) is None


@pytest.mark.parametrize("ratio", [1.0, 4.0, 0.25])
def test_a_field_that_is_longer_along_one_axis(ratio):
    """It is found, and no drift; one that is alike in all directions is not taken for it."""
    whole = way(passes(3, crossing(STEP)))
    stretched = whole._replace(x=whole.x * whole.x.new_tensor([1.0, ratio]))
    search = DriftSearch(stretched, LENGTH * ratio**0.5, "matern52")
    assert search.finish() is None and search.anisotropy == ratio


def test_rows_along_the_lanes_are_no_drift():
    """A field of crop in rows changes from lane to lane, as a sensor would that drifts in that time."""
    x, g = lanes(8.0, 2.0, 0.25, 0.25), torch.Generator().manual_seed(1)
    y = (2 * math.pi * x[:, 1] / 0.75).sin() + 0.1 * torch.randn(len(x), generator=g)
    search = DriftSearch(
        DriftTrack(x, y, 0.5 * torch.arange(len(x)), torch.ones(len(x))), 1.0, "matern52"
    )
    assert search.finish() is None and search.anisotropy < 0.1


def test_a_sensor_that_turns_with_the_robot_is_no_drift():
    parts = passes(9, [lanes(10.0, 8.0, 1.0, STEP)] * 2)
    whole = way(parts)
    ahead = torch.cat([whole.x[1:2] - whole.x[:1], whole.x.diff(dim=0)])
    ahead = ahead / ahead.norm(dim=1, keepdim=True).clamp_min(1e-9)
    turned = whole._replace(y=whole.y + 0.5 * ahead[:, 0], heading=ahead)
    assert DriftSearch(turned, 2.4, "matern52").finish() is None


def test_a_copy_in_the_middle_goes_on_by_itself():
    """As when two maps are merged while one looks: what was there before is kept as a copy."""
    search = DriftSearch(way(passes(4, crossing(STEP), drift=0.5, warms_up=True)), 2.4, "matern52")
    for _ in range(10):
        assert not search.advance()
    again = copy.deepcopy(search)
    while not again.advance():
        assert search.steps == 10
    while not search.advance():
        pass
    assert again.found == search.found and search.found is not None


def test_what_is_not_finite_is_no_drift():
    whole = way(passes(1, crossing(STEP)))
    assert DriftSearch(whole._replace(y=whole.y * math.nan), 2.0, "matern52").finish() is None
    assert DriftSearch(whole._replace(stamp=0.0 * whole.stamp), 2.0, "matern52").finish() is None


def test_a_quick_look_begins_where_none_was_best():
    """What is added being nothing, it says the same: field, noise and all that is unknown are those."""
    search = DriftSearch(way(passes(1, crossing(STEP))), 2.4, "matern52")
    best = search._best(search._field)  # noqa: SLF001  a part of the search, with a known answer
    none, _ = done(best)
    quick = done(search._quick(torch.zeros_like(search.eye)))  # noqa: SLF001
    assert quick == pytest.approx(none, rel=1e-12)


class Scales(DriftSearch):
    """Tells which time scales it looks at."""

    @property
    def times(self):
        return [self._time(k) for k in range(self._time_count)]


@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_time_scales_reach_to_twice_the_longest_pass_whenever_it_was(start):
    parts = passes(1, [lanes(3.0, 1.3, 1.3, STEP), lanes(9.0, 1.3, 1.3, STEP)])
    track = way(parts)
    times = Scales(track._replace(stamp=track.stamp + start), 2.4, "matern52").times
    longest = max(float(part.stamp[-1] - part.stamp[0]) for part in parts)
    assert times[-1] <= 2.0 * longest < 2.0 * times[-1]
    assert times[1:] == [2.0 * each for each in times[:-1]]


def facing(x):
    """Direction of the way at each place, (N, 2)."""
    ahead = torch.cat([x[1:2] - x[:1], x.diff(dim=0)])
    return ahead / ahead.norm(dim=1, keepdim=True).clamp_min(1e-9)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sensor_that_turns_with_the_robot_is_told_from_the_field(seed):
    """Sun on one side of a thermometer: to a factor of two, and no drift, late stamp or long field."""
    whole = way(passes(seed, crossing(STEP)))
    search = DriftSearch(
        whole._replace(y=whole.y + 0.4 * facing(whole.x)[:, 0], forward=facing(whole.x)),
        2.4,
        "matern52",
    )
    assert search.finish() is None and search.anisotropy == 1.0
    assert 0.5 < search.turning / 0.3 < 2.0


@pytest.mark.parametrize("arm", [(0.0, 0.3), (0.3, 0.0)])
def test_a_sensor_off_the_pose_on_a_slope_does_not_turn_with_the_robot(arm):
    """There it reads more towards one side, by as much everywhere."""
    paths = [lanes(10.0, 8.0, 1.6, STEP)]
    whole = way(passes(2, paths))
    ahead = facing(whole.x)
    at = whole.x + arm[0] * ahead + arm[1] * ahead.flip(1) * ahead.new_tensor([-1.0, 1.0])
    y = whole.y + field(at, 2, LENGTH) - field(whole.x, 2, LENGTH) + at[:, 0]
    search = DriftSearch(whole._replace(y=y, forward=ahead), 2.4, "matern52")
    assert search.finish() is None and search.turning == 0.0


def looked(seed, **world):
    """A search at its end, which knows which way the robot faced."""
    whole = way(passes(seed, crossing(STEP), **world))
    search = DriftSearch(whole._replace(forward=facing(whole.x)), 2.4, "matern52")
    search.finish()
    return search


@pytest.mark.parametrize("seed", [1, 2])
def test_places_passed_twice_contradict_each_other_where_poses_wander(seed):
    """Wheel odometry that is off by half a metre after 120 m."""
    search = looked(seed, wander=0.03)
    assert search.contradicts and search.found is None and search.turning == 0.0


@pytest.mark.parametrize(
    "world", [{}, {"delay": 1.0}, {"tau": 3.0}, {"moved": 1.5}, {"drift": 0.4}, {"noise": 0.3}]
)
def test_other_faults_are_no_poses_that_wander(world):
    """And no drift, but where there is one."""
    search = looked(2, **world)
    assert not search.contradicts
    assert (search.found is not None) == ("drift" in world)


def placed(arm, stretch=1.0, finds_delay=True, delay=0.0):
    """A search at its end, of a sensor that sits so far ahead of, and left of, where it is said to."""
    (x,) = (lanes(8.0, 6.0, 1.0, STEP),)
    whole, ahead = way(passes(3, [x])), facing(x)
    at = x + arm[0] * ahead + arm[1] * ahead.flip(1) * x.new_tensor([-1.0, 1.0])
    at = at - delay * whole.velocity()
    y = whole.y + field(at, 3, LENGTH) - field(x, 3, LENGTH)
    axes = x.new_tensor([1.0, stretch])
    track = whole._replace(x=x / axes, y=y, forward=ahead, motion=whole.velocity() / axes)
    search = DriftSearch(track, LENGTH, "matern52", finds_delay, axes)
    search.finish()
    return search


@pytest.mark.parametrize("arm", [(0.0, -1.0), (-0.5, 0.6)])
def test_a_sensor_elsewhere_on_the_robot(arm):
    """It is found to 5 cm, in place of a field that is longer along one axis; other lanes fit, too."""
    search = placed(arm)
    assert search.found is None and search.anisotropy == 1.0 and not search.turning
    assert search.place[:3] == pytest.approx((*arm, 0.0), abs=0.05)
    assert all(0.0 < each < 0.05 for each in search.place.stddevs[:2])


def test_axes_of_a_robot_are_as_long_as_those_of_the_map():
    assert placed((0.3, 0.3), stretch=2.0).place[:2] == pytest.approx((0.3, 0.3), abs=0.08)


def test_late_stamps_are_named_where_the_map_does_not_find_them_itself():
    assert placed((0.0, 0.0), delay=0.5).place is None
    place = placed((0.0, 0.0), delay=0.5, finds_delay=False).place
    assert place[:3] == pytest.approx((0.0, 0.0, 0.5), abs=0.1) and place.late is None


def test_a_step_of_scoring_is_the_gradient_of_the_evidence():
    search = placed((0.0, 0.0))
    shifts, at = search._shifts(), torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64)  # noqa: SLF001

    def told(at):
        return search._told_at(at, shifts, 2, 3)  # noqa: SLF001

    slope, fisher = done(search._slope(at, shifts, (2, 3)))  # noqa: SLF001
    steps = 1e-4 * torch.eye(3, dtype=torch.float64)
    wanted = [(told(at + step) - told(at - step)) / 2e-4 for step in steps]
    assert slope.tolist() == pytest.approx(wanted, rel=1e-3)
    assert bool((torch.linalg.eigvalsh(fisher) > 0.0).all())


def test_blocks_in_which_the_robot_turns_say_less_of_where_a_sensor_sits():
    """A sensor ahead of the robot sweeps over more of the field there than a block is long."""
    k = torch.ones(1, 1, 11, dtype=torch.float64) / 11.0  # round corners
    x = torch.nn.functional.conv1d(lanes(8.0, 5.0, 1.0, 0.08).mT[:, None], k)[:, 0].mT
    stamp, ahead = torch.arange(len(x), dtype=x.dtype), facing(x)
    y = field(x + 1.5 * ahead, 2, LENGTH) + 0.03 * torch.sin(1e3 * stamp)
    rows = DriftTrack(x, y, stamp, torch.ones(len(x), dtype=torch.long), forward=ahead)
    search = DriftSearch(blocks_of(rows, STEP), LENGTH, "matern52")
    shifts, at = search._shifts(), torch.tensor([1.5, 0.0, 0.0], dtype=x.dtype)  # noqa: SLF001
    told = max(search._told_at(at, shifts, 2, j) for j in range(6))  # noqa: SLF001
    search._turns.zero_()  # noqa: SLF001
    alike = max(search._told_at(at, shifts, 2, j) for j in range(6))  # noqa: SLF001
    assert told > alike + 8.0


@pytest.mark.parametrize(
    ("other", "kind", "named"), [(13.0, ANOTHER, False), (11.0, ANOTHER, True), (13.0, LATE, True)]
)
def test_a_place_is_named_where_no_other_fault_is_nearly_as_good(other, kind, named):
    """By its margin; late stamps were chosen from before."""
    search = DriftSearch(way(passes(3, [LINE[:20]])), LENGTH, "matern52")
    place = SensorPlace(0.5, 0.0, 0.0, (0.1, 0.1, 0.0))

    def given(value):
        yield
        return value

    search._chosen = lambda none: given((20.0, place))  # noqa: SLF001
    search._alternatives = lambda: [Alternative(8.0, given(other), kind)]  # noqa: SLF001
    done(search._judge_place(0.0, 5.0))  # noqa: SLF001
    assert (search.place == place) == named


@pytest.mark.parametrize(
    ("at", "late", "said"),
    [((0.6, 0.2, 0.5), (-0.3, 0.1), True), ((0.6, 0.2, 0.5), (-1.4, 0.9), False)],
)
def test_a_climb_begins_at_the_place_or_the_delay_that_is_as_good(at, late, said):
    """On straight lanes a delay is a place behind. A delay that is hardly known is not said."""
    search = DriftSearch(
        way(passes(3, [LINE[:20]]))._replace(forward=LINE[:20]), LENGTH, "matern52"
    )
    best = search._best_placed = _Placed(50.0, torch.tensor(at).double(), torch.eye(3).double())  # noqa: SLF001
    begun = []

    def climbed(first, free, shifts):
        begun.append((first.tolist(), free))
        seconds, stddev = late
        at = first if free[0] else torch.tensor([0.0, 0.2, seconds]).double()
        return best._replace(value=49.0, at=at, covariance=stddev**2 * torch.eye(3).double())
        yield

    search._climbed = climbed  # noqa: SLF001
    _, place = done(search._chosen(0.0))  # noqa: SLF001
    along, seconds = at[0] - at[2] * search.speed, at[2] - at[0] / search.speed
    assert begun[0] == (pytest.approx([along, 0.2, 0.0]), (True, True, False))
    assert begun[1] == (pytest.approx([0.0, 0.2, seconds]), (False, True, True))
    assert place.along == pytest.approx(along)
    assert place.late == (pytest.approx(late[0]) if said else None)


def test_what_a_sensor_sweeps_over_is_in_the_lengths_of_the_map():
    line = way(passes(3, [LINE[:20]]))._replace(forward=torch.full((20, 2), 0.5).double())
    stretched = DriftSearch(line, LENGTH, "matern52", True, torch.tensor([1.0, 4.0]))
    assert torch.allclose(stretched._turns, torch.full((20,), 0.125).double())  # noqa: SLF001
