"""Learning by blocks: the sum of what they say, where it comes to rest, and in fields that no stationary prior fits."""

import math
from dataclasses import replace

import pytest
import torch
from test_learner_bayes import (
    LEARNED,
    NOISE,
    SIGNAL,
    cells_of,
    drive,
    evidence,
    highest,
    learn,
    random_field,
)

from gp_mapping.core.hyper.blocks import Blocks
from gp_mapping.core.hyper.evidence import (
    evidence_score,
    negative_log_evidence,
    sample_covariance,
)
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.surprise import attainable_gain, whitened
from gp_mapping.core.hyper.theta import Theta

TRUTH = Theta(1.0, SIGNAL, NOISE, 5.0)


def rough_corner(count=400, seed=0):
    """A smooth field, and in a quarter of the square a quarter of its lengthscale: cells in the order of a drive."""
    x = drive(count, 0.1, 0.5)
    middle = 0.5 * (x.amin(0) + x.amax(0))
    inside = (x > middle).all(1).double()
    g = torch.Generator().manual_seed(seed)
    y = random_field(1.2, seed)(x) + inside * random_field(0.3, 50 + seed)(x)
    y = SIGNAL * y[:, None] + 0.03 * torch.randn(len(x), 1, dtype=torch.float64, generator=g)
    still = torch.zeros_like(x)
    return {
        "x": x,
        "velocity": still,
        "heading": still,
        "y": y - y[0],
        "extra": torch.full((len(x),), 1e-4, dtype=torch.float64),
        "order": torch.arange(len(x), dtype=torch.float64),
    }


