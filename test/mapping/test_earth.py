"""Fixes that a map keeps: bounded, spread over the day, and they lie where the map lies, also when it moves."""

import math

import numpy as np
import pytest
import torch

from gp_mapping import Samples
from gp_mapping.errors import UsageError
from gp_mapping.mapping.earth import Datum, Fixes, fit_datum
from gp_mapping.mapping.moving import move_session, rotation
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

TRUE = (52.1, 4.5, 0.7)
METRE = 180.0 / math.pi / 6.37e6  # degrees of latitude; half a per cent is enough here


def rows(count, length=200.0, noise=0.0, seed=0):
    """Fixes along a bent drive: x, y, latitude, longitude."""
    t = np.linspace(0.0, 1.0, count)
    x, y = length * t, 0.3 * length * np.sin(3.0 * t)
    c, s = math.cos(TRUE[2]), math.sin(TRUE[2])
    g = np.random.default_rng(seed)
    east, north = (
        c * x - s * y + noise * g.normal(size=count),
        s * x + c * y + noise * g.normal(size=count),
    )
    longitude = TRUE[1] + east * METRE / math.cos(math.radians(TRUE[0]))
    return [tuple(row) for row in np.stack([x, y, TRUE[0] + north * METRE, longitude], 1).tolist()]


def assert_true(datum, metres=1.0, heading=0.02):
    assert abs(datum.latitude - TRUE[0]) < metres * METRE and datum.heading == pytest.approx(
        TRUE[2], abs=heading
    )
    assert abs(datum.longitude - TRUE[1]) < metres * METRE / math.cos(math.radians(TRUE[0]))


def test_at_most_so_many_are_kept_and_they_are_of_all_the_day():
    few, all_ = Fixes(100), Fixes(10000)
    for fixes in (few, all_):
        for row in rows(3000, noise=1.0):
            fixes.add([row])
    assert len(few) <= 100 < 3000 == few.count == len(all_) and len(few) > 50
    (mine, said), (best, other) = few.summary(), all_.summary()
    assert_true(mine, 2.0)
    assert_true(best, 2.0)
    assert f"from {len(few)} of 3000 fixes (max_fixes)" in said and "from 3000 fixes," in other
    kept = few.state_dict()["rows"][:, 0]
    assert (
        kept[0] < 5.0
        and kept[-1] > 190.0
        and float(kept.diff().max()) < 2.5 * float(kept.diff().min())
    )


def test_every_one_is_kept_until_there_are_more_than_may_be_and_then_every_second():
    fixes, drive = Fixes(40), rows(200, noise=1.0)
    for n, kept, every in ((40, 40, 1), (41, 21, 2), (80, 40, 2), (82, 21, 4), (160, 40, 4)):
        fixes = Fixes(40)
        fixes.add(drive[:n])
        assert (len(fixes), fixes.count) == (kept, n)
        assert np.allclose(fixes.state_dict()["rows"], np.array(drive[:n])[::every]), n


def test_too_little_is_said_and_nothing_is_none():
    fixes = Fixes(100)
    assert fixes.summary() == (None, "")
    fixes.add(rows(2))
    assert (
        fixes.summary()[0] is None
        and "no datum: 2 fixes, expected 3 at least" in fixes.summary()[1]
    )
    fixes = Fixes(100)
    fixes.add(rows(50, length=0.5, noise=1.0))
    assert fixes.summary()[0] is None and "one place knows no direction" in fixes.summary()[1]


