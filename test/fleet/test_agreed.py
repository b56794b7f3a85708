"""What a fleet agrees on, what becomes of a bag's cells by that, and who is named: each by its own formula."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fleet_bags import parameters
from small_drive import lanes, write_drive

from gp_mapping.core.hyper.theta import Theta, sensor_place
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.core.types import Samples
from gp_mapping.fleet.agreed import agree, prepare_cells
from gp_mapping.fleet.cells import BagReport, CellMaker, Job
from gp_mapping.fleet.comparison import rounds
from gp_mapping.fleet.comparison.notes import notes_of
from gp_mapping.fleet.comparison.outliers import find_outliers, robots_to_leave_out, wide_figures
from gp_mapping.fleet.comparison.table import row_of
from gp_mapping.fleet.robot import Robot, calibrate
from gp_mapping.settings.mapping import MapSettings

UT = 1e-6
SETTINGS = MapSettings(
    lengthscale=0.8, signal_stddev=8 * UT, noise_stddev=0.5 * UT, constant_stddev=30 * UT
)
SIZE = len(make_theta_and_learner(SETTINGS)[0].vector())
TOLDS = [BagReport(f"bag{i}", middle=([0.4 * i, 2.4 - i], [(50.0 + i) * UT])) for i in range(3)]


def robot(shift=0.0, weight=1.0, **fields):
    """Who has learned log-variances that lie `shift` from the start, and is `weight` times as sure as usual."""
    theta = make_theta_and_learner(SETTINGS)[0]
    root = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(3)).double()
    return Robot(
        theta=theta.with_vector(
            theta.vector() + shift * torch.arange(1.0, SIZE + 1.0).double() / SIZE
        ),
        information=weight * (root @ root.mT + torch.eye(SIZE).double()),
        starts={},
        **fields,
    )


@pytest.mark.parametrize("given", [{}, {"learn_time_offset": False, "time_offset": 0.2}], ids=str)
def test_theta_is_the_product_of_what_each_bag_knows(given):
    settings = replace(SETTINGS, **given)
    robots = [robot(0.3, 2.0), robot(-0.2, 9.0), robot(0.1, 4.0)]
    found, learner = agree(settings, TOLDS, robots), make_theta_and_learner(settings)[1]
    prior = np.diag(learner.prior_sd.numpy() ** -2.0)
    precision = prior + sum(r.information.numpy() for r in robots)
    pull = prior @ learner.prior.vector().numpy()
    pull = pull + sum(r.information.numpy() @ r.theta.vector().numpy() for r in robots)
    free = np.array(learner.free)
    vector = make_theta_and_learner(settings)[0].vector().numpy()
    vector[free] = np.linalg.solve(
        precision[np.ix_(free, free)], pull[free] - precision[np.ix_(free, ~free)] @ vector[~free]
    )
    np.testing.assert_allclose(found.theta.vector().numpy(), vector, rtol=1e-9)
    assert found.silent == () and free.sum() >= 3
    np.testing.assert_allclose(found.information, precision - prior)
    assert found.origin.tolist() == [0.0, 1.0] and found.centre.tolist() == pytest.approx([51 * UT])


def test_a_bag_far_from_the_others_has_no_say_and_is_named():
    good = [robot(0.3), robot(-0.2), robot(0.1)]
    reports = [*TOLDS, replace(TOLDS[0], bag="far")]
    found = agree(SETTINGS, reports, [*good, robot(30.0, 1e6)])
    assert found.silent == (3,)
    np.testing.assert_allclose(
        found.theta.vector(), agree(SETTINGS, TOLDS, good).theta.vector(), rtol=1e-9
    )
    assert agree(SETTINGS, reports[:2], [good[0], robot(30.0, 1e6)]).silent == (), (
        "of two nobody can tell"
    )


def test_starts_that_are_left_open_are_the_medians():
    robots = [
        replace(robot(), starts={"lengthscale": s, "signal_stddev": 1.0, "constant_stddev": 1.0})
        for s in (0.5, 0.7, 9.0)
    ]
    found = agree(replace(SETTINGS, lengthscale=0.0, constant_stddev=0.0), TOLDS, robots)
    assert (
        found.settings.lengthscale == 0.7 and found.settings.signal_stddev == SETTINGS.signal_stddev
    )
    assert found.theta.constant_stddev == 3.0 * found.theta.signal_stddev, (
        "the mean's prior is the field's own"
    )


# ---- cells of one robot ----------------------------------------------------------------------------------------------


def cells(n=40, **more):
    g = torch.Generator().manual_seed(7)
    heading = torch.nn.functional.normalize(torch.randn(n, 2, generator=g).double())
    return Samples(
        torch.rand(n, 2, generator=g).double(),
        torch.rand(n, 1, generator=g).double() * UT,
        velocity=0.4 * heading,
        heading=heading,
        **more,
    )


def test_cells_lie_where_the_fleets_one_robot_would_have_measured_them():
    agreed, own = (
        agree(SETTINGS, TOLDS, [robot()] * 3),
        {"time_offset": 0.31, "lever_arm_along": 0.2, "lever_arm_across": -0.15},
    )
    agreed = agreed.with_theta(
        replace(agreed.theta, time_offset=0.1, lever_arm_along=0.05, lever_arm_across=0.02),
        agreed.information,
    )
    body = torch.tensor([[2.0 * UT], [-3.0 * UT]], dtype=torch.float64)
    who = replace(robot(learned=True, body=body), theta=replace(robot().theta, **own))
    given = cells()
    got = prepare_cells(given, 0, who, agreed)

    def sensor(x, theta: Theta):
        return sensor_place(
            x,
            given.velocity,
            given.heading,
            theta.time_offset,
            theta.lever_arm_along,
            theta.lever_arm_across,
        )

    torch.testing.assert_close(sensor(got.x, agreed.theta), sensor(given.x, who.theta))
    turned = 2.0 * UT * given.heading[:, :1] - 3.0 * UT * given.heading[:, 1:]
    torch.testing.assert_close(got.y, given.y - turned, rtol=1e-9, atol=0.0)
    plain = prepare_cells(given, 0, replace(who, learned=False), agreed)
    assert torch.equal(plain.x, given.x) and torch.equal(plain.y, given.y)


def test_a_cell_averages_the_same_stretch_as_before():
    extent, agreed = torch.linspace(0.01, 0.05, 40).double(), agree(SETTINGS, TOLDS, [robot()] * 3)
    assert torch.equal(prepare_cells(cells(extent=extent), 0, robot(), agreed).extent, extent)
    assert not prepare_cells(cells(), 0, robot(), agreed).extent.any(), "nothing is known of it"


def test_an_uncertain_place_is_as_much_noise_as_the_field_differs_by_there():
    """E (f(x + e) − f(x))² over places e of that variance, of the kernel itself; of a cell, whatever it averages."""
    agreed = agree(SETTINGS, TOLDS, [robot()] * 3)
    variance, g = 1e-6, torch.Generator().manual_seed(1)
    away = variance**0.5 * torch.randn(20000, 2, generator=g).double()
    kernel = agreed.theta.kernel()
    differ = 2.0 * (kernel.diag(away[:1]) - kernel(away, torch.zeros(1, 2).double())[:, 0]).mean()
    own = (0.3 * UT) ** 2
    got = prepare_cells(
        cells(
            count=torch.full((40,), 8.0).double(),
            position_variance=torch.full((40,), variance).double(),
            sensor_variance=torch.full((40,), own).double(),
        ),
        0,
        robot(),
        agreed,
    )
    extra = (got.sensor_variance - own) / got.count / SETTINGS.field_scale**2
    assert float(extra[0]) == pytest.approx(float(differ), rel=0.05) and bool(
        (got.count == 8.0).all()
    )


def test_passes_of_two_bags_are_never_one():
    agreed = agree(SETTINGS, TOLDS, [robot()] * 3)
    numbers = torch.tensor([0.0, 1.0, 5.0, -1.0]).double()
    one, other = (
        prepare_cells(cells(4, pass_number=numbers), i, robot(), agreed).pass_number.tolist()
        for i in (0, 1)
    )
    assert not set(one[:3]) & set(other[:3]) and len(set(one[:3])) == len(set(other[:3])) == 3
    assert one[3] < 0 and other[3] < 0, "a cell of no pass is of none"


def test_columns_that_some_cells_lack_are_filled_with_what_that_means():
    maker = CellMaker(SETTINGS)
    maker.made = [
        cells(
            2,
            count=torch.tensor([4.0, 5.0]).double(),
            pass_number=torch.tensor([0.0, 0.0]).double(),
        ),
        Samples(torch.ones(3, 2).double(), torch.ones(3, 1).double()),
    ]
    got = maker.joined_cells()
    assert got.count.tolist() == [4.0, 5.0, 1.0, 1.0, 1.0] and got.pass_number.tolist() == [
        0.0,
        0.0,
        -1.0,
        -1.0,
        -1.0,
    ]
    assert (
        got.heading[2:].abs().sum() == 0
        and got.sensor_variance is None
        and CellMaker(SETTINGS).joined_cells() is None
    )


# ---- who is to be mended ---------------------------------------------------------------------------------------------


def rows(**changed):
    """Five robots alike but for a little; the last one with something changed."""
    out = []
    for i in range(5):
        row = row_of(
            BagReport(f"r{i}", samples=1000, dropped_measurements=10, gross=2),
            Robot(noise=0.5 * UT, white=0.2 * UT),
            None,
            UT,
        )
        row |= {
            "scatter": 1.0 + 0.01 * i,
            "bias": 0.01 * i,
            "bias_stddev": 0.01,
            "gain": 1.0,
            "gain_stddev": 0.001,
            "level": 48.0,
            "field_stddev": 8.0,
        }
        out.append(row)
    out[-1] |= changed
    return out


@pytest.mark.parametrize(
    "changed, figures",
    [
        ({}, []),
        ({"noise": 5.0}, ["noise"]),
        ({"noise": 0.05}, []),
        ({"white": 3.0}, ["white"]),
        ({"white": None}, []),
        ({"scatter": 4.0}, ["scatter"]),
        ({"bias": 30.0}, ["bias"]),
        ({"bias": -30.0}, ["bias"]),
        ({"bias": 30.0, "gain": 0.5}, ["gain"]),
        ({"bias": 9.6, "gain": 1.2}, ["scale"]),
        ({"bias": -2.4, "gain": 0.951}, ["scale"]),
        ({"bias": -2.4, "gain": 0.951, "gain_stddev": 0.03}, ["bias"]),
        ({"bias": 9.6, "gain": 1.2, "noise": 5.0}, ["scale", "noise"]),
        ({"bias": 1.0, "gain": 1.0, "level": 0.0}, []),
        ({"bias": 0.9, "scatter": 0.3}, []),
        ({"gain": 0.98}, []),
        ({"gain": 0.5, "gain_stddev": 0.2}, []),
        ({"dropped": 20.0}, ["dropped"]),
        ({"dropped": 0.0}, []),
        ({"faults": ["dead"]}, ["faults"]),
        ({"gross": 4.0, "noise": 50.0}, ["noise", "gross"]),
    ],
)
def test_who_is_far_from_the_others_is_named_with_what_matters(changed, figures):
    found = find_outliers(rows(**changed), "µT")
    assert [one["figure"] for one in found] == figures and all(one["bag"] == "r4" for one in found)


def test_who_is_farthest_off_leaves_first_and_a_majority_stays():
    """With one robot of ×1.2 and another of ×0.97, only the first leaves: the second may be an effect of it."""
    few = rows(bias=9.6, gain=1.2)
    few[0] |= {"bias": -2.4, "gain": 0.95}
    found = find_outliers(few, "µT")
    assert [(one["bag"], one["figure"]) for one in found] == [("r4", "scale"), ("r0", "scale")]
    assert "×1.200 ± 0.00" in found[0]["text"] and found[0]["value"] == pytest.approx(1.2, abs=1e-3)
    assert robots_to_leave_out(few, found) == {"r4"}

    few[0] |= {
        "bias": -9.6,
        "gain": 0.8,
    }  # both far: of five two may leave; half of four is the fleet's own spread
    assert robots_to_leave_out(few, find_outliers(few, "µT")) == {"r0", "r4"}
    four = [few[0], *few[2:]]
    assert find_outliers(four, "µT") == [] and "scale ± 0." in notes_of(four, "µT", False)[0]
    few[4]["left_out"] = few[0]["left_out"] = True
    assert robots_to_leave_out(few, find_outliers(few, "µT")) == set()


def test_a_constant_and_a_scale_that_explain_alike_are_both_said():
    found = find_outliers(rows(bias=-2.4, gain=0.975, gain_stddev=0.015), "µT")
    assert [one["figure"] for one in found] == ["bias"]
    assert "a scale of ×0.9" in found[0]["text"] and "explain that alike" in found[0]["text"]


def test_what_the_comparison_cannot_tell_is_said():
    alone, four = rows()[:1], rows()[:4]
    assert "no other to compare it with" in notes_of(alone, "µT", False)[0]
    assert notes_of(four, "µT", False) == [] and "still lie apart" in notes_of(four, "µT", True)[0]
    four[0]["bias"] = None
    assert len(notes_of([*rows(), four[0]], "µT", False)) == 1
    for row in four:
        row["bias"] = None
    assert "too few of each other's places" in notes_of(four, "µT", False)[0]


def test_shares_are_of_what_came():
    row = rows()[0]
    assert row["dropped"] == pytest.approx(100.0 * 10 / 1010) and row["gross"] == pytest.approx(0.2)
    assert (
        row["noise"] == pytest.approx(0.5) and row["compared_cells"] == 0 and row["delay"] is None
    )


def test_the_spread_among_few_robots_is_a_standard_deviation():
    """On average over many fleets of five: the plain median of differences would be a fourth less."""
    drawn, found = np.random.default_rng(0).normal(0.0, 1e6, (400, 5)), []
    for biases in drawn:
        fleet = [row | {"bias": float(bias)} for row, bias in zip(rows(), biases)]
        found.append(wide_figures(fleet)["bias"])
    assert np.mean(found) == pytest.approx(1e6, rel=0.05)


def test_who_only_seemed_far_comes_back_and_stays(monkeypatch):
    """Beside a wrong robot a good one may seem far; once it has come back it does not leave again."""
    seen = []

    class Compared:
        def __init__(self, *_):
            pass

        def compare(self, out, number):
            seen.append(sorted(out))
            return [number] * 6

    def find(rows, unit):
        far = {0: "r0 r1", 1: "r0", 2: "r0 r1"}.get(len(seen) - 1, "r0 r1")
        return [{"bag": bag, "figure": "bias", "far": 9.0} for bag in far.split()]

    reports = [BagReport(f"r{i}", samples=1, dropped_measurements=0, gross=0) for i in range(6)]
    monkeypatch.setattr(rounds, "_Rounds", Compared)
    monkeypatch.setattr(rounds, "find_outliers", find)
    monkeypatch.setattr(
        rounds, "row_of", lambda report, robot, found, scale: {"bag": report.bag, "bias": 1.0}
    )
    bags = SimpleNamespace(reports=reports, robots=[None] * 6)
    compared = rounds.compare_fleet(None, bags, None, 0.0, UT, "µT")
    assert seen == [[], [0, 1], [0]] and compared.unsettled
    assert [row["bag"] for row in compared.rows if row["left_out"]] == ["r0"]


def test_all_robots_of_a_fleet_have_one_kernel(tmp_path):
    """A map of this bag alone finds a smoother one; maps of different kernels are not summed."""
    write_drive(tmp_path / "bag", lanes(count=6, length=2.0), rate=10.0)
    job = Job(0, str(tmp_path / "bag"), parameters(max_inducing=40, learn_time_offset=False), {})
    found, _ = calibrate(job, 90)
    assert found.failed == "" and found.theta.kernel_name == "matern52"