def test_boxes_part_the_plane():
    """Every sample lies in one box, none holds more than it may, and a later sample is in one of them, too."""
    x = torch.randn(700, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocks = Blocks.empty(2, 7).split(x, 100)
    assert (
        7 <= len(blocks.low) <= 14
        and int(blocks.count_in(x).max()) <= 100
        and int(blocks.count_in(x).sum()) == 700
    )
    far = 1e3 * torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inside = (far[:, None] >= blocks.low) & (far[:, None] < blocks.high)
    assert bool((inside.all(2).sum(1) == 1).all())
    same = torch.zeros(300, 2, dtype=torch.float64)
    assert len(Blocks.empty(2, 7).split(same, 100).low) == 1, (
        "what lies at one place cannot be parted"
    )


def test_the_sum_of_what_blocks_say():
    """slope is Σ g_b + A_b (v − v_b); news counts what came, what went, and nats."""
    g = torch.Generator().manual_seed(3)
    x = torch.rand(60, 2, dtype=torch.float64, generator=g)
    order, blocks = torch.arange(60.0, dtype=torch.float64), Blocks.empty(2, 3).split(x, 30)
    said = []
    for which in range(2):
        v, slope, root = (
            torch.randn(n, dtype=torch.float64, generator=g) for n in ((3,), (3,), (3, 3))
        )
        said.append((v, slope, root @ root.mT))
        blocks = blocks.with_evaluation(which, 30, 59.0, *said[-1])
        assert blocks.is_incomplete(x) == (which == 0)
    v = torch.randn(3, dtype=torch.float64, generator=g)
    v[1:] -= 5.0  # variances that have fallen: the quadratic is right about them, or too large
    assert torch.allclose(blocks.slope(v), sum(slope + bend @ (v - at) for at, slope, bend in said))

    nats = [0.5 * float((v - at) @ bend @ (v - at)) for at, _, bend in said]
    assert blocks.staleness(x, order, v).tolist() == pytest.approx(nats)
    left = x[1:] if int(blocks.box_of(x[:1])) == 0 else x[blocks.box_of(x).argsort()[1:]]
    kept = torch.arange(1.0, 60.0, dtype=torch.float64)
    assert float(blocks.staleness(left, kept.clamp_max(59.0), v).sum()) == pytest.approx(
        sum(nats) + 1 / 3.0
    )
    more, later = torch.cat([x, x[:1]]), torch.arange(61.0, dtype=torch.float64)
    assert float(blocks.staleness(more, later, v).sum()) == pytest.approx(sum(nats) + 1 / 3.0)


@pytest.mark.parametrize("entry, away", [(1, 5.0), (2, 14.0)], ids=["signal", "noise"])
def test_a_variance_that_grows_makes_a_block_stale_by_what_its_quadratic_misses(entry, away):
    """A of one that is too small to show says next to nothing of e³ times as much: the block is asked again."""
    data, near = cells_of(1.0, 60, 3, 0.1, 0.5), torch.arange(60)
    data["extra"] = torch.zeros_like(data["extra"])
    learner, at = HyperLearner(TRUTH, TRUTH, free=LEARNED), TRUTH.vector()
    at[entry] = at[3 - entry] - away
    information = learner.score(at, data, near)[1]
    said = 60, 59.0, at, torch.zeros_like(at), information
    blocks = Blocks.empty(2, 7).with_evaluation(0, *said)

    places = [data[name] for name in ("x", "velocity", "heading", "extra")]
    covariance = sample_covariance(TRUTH, at, *places)
    for grown in (0.1, 1.5, 3.0):
        v = at.clone()
        v[entry] += grown
        other = sample_covariance(TRUTH, v, *places)
        ratio = torch.linalg.solve(other, covariance)
        expected = 0.5 * float(
            ratio.trace() - 60.0 - ratio.logdet()
        )  # nats that v loses against at
        stale = float(blocks.staleness(data["x"], data["order"], v))
        assert expected <= stale + 1e-6, (grown, expected, stale)

    plain = 0.5 * float((v - at) @ information @ (v - at))
    assert expected > 3.0 * plain and stale < 20.0 * expected, (expected, plain, stale)
    nothing = Blocks.empty(2, 7).with_evaluation(0, 60, 59.0, v, torch.zeros_like(at), information)
    learner.vector, learner.ENOUGH = v, 2.0 * plain
    for each, asked in ((blocks, True), (nothing, False)):
        learner.blocks = each
        assert learner.step(data | {"y": 0.0 * data["y"]}, torch.Generator()) == asked
        learner.vector = v


def test_average_information_is_the_mean_of_expected_and_observed():
    """A = ½ (F + H) but for second derivatives, which σ² and s² have not: by automatic differentiation."""
    data = cells_of(1.0, 60, 1, 0.1, 0.5)
    parts = [data[name] for name in ("x", "velocity", "heading", "y", "extra")]
    theta = Theta(1.0, 1.2, 0.3, 5.0)
    average = evidence_score(theta, theta.vector(), list(LEARNED), *parts, average=True)[1]
    fisher = evidence_score(theta, theta.vector(), list(LEARNED), *parts)[1]

    def of_variances(v):  # linear in the covariance
        logs = torch.cat([theta.vector()[:1], v.log(), theta.vector()[3:]])
        return len(data["x"]) * negative_log_evidence(theta, logs, *parts)

    variances = torch.tensor([1.2**2, 0.3**2], dtype=torch.float64)
    observed = (
        torch.autograd.functional.hessian(of_variances, variances) * variances[:, None] * variances
    )
    assert torch.allclose(average[1:3, 1:3], 0.5 * (fisher[1:3, 1:3] + observed), rtol=1e-8)
    turned = torch.stack([torch.linspace(0.0, 1.0, 60), torch.linspace(1.0, 0.0, 60)], 1).double()
    gradient, bent = evidence_score(
        replace(theta, heading_stddev=0.2),
        replace(theta, heading_stddev=0.2).vector(),
        [True] * 7,
        parts[0],
        turned,
        turned,
        *parts[3:],
        average=True,
    )
    assert float(bent.diagonal().min()) > 0 and bool(torch.isfinite(gradient).all())
    assert float(torch.linalg.eigvalsh(bent).min()) > -1e-9 * float(bent.diagonal().max())


@pytest.mark.parametrize("seed", range(3))
def test_a_field_that_no_stationary_prior_fits(seed):
    """Its parts contradict each other: still the maximum of the evidence of all cells, where minibatches lose tens."""
    data = rough_corner(seed=seed)
    start = replace(TRUTH, lengthscale=0.5)
    learner = learn(start, start, data)
    best = highest(data, learner.vector)
    assert best - evidence(data, learner.vector) <= 3.0, learner.vector


def test_a_lengthscale_below_the_spacing_of_cells_is_left():
    """There the evidence has no slope: cells are white to each other, whatever the field is."""
    data = cells_of(1.0, 200, 1, 0.2, 0.4)
    start = Theta(0.02, SIGNAL, NOISE, 5.0)
    learner = learn(start, start, data)
    assert highest(data, TRUTH.vector()) - evidence(data, learner.vector) <= 3.0, (
        learner.vector.exp()
    )


def test_nothing_new_costs_nothing():
    """Once it is at rest, pending steps compute nothing until samples come; then the first of them count at once."""
    data = cells_of(1.0, 300, 2, 0.1, 0.5)
    learner, generator = learn(TRUTH, TRUTH, data), torch.Generator().manual_seed(0)
    for _ in range(20):
        learner.step(data, generator)
    vector, blocks, asked = learner.vector, learner.blocks, learner.score_average
    learner.score_average = None  # whoever asks fails
    assert not any(learner.step(data, generator) for _ in range(5))
    assert learner.vector is vector and learner.blocks is blocks
    learner.score_average, steps = asked, learner.steps

    wild = {name: torch.cat([column, column[-20:]]) for name, column in data.items()}
    wild["y"][-20:] += 10.0 * torch.randn(20, 1, dtype=torch.float64, generator=generator)
    wild["order"][-20:] += 20.0
    before = evidence(wild, learner.vector)
    while learner.step(wild, generator):
        pass
    assert evidence(wild, learner.vector) > before + 5.0 and learner.steps <= steps + 40


def test_it_goes_on_from_its_state_bit_for_bit():
    data = cells_of(0.3, 450, 2, 0.1, 0.3)  # more than a block
    half = {name: column[:420] for name, column in data.items()}
    learner, generator = learn(TRUTH, TRUTH, half), torch.Generator().manual_seed(0)
    assert len(learner.blocks.low) == 2
    other = HyperLearner(TRUTH, TRUTH, free=LEARNED)
    other.load_state_dict(learner.state_dict())
    for one in (learner, other):
        while one.step(data, generator):
            pass
    assert all(
        bool(torch.isfinite(column.double()).all())
        for column in learner.state_dict()["blocks"].values()
    )
    assert torch.equal(learner.vector, other.vector) and torch.equal(learner.metric, other.metric)
    assert learner.steps == other.steps and not learner.streams


def test_blocks_given_those_before_are_the_whole():
    """Σ_b −log p(y_b | y_before) is −log p(y): its slope is that of all cells where all before are given."""
    data, learner = cells_of(0.3, 240, 2, 0.1, 0.3), HyperLearner(TRUTH, TRUTH, free=LEARNED)
    blocks, vector = (
        Blocks.empty(2, 7).split(data["x"], 80),
        replace(TRUTH, lengthscale=0.5).vector(),
    )
    assert len(blocks.low) == 4
    sums = {}
    for most in (0, 60, 240):
        parts = [blocks.members(which, data["x"], most) for which in range(4)]
        assert not len(parts[0][1]) and all(
            len(given) <= most and bool((blocks.box_of(data["x"])[given] < which).all())
            for which, (_, given) in enumerate(parts)
        )
        sums[most] = sum(learner.score_average(vector, data, *part)[0] for part in parts)
    whole = learner.score(vector, data, torch.arange(240))[0]
    assert torch.allclose(sums[240], whole, rtol=1e-9, atol=1e-9)
    assert (sums[60] - whole).norm() < 0.5 * (sums[0] - whole).norm()


@pytest.mark.parametrize("seed", range(2))
def test_a_cut_costs_nothing(seed):
    """The halves are evaluated at once, the second given what lies beside it: v stays where the whole had it."""
    data = rough_corner(301, seed)
    start = replace(TRUTH, lengthscale=0.5)
    learner = learn(start, start, {name: column[:300] for name, column in data.items()})
    generator = torch.Generator().manual_seed(0)
    while learner.step({name: column[:300] for name, column in data.items()}, generator):
        pass
    assert len(learner.blocks.low) == 1
    learner.step(data, generator)
    assert len(learner.blocks.low) == 2 and bool((learner.blocks.count > 0).all())
    assert highest(data, learner.vector) - evidence(data, learner.vector) <= 1.5, learner.vector


@pytest.mark.parametrize("rougher", [False, True])
def test_a_few_samples_that_contradict_are_heard_at_once(rougher):
    """Five where the field is rough are worth nats, and five of the field that was learned are worth none."""
    data = rough_corner(155) if rougher else cells_of(1.0, 155, 2, 0.1, 0.5)
    if rougher:  # the last five lie beside the path so far, where another field begins
        y = data["y"].clone()
        y[150:] += SIGNAL * torch.tensor([[1.0], [-1.0], [1.0], [-1.0], [1.0]])
        data = data | {"y": y}
    before, generator = (
        {name: column[:150] for name, column in data.items()},
        torch.Generator().manual_seed(0),
    )
    start = replace(TRUTH, lengthscale=0.8)
    learner = learn(start, start, before)
    learner.ENOUGH = 0.01  # to rest: what comes then is all that is new
    while learner.step(before, generator):
        assert learner.steps < 200
    learner.ENOUGH = HyperLearner.ENOUGH
    asked = int(learner.blocks.count.sum())
    assert learner.step(data, generator) == rougher
    assert int(learner.blocks.count.sum()) == (155 if rougher else asked)


def test_what_is_to_be_gained_by_another_variance():
    """G is the maximum over c of what both would say with c times the variance, above what they say now."""
    new, before, square = 5, 200, 41.0

    def says(c):
        return -0.5 * ((before + new) * math.log(c) + (before + square) / c)

    best = max(says(math.exp(k / 1000.0)) for k in range(-1000, 1000))
    assert attainable_gain(square, new, before) == pytest.approx(best - says(1.0), abs=1e-4)
    assert (
        attainable_gain(5.0, new, before) == 0.0 and 0.0 < attainable_gain(0.0, new, before) < 0.1
    )


def test_new_samples_are_white_given_those_before():
    """z is what the factor of all covariances says of them; of many before, the nearest do."""
    data = cells_of(0.5, 220, 3, 0.1, 0.3)
    columns = [data[name] for name in ("x", "velocity", "heading", "y", "extra")] + [None]
    theta, new, before = Theta(0.5, SIGNAL, NOISE, 5.0), torch.arange(210, 220), torch.arange(210)
    factor = torch.linalg.cholesky(
        sample_covariance(theta, theta.vector(), *columns[:3], data["extra"])
    )
    expected = torch.linalg.solve_triangular(factor, data["y"], upper=False)[210:]
    assert torch.allclose(whitened(theta, theta.vector(), columns, new, before, 210), expected)
    near = whitened(theta, theta.vector(), columns, new, before, 100)
    # the others tell of the field's mean alone
    assert torch.allclose(near, expected, atol=0.1) and not torch.equal(near, expected)


def test_a_block_that_cannot_be_evaluated_holds_up_no_other():
    """It counts as rejected once, keeps what it said, and is tried again when v or its samples have changed."""
    data, generator = cells_of(1.0, 500, 2, 0.1, 0.5), torch.Generator().manual_seed(0)
    wrong = data | {"y": data["y"].clone()}
    wrong["y"][100] = math.nan
    start = replace(TRUTH, lengthscale=0.5)
    learner = HyperLearner(start, start, free=LEARNED)
    while learner.step(wrong, generator) or learner.steps < 5:
        assert learner.steps < 40
    box = int(learner.blocks.box_of(data["x"][100:101]))
    assert len(learner.blocks.low) == 2 and not bool(learner.blocks.information[box].any())
    # the other block alone was heard, and v is where that block and the prior want it
    assert learner.theta.lengthscale > 0.6
    slope = learner.blocks.slope(learner.vector) + learner.prior_precision(1, 1, 1) * (
        learner.vector - learner.prior.vector()
    )
    assert float((torch.linalg.solve(learner.metric, slope)[:3]).abs().max()) < 0.05
    # first at the start, and then once v had gone some way: not with every step
    assert 2 <= learner.rejected <= learner.steps // 2

    # where it can be evaluated again, that is as good as if it always could
    steps, samples = learner.steps, data | {"order": data["order"] + (data["order"] > 450) * 500.0}
    while learner.step(samples, generator):
        assert learner.steps < steps + 40
    whole = learn(start, start, data)
    while whole.step(data, generator):
        pass
    assert bool(learner.blocks.information[box].any())
    away = learner.vector - whole.vector
    assert 0.5 * float(away @ whole.metric @ away) < 0.5  # nats; a block is asked again at one


def test_where_no_block_can_be_evaluated_nothing_moves():
    """Nor towards the prior, about which nothing was said; a block that has spoken goes on saying that."""
    data, generator = cells_of(1.0, 300, 2, 0.1, 0.5), torch.Generator().manual_seed(0)
    wrong = data | {"y": data["y"] * math.nan}
    learner = HyperLearner(replace(TRUTH, lengthscale=0.5), TRUTH, free=LEARNED)
    vector = learner.vector
    assert not any(learner.step(wrong, generator) for _ in range(5))
    assert learner.rejected == 1 and learner.vector is vector

    learner = learn(TRUTH, TRUTH, data)
    while learner.step(data, generator):
        pass
    before, slope = learner.vector, learner.blocks.slope(TRUTH.vector())
    late = wrong | {"order": data["order"] + (data["order"] > 250) * 300.0}
    assert not learner.step(late, generator) and learner.rejected == 1
    assert torch.allclose(learner.blocks.slope(TRUTH.vector()), slope, rtol=1e-9)
    assert torch.allclose(learner.vector, before, atol=0.02)


def test_by_minibatches_where_most_is_forgotten():
    """And where θ came from outside, whose samples are not here."""
    data = cells_of(1.0, 300, 2, 0.1, 0.5)
    learner, generator = learn(TRUTH, TRUTH, data), torch.Generator().manual_seed(0)
    assert not learner.streams and learner.seen == 300
    late = {name: column[-140:] for name, column in data.items()}
    learner.step(late, generator)
    assert learner.streams and learner.blocks is None

    settled = HyperLearner(TRUTH, TRUTH, free=LEARNED)
    settled.continue_from(TRUTH, torch.eye(7, dtype=torch.float64))
    assert settled.streams


def test_a_part_that_is_too_long_holds_up_no_other():
    """The rest of the step is the best beside it: the minimum of the quadratic in the box."""
    learner = HyperLearner(TRUTH, TRUTH, free=LEARNED)
    learner.metric = torch.eye(7, dtype=torch.float64) + 0.3
    learner.metric[2, 2] = 0.5
    downhill = torch.tensor([0.2, -0.1, 8.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    move = learner.limited_step(downhill, learner.low)
    assert float(move[2]) == HyperLearner.LONGEST[2] and float(move[3:].abs().max()) == 0.0
    rest = torch.linalg.solve(
        learner.metric[:2, :2], downhill[:2] - learner.metric[:2, 2] * move[2]
    )
    assert torch.allclose(move[:2], rest) and float(rest.abs().max()) < 0.5
    assert math.isclose(
        float(learner.limited_step(0.01 * downhill, learner.low)[2]),
        float(torch.linalg.solve(learner.metric[:3, :3], 0.01 * downhill[:3])[2]),
    )


def test_where_a_limit_holds_one_entry_the_others_are_at_their_best_given_it():
    """A step across a limit that is cut off afterwards leaves the others where nothing is best."""
    learner = HyperLearner(TRUTH, TRUTH, free=LEARNED)
    learner.metric = torch.eye(7, dtype=torch.float64) + 0.3
    downhill = torch.tensor([0.4, -0.1, 0.2, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    for room in (0.0, 0.01, -0.2):  # to the limit; below it where that was raised
        low = learner.low.clone()
        low[0] = learner.vector[0] - room
        move = learner.limited_step(downhill, low)
        assert float(move[0]) == pytest.approx(room, abs=1e-12)
        left = downhill[1:3] - learner.metric[1:3, 0] * move[0]
        assert torch.allclose(move[1:3], torch.linalg.solve(learner.metric[1:3, 1:3], left))


def test_a_memory_in_any_order_teaches_what_one_in_order_of_time_does():
    """A full one keeps its samples in any order: ℓ was kept above half the way between its rows.

    A map of 25 m, good after 11 minutes, was wrong by half of its field's spread two minutes later.
    """
    data, found = rough_corner(200), []
    shuffled = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    for rows in (torch.arange(200), shuffled):
        learner = HyperLearner(TRUTH, TRUTH, free=LEARNED)
        for _ in range(12):
            learner.step({name: column[rows] for name, column in data.items()}, torch.Generator())
        found.append(learner.vector)
    x = data["x"][shuffled]
    between = float((x[1:] - x[:-1]).norm(dim=1).median())
    assert math.exp(float(found[0][0])) < 0.4 * between
    assert torch.allclose(*found, atol=0.02)


def test_what_is_known_bends_as_many_cells_do_and_never_less_than_the_prior():
    """Of few cells the information is Fisher's, of many the average; Λ has the prior in it once."""
    data = rough_corner(400)
    learner = HyperLearner(TRUTH, TRUTH, free=LEARNED)
    few, many, none = torch.arange(60), torch.arange(300), torch.arange(0)
    assert torch.equal(
        learner.score_average(learner.vector, data, few, none)[1],
        learner.score(learner.vector, data, few)[1],
    )
    bent, expected = (
        learner.score_average(learner.vector, data, many, none)[1],
        learner.score(learner.vector, data, many)[1],
    )
    assert not torch.allclose(bent, expected, rtol=0.05)
    louder = {**data, "y": 2.0 * data["y"]}  # A is quadratic in the data, F knows nothing of them
    assert torch.allclose(learner.score_average(learner.vector, louder, many, none)[1], 4.0 * bent)

    learner.step(
        {name: column[:6] for name, column in data.items()}, torch.Generator().manual_seed(0)
    )
    prior = learner.prior_precision(1, 1, 1)
    assert torch.allclose(
        learner.metric, learner.blocks.information.sum(0) + torch.diag(prior), rtol=0.3
    )
    assert float((learner.covariance().diagonal()[:3] / learner.prior_sd[:3].square()).max()) <= 1.0


def test_nothing_moves_until_each_box_with_samples_was_asked_also_one_with_a_single_sample():
    x = torch.tensor([[0.0, 0.0], [9.0, 0.0]]).double()
    blocks = Blocks.empty(2, 7).split(x, 1)
    assert blocks.count_in(x).tolist() == [1, 1]
    vector, said = torch.zeros(7).double(), (torch.ones(7).double(), torch.eye(7).double())
    assert blocks.is_incomplete(x)
    for first in (0, 1):
        half = blocks.with_evaluation(first, 1, 6.0, vector, *said)
        assert half.is_incomplete(x)
        assert not half.with_evaluation(1 - first, 1, 6.0, vector, *said).is_incomplete(x)
    # all were asked, and none could say anything
    skipped = blocks.with_skipped(0, 1, 6.0, vector).with_skipped(1, 1, 6.0, vector)
    assert skipped.is_incomplete(x)