@pytest.mark.parametrize("wrong", ["null island", "beside", "leaping poses", "two fifths"])
def test_fixes_that_lie_elsewhere_than_the_others_change_nothing_and_are_counted(wrong):
    good = rows(200, noise=0.5)
    bad = (
        [(x, y, 0.0, 0.0) for x, y, _, _ in good[::50]]
        if wrong == "null island"
        else [(x, y, a + 40.0 * METRE, b) for x, y, a, b in good[::10]]
        if wrong == "beside"
        else [(x + 1e5, y, a, b) for x, y, a, b in good[::20]]
        if wrong == "leaping poses"
        else [(x, y, a - 30.0 * METRE, b + 0.001) for x, y, a, b in good[60:190]]
    )
    fixes, alone = Fixes(1000), Fixes(1000)
    alone.add(good)
    fixes.add(bad[:1] + good + bad[1:])
    (datum, said), (best, other) = fixes.summary(), alone.summary()
    assert_true(datum)
    assert (
        abs(datum.heading - best.heading) < 1e-3
        and abs(datum.latitude - best.latitude) < 0.05 * METRE
    )
    gone = int(said.split(" fixes (")[1].split(" left out")[0])
    assert f"from {200 + len(bad)} fixes (" in said and len(bad) <= gone <= len(bad) + 2
    assert "left out" not in other


@pytest.mark.parametrize("jitter", [0.0, 0.01, 0.3])
def test_a_robot_that_stood_most_of_the_time_knows_its_heading_from_the_rest(jitter):
    """Fixes of one place agree with every heading: though they are most of all, they do not decide."""
    g = np.random.default_rng(2)
    stood = [
        (g.normal(0.0, jitter), g.normal(0.0, jitter), a, b)
        for _, _, a, b in [
            (0.0, 0.0, TRUE[0] + g.normal() * METRE, TRUE[1] + g.normal() * METRE)
            for _ in range(1900)
        ]
    ]
    fixes = Fixes(2000)
    fixes.add(stood + rows(60, noise=1.0))
    datum, said = fixes.summary()
    assert_true(datum, 1.0, 0.01)
    gone = int(said.split(" fixes (")[1].split(" left out")[0]) if "left out" in said else 0
    assert gone <= 4, said


def test_a_map_across_the_antimeridian_has_a_datum():
    c = math.cos(math.radians(TRUE[0]))
    east = [
        (x, y, a, math.remainder(b + 180.0 - TRUE[1] - 60.0 * METRE / c, 360.0))
        for x, y, a, b in rows(100)
    ]
    longitudes = [row[3] for row in east]
    assert min(longitudes) < -179.0 and max(longitudes) > 179.0
    fixes = Fixes(1000)
    fixes.add(east)
    datum = fixes.summary()[0]
    assert math.remainder(datum.longitude - 180.0 + 60.0 * METRE / c, 360.0) == pytest.approx(
        0.0, abs=METRE / c
    )
    assert datum.heading == pytest.approx(TRUE[2], abs=0.02)


def test_they_go_with_the_map_that_is_saved_moved_or_merged():
    sessions = []
    for part in (rows(40)[:20], rows(40)[20:]):
        session = MapSession(
            MapSettings(learn_hyperparameters=False, lengthscale=1.0, max_fixes=50)
        )
        x = torch.stack([torch.arange(0.0, 5.0, 0.1).double(), torch.zeros(50).double()], 1)
        session.ingest(
            Samples(x, 45e-6 + 1e-6 * torch.sin(x[:, :1]), stamp=torch.arange(50).double() * 0.1)
        )
        session.fixes.add(part)
        sessions.append(MapSession.from_state_dict(session.state_dict()))
        sessions[-1].flush()
    first, second = sessions
    assert_true(first.fixes.summary()[0])
    assert first.report()["fixes"] == 20 and first.report()["datum"].startswith("datum 52.1")
    first.merge(second)
    assert first.fixes.count == 40 == len(first.fixes)
    assert_true(first.fixes.summary()[0])

    before = first.fixes.summary()[0]
    assert move_session(first, 0.0, 0.0, 0.0) is first and first.fixes.summary()[0] == before
    there = move_session(first, 3.0, -4.0, 0.4)
    now = there.fixes.summary()[0]
    assert math.remainder(before.heading - now.heading - 0.4, math.tau) == pytest.approx(
        0.0, abs=1e-5
    )
    origin = rotation(before.heading - 0.4) @ torch.tensor(
        [3.0, -4.0], dtype=torch.float64
    )  # as seen from the new one
    assert (before.latitude - now.latitude) / METRE == pytest.approx(float(origin[1]), abs=0.05)
    there.clear()
    assert there.report()["fixes"] == 0 and there.report()["datum"] == ""


