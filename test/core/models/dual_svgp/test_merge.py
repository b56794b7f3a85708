"""Merging two robots' maps: the union where all is remembered; sites that add where it is not."""

import copy

import numpy as np
import pytest
import torch
from core_data import (
    SETTINGS,
    THETA,
    UT,
    close,
    drive,
    feed,
    in_ut,
    lattice,
    samples,
    titsias_by_qr,
)
from map_contract import same_state

from gp_mapping import create_map

X, Y = drive(300)
SHIFT = np.array([[40.3, -17.8]])  # so that the two maps have different origins
X = X + SHIFT
XS = np.random.default_rng(1).uniform(-0.5, 3.5, (60, 2)) + SHIFT
Z = lattice(0.4, margin=0.2) + SHIFT
PLACES = torch.from_numpy(XS)


def built(part, size=20, **settings):
    field = create_map("dual_svgp", **(SETTINGS | settings))
    feed(field, samples(X[part], Y[part]), size)
    return field


def expected_at(z, centre, theta=THETA, noise=1.0):
    return titsias_by_qr(X, Y - centre, np.full(len(X), noise), z, XS, **theta)


def agrees(field, expected, tolerance=1e-8):
    mean, variance = in_ut(field.predict(PLACES))
    close(mean - float(field.scaling.centre) / UT, expected[0], tolerance, "mean")
    close(variance[:, 0] / expected[1], np.ones(len(XS)), tolerance, "variance")


def test_at_fixed_inputs_it_is_the_union_whatever_is_remembered():
    """Origins and centres differ: the centre is the first batch's mean, the origin the first position."""
    for memories in ((2000, 2000), (30, 2000), (2000, 30), (30, 30), (0, 0)):
        left = built(slice(0, 140), inducing_inputs=Z, memory_size=memories[0])
        right = built(slice(140, 300), inducing_inputs=Z, memory_size=memories[1])
        assert abs(float(left.scaling.centre - right.scaling.centre)) > 0.5 * UT
        assert not torch.equal(left.scaling.origin, right.scaling.origin)
        kept = copy.deepcopy(right.state_dict())
        left.merge(right)
        agrees(left, expected_at(Z, float(left.scaling.centre) / UT))
        assert left.samples == 300 and len(left.memory) == min(
            memories[0], sum(min(m, n) for m, n in zip(memories, (140, 160)))
        )
        assert same_state(kept, right.state_dict())


def test_three_robots_in_any_order():
    parts = [slice(0, 90), slice(90, 200), slice(200, 300)]
    for order in ((0, 1, 2), (2, 0, 1)):
        field = built(parts[order[0]], inducing_inputs=Z, memory_size=20)
        for i in order[1:]:
            field.merge(built(parts[i], inducing_inputs=Z, memory_size=20))
        agrees(field, expected_at(Z, float(field.scaling.centre) / UT))


def test_grown_maps_merge_into_batch_sgpr_at_the_joint_inputs():
    left, right = built(slice(0, 140)), built(slice(140, 300))
    left.merge(right)
    z = (left.basis.z + left.scaling.origin).numpy()
    assert len(z) > max(len(right.basis), 20)
    agrees(left, expected_at(z, float(left.scaling.centre) / UT))
    # and goes on as one map
    more, theirs = drive(60, seed=3)
    left.update(samples(more + SHIFT, theirs))
    assert left.samples == 360 and left.jitter == 0.0


def test_other_hyperparameters_are_carried_first():
    settings = {"lengthscale": 0.6, "signal_stddev": 14 * UT, "noise_stddev": 1.4 * UT}
    left = built(slice(0, 140), inducing_inputs=Z)
    right = built(slice(140, 300), inducing_inputs=Z, **settings)
    left.merge(right)
    agrees(left, expected_at(Z, float(left.scaling.centre) / UT))
    assert right.hyperparameters()["lengthscale"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "memory, end", [(40, 300), (120, 180)]
)  # which both fill together, and the first not alone
def test_after_a_merge_the_memory_is_sound(memory, end):
    """What stands in the sites can be taken out; arrival numbers stay below the count, or old samples pass for new."""
    left, right = (
        built(part, memory_size=memory, max_inducing=60) for part in (slice(0, 60), slice(60, end))
    )
    left.merge(right)
    assert len(left.memory) == memory
    rest = left.unremembered_sites()
    assert float(torch.linalg.eigvalsh(rest.precision)[0]) > 1 - 1e-9
    rest.add(left.memory.whitened(left.basis.size), left.memory.beta, left.memory.lam)
    close(
        rest.precision, left.sites.precision, 1e-9, "the rest and the memory are all that there is"
    )
    close(left.memory.whitened(left.basis.size), left.basis.whitened(left.memory.x), 1e-7)
    assert float(left.memory.order.max()) < left.memory.arrivals
    x, y = drive(10, seed=5)
    left.update(samples(x + SHIFT, y))
    newest = left.memory.x[left.memory.order.topk(10).indices] + left.scaling.origin
    close(
        torch.sort(newest[:, 0]).values,
        np.sort(x[:, 0] + SHIFT[0, 0]),
        1e-9,
        "the newest in memory",
    )


