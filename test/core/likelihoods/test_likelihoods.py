"""Expected derivatives of each likelihood against quadrature, differences and sampling, written without the core."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from gp_mapping.core.likelihoods.base import Gaussian
from gp_mapping.core.likelihoods.censored import Censored
from gp_mapping.core.likelihoods.discrete import Bernoulli, Poisson, Softmax
from gp_mapping.core.likelihoods.outcomes import OutcomeJudge
from gp_mapping.core.likelihoods.quadrature import expectation, faddeeva, gauss_hermite
from gp_mapping.core.likelihoods.student_t import StudentT
from gp_mapping.core.scaling import Scaling
from gp_mapping.settings.mapping import MapSettings

NU, SIGMA2 = 4.0, 0.5
LOW, HIGH = -1.0, 1.5
ALL = {
    "gaussian": Gaussian(),
    "student_t": StudentT(NU),
    "censored": Censored(LOW, HIGH),
    "bernoulli": Bernoulli(0.5),
    "poisson": Poisson(),
    "softmax": Softmax(3),
}
ONE_CHANNEL = [name for name in ALL if name != "softmax"]


def test_labels_differ_with_the_kind_and_with_each_parameter():
    """Two maps of different ones are not merged."""
    others = [StudentT(3.0), Censored(LOW, 2.0), Bernoulli(0.1), Softmax(4)]
    labels = [each.label for each in (*ALL.values(), *others)]
    assert len(set(labels)) == len(labels) and all(type(label) is str for label in labels)
    assert StudentT(NU).label == ALL["student_t"].label


def test_a_new_measurement_with_heavy_tails_has_their_variance():
    told = StudentT(NU).noise_variance(torch.tensor([SIGMA2], dtype=torch.float64))
    assert float(told) == pytest.approx(stats.t.var(NU, scale=math.sqrt(SIGMA2)))


def log_density(name, y, f):
    """log p(y|f) by SciPy; arrays of one shape."""
    if name == "gaussian":
        return stats.norm.logpdf(y, f, math.sqrt(SIGMA2))
    if name == "student_t":
        return stats.t.logpdf(y, NU, f, math.sqrt(SIGMA2))
    if name == "censored":
        scale = math.sqrt(SIGMA2)
        inside = stats.norm.logpdf(y, f, scale)
        below, above = special.log_ndtr((LOW - f) / scale), special.log_ndtr((f - HIGH) / scale)
        return np.where(y <= LOW, below, np.where(y >= HIGH, above, inside))
    if name == "bernoulli":
        return special.log_ndtr(np.where(y > 0.5, f, -f))
    return y * f - np.exp(f) - special.gammaln(y + 1)


def case(name, spread, n=12, seed=0):
    """y (n, 1) raw, mean (n, 1), variance (n,), noise (n,)."""
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(0, 1.5, (n, 1)), spread * rng.uniform(0.2, 1.0, n)
    y = {
        "gaussian": mean + rng.normal(0, 2, (n, 1)),
        "student_t": mean + 2 * rng.standard_t(2, (n, 1)),
        "censored": np.clip(mean + rng.normal(0, 2, (n, 1)), LOW, HIGH),
        "bernoulli": rng.integers(0, 2, (n, 1)).astype(float),
        "poisson": rng.poisson(3, (n, 1)).astype(float),
    }[name]
    return [torch.from_numpy(np.asarray(v)) for v in (y, mean, variance, np.full(n, SIGMA2))]


def fine(function, mean, variance):
    """E function(f) by 8001 trapezoid nodes over ±9 sd, in NumPy."""
    e = np.linspace(-9, 9, 8001)
    w = np.exp(-0.5 * e**2)
    return function(mean[..., None] + np.sqrt(variance)[:, None, None] * e) @ (w / w.sum())


@pytest.mark.parametrize("spread", [1e-3, 1.0, 9.0])
@pytest.mark.parametrize("name", ONE_CHANNEL)
def test_expectations_are_those_of_many_nodes(name, spread):
    like = ALL[name]
    y, mean, variance, noise = case(name, spread)
    coded = like.encode(y)
    got = like.expected_log_prob(coded, mean, variance, noise).numpy()
    want = fine(
        lambda f: log_density(name, y.numpy()[..., None], f), mean.numpy(), variance.numpy()
    )[:, 0]
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()
    density = fine(
        lambda f: np.exp(log_density(name, y.numpy()[..., None], f)), mean.numpy(), variance.numpy()
    )[:, 0]
    predictive = like.log_predictive(coded, mean, variance, noise).numpy()
    assert np.abs(predictive - np.log(density)).max() < 1e-5


@pytest.mark.parametrize("spread", [1e-3, 1.0, 9.0])
@pytest.mark.parametrize("name", ONE_CHANNEL)
def test_derivatives_are_those_of_the_expectation(name, spread):
    """α = ∂E/∂m and β = −2 ∂E/∂v (Bonnet and Price), by finite differences of the fine quadrature."""
    like = ALL[name]
    y, mean, variance, noise = case(name, spread)

    def energy(m, v):
        return fine(lambda f: log_density(name, y.numpy()[..., None], f), m, v)[:, 0]

    m, v, step = mean.numpy(), variance.numpy(), 1e-4
    alpha = (energy(m + step, v) - energy(m - step, v)) / (2 * step)
    beta = -(energy(m, v * (1 + step)) - energy(m, v * (1 - step))) / (step * v)
    lam, got = like.sites(like.encode(y), mean, variance, noise)
    if name != "gaussian":
        exact = [
            part[:, 0].numpy() for part in like.derivatives(like.encode(y), mean, variance, noise)
        ]
        assert np.abs(exact[0] - alpha).max() < 1e-6 * np.abs(alpha).max() + 1e-7
        assert np.abs(exact[1] - beta).max() < 1e-5 * np.abs(beta).max() + 1e-6
    if (
        name == "student_t"
    ):  # β is held at a share of E[w]: beyond r² = νσ² the curvature is negative
        weight = fine(lambda f: (NU + 1) / (NU * SIGMA2 + (y.numpy()[..., None] - f) ** 2), m, v)[
            :, 0
        ]
        assert (beta < 0).any() and bool((got > 0).all())
        beta = np.maximum(beta, 0.05 * weight)
    assert np.abs(got.numpy() - beta).max() < 1e-5 * np.abs(beta).max() + 1e-6
    assert (
        np.abs(lam[:, 0].numpy() - alpha - got.numpy() * m[:, 0]).max()
        < 1e-5 * np.abs(lam.numpy()).max() + 1e-6
    )


def test_softmax_by_a_grid_of_three_dimensions():
    like, rng = ALL["softmax"], np.random.default_rng(3)
    nodes, weights = gauss_hermite(40)
    grid = torch.cartesian_prod(nodes, nodes, nodes)
    w = torch.cartesian_prod(weights, weights, weights).prod(1)
    mean, variance = (
        torch.from_numpy(rng.normal(0, 1.5, (4, 3))),
        torch.tensor([0.01, 0.3, 1.0, 2.0]).double(),
    )
    y = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 1]]
    f = mean[:, None] + variance.sqrt()[:, None, None] * grid
    p = f.softmax(2)
    alpha, beta = like.derivatives(y, mean, variance, None)
    assert float((alpha - (y - (p * w[:, None]).sum(1))).abs().max()) < 1e-6
    assert float((beta - (p * (1 - p) * w[:, None]).sum(1)).abs().max()) < 1e-6
    energy = (y * mean).sum(1) - (torch.logsumexp(f, 2) * w).sum(1)
    assert float((like.expected_log_prob(y, mean, variance, None) - energy).abs().max()) < 1e-6
    first, spread = like.observable(mean, variance[:, None].expand(-1, 3))
    assert float((first.sum(1) - 1).abs().max()) < 1e-6
    expected = (p.square() * w[:, None]).sum(1) - (p * w[:, None]).sum(1).square()
    assert float((spread - expected).abs().max()) < 1e-6
    lam, shared = like.sites(y, mean, variance, None)
    assert torch.allclose(shared, beta.mean(1)) and torch.allclose(
        lam, alpha + shared[:, None] * mean
    )


def test_faddeeva_against_scipy():
    re, im = np.meshgrid(np.linspace(-60, 60, 241), np.geomspace(1e-6, 1e3, 40))
    got = faddeeva(torch.complex(torch.from_numpy(re), torch.from_numpy(im))).numpy()
    want = special.wofz(re + 1j * im)
    assert (np.abs(got - want) / np.abs(want)).max() < 1e-12


def test_trapezoid_is_exact_where_gauss_hermite_is_not():
    """A probit under a q of sd 10: 32 Gauss–Hermite nodes miss by a percent, the rule that is used does not."""
    mean, variance = torch.tensor([1.0]).double(), torch.tensor([100.0]).double()
    exact = special.ndtr(1.0 / math.sqrt(101.0))
    assert float((expectation(torch.special.ndtr, mean, variance, 2.0) - exact).abs()) < 1e-7
    nodes, weights = gauss_hermite(32)
    assert abs(float(torch.special.ndtr(1.0 + 10 * nodes) @ weights) - exact) > 1e-3
    assert float(nodes.pow(4) @ weights) == pytest.approx(3.0) and float(
        weights.sum()
    ) == pytest.approx(1.0)


def test_observables_against_samples():
    mean, variance = torch.tensor([[0.4], [-1.0]]).double(), torch.tensor([[1.5], [0.2]]).double()
    f = (
        mean
        + variance.sqrt()
        * torch.randn((2, 400000), generator=torch.Generator().manual_seed(0)).double()
    )
    for name, g in (
        ("bernoulli", torch.special.ndtr),
        ("poisson", torch.exp),
        ("student_t", lambda v: v),
        ("censored", lambda v: v),
        ("gaussian", lambda v: v),
    ):
        first, spread = ALL[name].observable(mean, variance)
        sampled = g(f)
        assert torch.allclose(first[:, 0], sampled.mean(1), rtol=0.02, atol=0.01)
        assert torch.allclose(spread[:, 0], sampled.var(1), rtol=0.08)


def test_a_rate_is_of_a_second_however_long_counts_are_taken():
    """exp f is the count of one measurement, which takes `duration` seconds: half of them, twice the rate."""
    mean, variance = torch.tensor([[0.4], [-1.0]]).double(), torch.tensor([[1.5], [0.2]]).double()
    expected, spread = Poisson(1.0).observable(mean, variance)
    for duration in (0.5, 20.0):
        rate, of_rate = Poisson(duration).observable(mean, variance)
        assert torch.allclose(rate * duration, expected, rtol=1e-12)
        assert torch.allclose(of_rate * duration**2, spread, rtol=1e-12)


def test_information_is_the_expected_curvature():
    """Σ_y p(y) β(y) where y are few; for a Student-t (ν + 1)/((ν + 3)σ²)."""
    _, mean, variance, noise = case("bernoulli", 1.0)
    like = ALL["bernoulli"]
    p = special.ndtr(mean.numpy()[:, 0] / np.sqrt(1 + variance.numpy()))
    above, below = (
        like.derivatives(torch.full_like(mean, s), mean, variance, noise)[1][:, 0].numpy()
        for s in (1, -1)
    )
    assert np.allclose(like.information(mean, variance, noise).numpy(), p * above + (1 - p) * below)
    r = np.linspace(-400, 400, 800001)
    t = stats.t.pdf(r, NU, scale=math.sqrt(SIGMA2))
    w = (NU + 1) / (NU * SIGMA2 + r**2)
    fisher = ((w - 2 * w**2 * r**2 / (NU + 1)) * t).sum() * (r[1] - r[0])
    assert float(ALL["student_t"].information(mean, variance, noise)[0]) == pytest.approx(
        fisher, rel=1e-4
    )


@pytest.mark.parametrize("name", ["student_t", "censored"])
def test_the_noise_follows_its_score(name):
    y, mean, variance, noise = case(name, 1.0)
    like, step = ALL[name], 1e-5
    up, down = (
        like.expected_log_prob(y, mean, variance, noise * math.exp(s)) for s in (step, -step)
    )
    got = like.noise_score(y, mean, variance, noise)[:, 0]
    assert torch.allclose(got, -(up - down) / (2 * step), rtol=1e-4, atol=1e-4)


def test_information_of_a_sensor_with_a_range():
    """∫ p(y) β(y) dy: the limits have a probability, what lies between a density with β = 1/σ²."""
    like = ALL["censored"]
    _, mean, variance, noise = case("censored", 1.0)
    total = np.sqrt(variance.numpy() + SIGMA2)
    want = 0.0
    for side, limit in ((1.0, LOW), (-1.0, HIGH)):
        at = torch.full_like(mean, limit)
        share = special.ndtr(side * (limit - mean.numpy()[:, 0]) / total)
        beta = like.derivatives(at, mean, variance, noise)[1][:, 0].numpy()
        want = want + share * (beta - 1.0 / SIGMA2)
    want = want + 1.0 / SIGMA2
    assert np.allclose(like.information(mean, variance, noise).numpy(), want)
    one = Censored(-math.inf, HIGH)
    assert float(one.information(mean - 50.0, variance, noise).mean()) == pytest.approx(2.0)


def test_limits_are_those_of_the_map_s_unit():
    """In SI outside; a number that reaches one up to rounding is at it, and far ones are finite."""
    like = Censored(-100.0, math.inf).at(
        Scaling(torch.zeros(2).double(), torch.tensor([-70.3]).double(), 0.7)
    )
    y = (torch.tensor([[-100.0], [-101.0], [-99.9], [40.0]]).double() + 70.3) / 0.7
    assert like.sides(y)[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert like.label == Censored(-100.0, math.inf).label
    y, mean = like.inner[0] * torch.ones(2, 1).double(), torch.tensor([[1e4], [-1e4]]).double()
    alpha, beta = like.derivatives(y, mean, torch.ones(2).double(), torch.ones(2).double())
    assert alpha[0, 0] == pytest.approx(float(y[0, 0]) - 1e4, rel=1e-3)
    assert beta[0, 0] == pytest.approx(1.0, rel=1e-3)
    assert (float(alpha[1, 0]), float(beta[1, 0])) == (0.0, 0.0)


def test_student_t_far_away_and_nearly_known():
    """No overflow and no cancellation: residuals of 1e8 σ, a variance of 0."""
    like = ALL["student_t"]
    y, mean = torch.tensor([[1e8], [1e3], [0.1]]).double(), torch.zeros(3, 1).double()
    variance = torch.tensor([1.0, 0.0, 0.0]).double()
    alpha, beta, weight = like.moments(y, mean, variance, torch.full((3,), SIGMA2).double())
    w = (NU + 1) / (NU * SIGMA2 + y.square())
    assert torch.allclose(alpha, w * y, rtol=1e-4) and torch.allclose(weight, w, rtol=1e-4)
    assert torch.allclose(beta, w - 2 * w.square() * y.square() / (NU + 1), rtol=1e-2)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="counts"):
        ALL["poisson"].encode(torch.tensor([[-1.0]]))
    for bad, match in (
        ([[0.5]], "whole numbers"),
        ([[3.0]], "whole numbers"),
        ([[0.5, 0.5, 0.5]], "sum to 1"),
        ([[1.0, 0.0]], "labels"),
    ):
        with pytest.raises(ValueError, match=match):
            ALL["softmax"].encode(torch.tensor(bad).double())
    shares = torch.tensor([[0.2, 0.8, 0.0]], dtype=torch.float64)
    assert torch.equal(ALL["softmax"].encode(shares), shares)
    assert torch.equal(
        ALL["softmax"].encode(torch.tensor([[2.0]])), torch.tensor([[0.0, 0, 1]]).double()
    )
    above = Bernoulli(48e-6).encode(torch.tensor([[50e-6], [40e-6]]))
    assert above.flatten().tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    "kind, good, bad",
    [
        ("poisson", [0.0, 3.0], [-1.0]),
        ("bernoulli", [0.0, 1.0], []),
        ("softmax", [0.0, 1.0, 2.0], [3.0, -1.0, 0.5]),
        ("gaussian", [-1e9, 0.5], []),
        ("student_t", [-1e9, 0.5], []),
        ("censored", [-1e9, 0.5], []),
    ],
)
def test_what_can_be_measured_is_told_from_what_cannot(kind, good, bad):
    """One by one, all at once, and none at all."""
    known = OutcomeJudge(MapSettings(likelihood=kind, classes=3, upper_limit=9.0))
    told = [known.accepts_all([[value]]) for value in [*good, *bad]]
    assert told == [True] * len(good) + [False] * len(bad)
    assert (
        known.accepts_all(torch.tensor([*good, *bad]).double()[:, None]) is (not bad)
        and known.accepts_all([]) is True
    )
    assert known.rejected_rows([[value] for value in [*good, *bad, *good]]) == [
        len(good) + i for i in range(len(bad))
    ]


def test_classes_do_not_depend_on_what_all_latent_fields_have_in_common():
    """Softmax of f + a is softmax of f, with as many nodes as it takes, wherever they lie."""
    rng, like = np.random.default_rng(4), Softmax(4)
    mean, variance = (
        torch.from_numpy(a) for a in (rng.normal(0, 3, (30, 4)), rng.uniform(0.01, 9, 30))
    )
    y = like.encode(torch.from_numpy(rng.integers(0, 4, (30, 1)).astype(float)))
    noise = torch.zeros(30, dtype=torch.float64)

    def told(shift):
        at = mean + shift
        p, spread = like.observable(at, variance[:, None].expand_as(at))
        return (
            p,
            spread,
            like.expected_log_prob(y, at, variance, noise),
            *like.derivatives(y, at, variance, noise),
        )

    wanted = told(0.0)
    assert torch.allclose(wanted[0].sum(1), torch.ones(30, dtype=torch.float64), atol=1e-6)
    for shift in (-60.0, -7.3, 60.0):
        for one, other in zip(told(shift), wanted):
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-6), shift