def test_a_path_is_moved_pass_by_pass():
    """Also where the next pass begins a step from the end of the one before: no line leads there."""
    session = MapSession(MapSettings(learn_hyperparameters=False, lengthscale=1.0))
    for start, end in ((0.0, 3.0), (3.1, 5.0), (5.1, 5.1)):
        x = (
            torch.arange(start, end + 0.05, 0.1, dtype=torch.float64)[:, None]
            * torch.tensor([[1.0, 0.0]]).double()
        )
        session.ingest(
            Samples(x, 45e-6 + 0.0 * x[:, :1], stamp=10.0 * start + torch.arange(len(x)).double())
        )
        session.break_pass()
    old = session.path_trace
    points, starts, length = old.points(), old.starts(), old.length
    new = move_session(session, 3.0, -4.0, 0.4).path_trace
    assert (
        starts.tolist() == new.starts().tolist() and int(starts.sum()) == 3 and new.length == length
    )
    turned = points @ rotation(0.4).mT + torch.tensor([3.0, -4.0], dtype=torch.float64)
    assert torch.allclose(new.points(), turned, rtol=0, atol=1e-12)


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_fix_that_is_not_finite_is_refused_and_what_was_there_stays(column, wrong):
    fixes = Fixes(10)
    fixes.add(rows(5))
    before = fixes.summary()
    row = list(rows(1)[0])
    row[column] = wrong
    with pytest.raises(ValueError, match="not finite"):
        fixes.add([rows(1)[0], tuple(row)])
    assert len(fixes) == fixes.count == 5 and fixes.summary() == before
    Fixes(10).load_state_dict(fixes.state_dict())


@pytest.mark.parametrize(
    "state",
    [
        {"rows": torch.zeros(2, 3)},
        {"rows": torch.full((2, 4), math.nan)},
        {"count": 1},
        {"every": 0},
        {"rows": "none"},
    ],
)
def test_a_state_that_is_none_is_refused(state):
    good = Fixes(10)
    good.add(rows(5))
    with pytest.raises(ValueError, match="fixes"):
        Fixes(10).load_state_dict(good.state_dict() | state)


@pytest.mark.parametrize(
    ("latitude", "north", "east"),
    [(0.0, 110574.3, 111319.5), (45.0, 111131.8, 78846.8), (60.0, 111412.3, 55800.0)],
)
def test_a_degree_is_as_long_as_tables_of_wgs_84_say(latitude, north, east):
    """Metres of a degree along a meridian and along a parallel: where they are right, a kilometre of fixes fits."""
    x = np.stack(
        np.meshgrid(np.linspace(-500.0, 500.0, 5), np.linspace(-500.0, 500.0, 5)), -1
    ).reshape(-1, 2)
    fit = fit_datum(x, np.stack([latitude + x[:, 1] / north, 7.0 + x[:, 0] / east], 1))
    assert (
        fit.beyond < 0.15 and fit.kept.all() and abs(fit.datum.heading) < 1e-4
    )  # four standard deviations of them
    assert (fit.datum.latitude, fit.datum.longitude) == pytest.approx((latitude, 7.0), abs=1e-6)


def test_a_datum_is_a_place_on_the_earth_and_a_direction():
    assert Datum.parse("52.5,-4.25,1.5") == Datum(52.5, -4.25, 1.5)
    for edge in ("90,180,6.28", "-90,-180,-6.28"):
        assert Datum.parse(edge) == Datum(*map(float, edge.split(",")))
    for wrong in (
        "90.1,0,0",
        "-90.1,0,0",
        "0,180.1,0",
        "0,-180.1,0",
        "0,0,inf",
        "52.1,4.5,45",  # degrees: it was taken for 45 rad
        "nan,0,0",
        "1,2",
        "",
    ):
        with pytest.raises(UsageError, match="expected latitude and longitude in degrees"):
            Datum.parse(wrong)