@pytest.mark.parametrize("information", [1.0, 0.0])
def test_what_another_map_no_longer_remembers_stays_known_where_it_was(information):
    """Its inducing inputs come along: nothing else of its pseudo-data knows a place."""
    settings = {"memory_size": 10, "inducing_information": information}
    left, right = built(slice(0, 20), **settings), built(slice(140, 260), **settings)
    places = torch.from_numpy(X[140:260:5])
    before = right.predict(places)
    left.merge(right)
    after = left.predict(places)
    assert float((after.stddev / before.stddev).max()) < 1.1
    assert float(((after.mean - before.mean) / before.stddev).abs().max()) < 1.0


def test_maps_too_different_to_add_are_refused():
    field = built(slice(0, 100))
    before = copy.deepcopy(field.state_dict())
    for other in (
        built(slice(100, 200), kernel="rbf"),
        built(slice(100, 200), field_scale=1e-9),
        create_map("exact", **SETTINGS),
    ):
        with pytest.raises(ValueError, match="merge|differ"):
            field.merge(other)
        assert same_state(before, field.state_dict())


def test_a_robot_with_a_heading_and_one_without():
    """The other's features are another set; the merged map has the first one's."""
    for ours, theirs in ((0.0, 0.5 * UT), (0.5 * UT, 0.0)):
        left = built(slice(0, 140), inducing_inputs=Z, memory_size=20, heading_stddev=ours)
        right = built(slice(140, 300), inducing_inputs=Z, memory_size=20, heading_stddev=theirs)
        left.merge(right)
        agrees(left, expected_at(Z, float(left.scaling.centre) / UT), 1e-6)


def test_merged_with_itself_everything_counts_twice():
    field, twice = built(slice(0, 300), inducing_inputs=Z), built(slice(0, 300), inducing_inputs=Z)
    field.merge(field)
    feed(twice, samples(X, Y), 50)
    close(field.sites.precision, twice.sites.precision, 1e-10)


def test_in_a_full_budget_the_inputs_stay_of_which_the_data_tell_most():
    """Whichever map comes first: before, its own inputs stayed, and the other's found no room."""
    full = {"max_inducing": 40, "inducing_information": 0.1, "memory_size": 20}
    exact = create_map("exact", **SETTINGS)
    feed(exact, samples(X, Y), 300)
    truth = in_ut(exact.predict(PLACES))
    away = []
    for first, second in ((slice(0, 200), slice(200, 300)), (slice(200, 300), slice(0, 200))):
        field = built(first, **full)
        field.merge(built(second, **full))
        mean, _ = in_ut(field.predict(PLACES))
        away.append(float(((mean - truth[0]) ** 2 / truth[1]).mean() ** 0.5))
        assert len(field.basis) <= 40 == field.max_inducing == field.basis.capacity
        assert field.sites.capacity == field.memory.rows == field.basis.features + 40
    assert max(away) < 1.2 * min(away)


def test_more_inputs_come_nearer_to_the_exact_map_and_go_with_the_next_samples():
    field = built(slice(0, 290), inducing_information=1.0, max_inducing=300)
    exact = create_map("exact", **SETTINGS)
    feed(exact, samples(X[:290], Y[:290]), 290)
    truth, before = exact.predict(PLACES), len(field.basis)
    field.use_budget()
    away = (field.predict(PLACES).mean - truth.mean).abs() / truth.variance.sqrt()
    assert float(away.square().mean().sqrt()) < 0.1 and before < len(field.basis) <= 0.8 * 300
    assert field.information == 1.0
    feed(field, samples(X[290:], Y[290:]), 10)
    assert len(field.basis) < 1.2 * before


@pytest.mark.parametrize("model", ["dual_svgp", "exact"])
def test_constants_of_two_robots_are_found_where_the_maps_are_merged(model):
    """Neither robot can know of the other's: alone, each has one pass, whose constant is the field's."""
    interleaved = np.arange(300) // 15 % 2  # both have been everywhere
    given = SETTINGS | {"learn_hyperparameters": True, "bias_stddev": 0.1 * UT}
    robots = []
    for number, bias in ((0, 2.0), (1, -2.0)):
        field, mine = create_map(model, **given), interleaved == number
        batch = samples(X[mine], Y[mine] + bias)
        feed(field, batch.of_pass(0.0), 20)
        robots.append(field)
    one, two = robots
    one.merge(two)
    assert one.hyperparameters()["bias_stddev"] > 0.5 * UT  # of constants of ± 2 µT
    found = [float(pass_.mean[0]) / UT for pass_ in one.biases()]
    assert len(found) == 2 and abs(found[0] - found[1] - 4.0) < 0.5
