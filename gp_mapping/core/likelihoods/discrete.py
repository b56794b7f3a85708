"""Classes and counts: Bernoulli, Poisson and softmax. f has no unit and is neither scaled nor centred."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.base import NonGaussian
from gp_mapping.core.likelihoods.quadrature import expectation, log_concave_integral, nodes

__all__ = ["Bernoulli", "Poisson", "Softmax"]

_EULER = 0.57721566490153286
_LOG_2PI = math.log(2 * math.pi)
_LEAST_VARIANCE = 1e-12  # of f: a Gaussian without a width has no integral
_SURPRISE, _TOGETHER = (
    -5.0,
    60,
)  # nats below which a class is a surprise; rows times classes looked at together
_HIGHEST = 60.0  # log-rate beyond which exp is of no use
_MOST_COUNTS = 1e9  # in one measurement; no detector counts as many


class Bernoulli(NonGaussian):
    """y > threshold with probability Φ(f): the probit link, so that the predictive Φ(m/√(1 + v)) is exact.

    threshold: in the unit of y; labels 0 and 1 have 0.5. A mean of several measurements on one side
    of it weighs as many (Samples.count).
    """

    name = "bernoulli"

    def __init__(self, threshold: float = 0.5):
        self.threshold = threshold

    def encode(self, y):
        """1 above the threshold, else −1."""
        return torch.where(y > self.threshold, 1.0, -1.0).to(torch.float64)

    def weight(self, count):
        """Labels of different moments are independent: n on one side say n times as much as one."""
        return count

    def derivatives(self, y, mean, variance, noise):
        """With t = yf and n(t) = φ(t)/Φ(t): ∂ = y n, −∂² = n (t + n)."""
        epsilon, weights = nodes(variance, 2.0)
        t = y[..., None] * (
            mean[..., None] + variance.clamp_min(0.0).sqrt()[:, None, None] * epsilon
        )
        ratio = torch.exp(-0.5 * t.square() - 0.5 * _LOG_2PI - torch.special.log_ndtr(t))
        return y * (ratio @ weights), (ratio * (t + ratio)) @ weights

    def expected_log_prob(self, y, mean, variance, noise):
        return expectation(
            torch.special.log_ndtr, y * mean, variance[:, None].expand_as(mean), 2.0
        ).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        return torch.special.log_ndtr(y * mean / (1.0 + variance[:, None]).sqrt()).sum(1)

    def observable(self, mean, variance):
        """P(above the threshold), and the variance of Φ(f)."""
        probability = torch.special.ndtr(mean / (1.0 + variance).sqrt())
        square = expectation(lambda f: torch.special.ndtr(f).square(), mean, variance, 2.0)
        return probability, (square - probability.square()).clamp_min(0.0)

    def information(self, mean, variance, noise):
        p = torch.special.ndtr(mean / (1.0 + variance[:, None]).sqrt())
        one = torch.ones_like(mean)
        above, below = (
            self.derivatives(sign * one, mean, variance, noise)[1] for sign in (1.0, -1.0)
        )
        return (p * above + (1 - p) * below).mean(1)


class Poisson(NonGaussian):
    """Counts with rate e^f, the log link: α = y − E[e^f], β = E[e^f] = exp(m + v/2), in closed form.

    y: counts of one measurement, or the mean of several, which then weighs as many (Samples.count).
    duration: of one measurement, s; e^f is what it counts on average, and the rate e^f/duration.
    """

    name = "poisson"

    def __init__(self, duration: float = 1.0):
        self.duration = duration

    def encode(self, y):
        if len(y) and float(y.min()) < 0:
            raise ValueError(
                f"a Poisson likelihood needs counts, 0 and more; got {float(y.min()):g}"
            )
        if len(y) and not float(y.max()) <= _MOST_COUNTS:
            raise ValueError(
                f"{float(y.max()):.3g} counts in one measurement; at most {_MOST_COUNTS:g} are credible"
            )
        return y

    def weight(self, count):
        """Counts of different moments are independent: the mean of n says n times as much."""
        return count

    @staticmethod
    def rate_of(mean: Tensor, variance: Tensor) -> Tensor:
        """E[e^f] = exp(m + v/2)."""
        return torch.exp((mean + 0.5 * variance).clamp_max(_HIGHEST))

    def start(self, y, noise):
        """At the likelihood's own mode, log(y + ½): from a prior far below, a step with e^f would overshoot."""
        beta = y + 0.5
        shared = beta.mean(1)
        return shared[:, None] * beta.log(), shared

    def derivatives(self, y, mean, variance, noise):
        rate = self.rate_of(mean, variance[:, None])
        return y - rate, rate

    def expected_log_prob(self, y, mean, variance, noise):
        return (y * mean - self.rate_of(mean, variance[:, None]) - torch.lgamma(y + 1.0)).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        """log ∫ Poisson(y|e^f) N(f|m, v) df."""
        return _log_counts(
            y.to(mean.dtype).expand_as(mean), mean, variance[:, None].expand_as(mean)
        ).sum(1)

    def observable(self, mean, variance):
        """Rate in 1/s: log-normal, mean exp(m + v/2)/duration, variance (e^v − 1) mean²."""
        rate = self.rate_of(mean, variance) / self.duration
        return rate, torch.expm1(variance.clamp_max(_HIGHEST)) * rate.square()

    def information(self, mean, variance, noise):
        return self.rate_of(mean, variance[:, None]).mean(1)


def _log_counts(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log ∫ Poisson(y|e^f) N(f|m, v) df, about the mode of the product; all of one shape.

    The mode, y − e^f − (f − m)/v = 0, is f = m + vy − w with w + log w = log v + m + vy (Lambert's function).
    """
    v = variance.clamp_min(_LEAST_VARIANCE)
    a = (v.log() + mean + v * y).clamp_min(-600.0)
    w = torch.where(a > 1.0, a - a.clamp_min(1.0).log(), torch.exp(a.clamp_max(1.0)))
    for _ in range(20):
        new = w * (1.0 + a - w.log()) / (1.0 + w)
        w, moved = new, float((new - w).abs().max() if w.numel() else 0.0)
        if moved < 1e-10:
            break

    def log_product(f: Tensor) -> Tensor:
        gauss = -0.5 * (f - mean[..., None]).square() / v[..., None] - 0.5 * (
            _LOG_2PI + v[..., None].log()
        )
        return y[..., None] * f - torch.exp(f) - torch.lgamma(y + 1.0)[..., None] + gauss

    return log_concave_integral(log_product, mean + v * y - w, (2 * 41.0 * v).sqrt())


class Softmax(NonGaussian):
    """One of C classes with p_c = e^{f_c}/Σ e^{f_k}: C latent channels.

    Expectations are integrals over one dimension whatever C is, because p_c is the probability that f_c + g_c is
    the largest, with g Gumbel: with H_k(u) = E exp(−e^{f_k − u}),  E[p_c] = ∫ H_c'(u) Π_{k≠c} H_k(u) du, and the
    same with one more factor e^{f_c − u} for E[p_c²]; E log Σ e^{f_k} = E max − γ. Trapezoid rule in u and in f.
    """

    name, refreshed = "softmax", 50

    def __init__(self, classes: int):
        self.classes = classes

    def encode(self, y):
        """Labels 0 … C − 1 as one column, or shares (N, C) whose rows sum to 1."""
        if y.shape[1] == self.classes:
            if len(y) and (float(y.min()) < 0 or float((y.sum(1) - 1).abs().max()) > 1e-9):
                raise ValueError("shares of classes must be 0 and more, and sum to 1 in every row")
            return y
        if y.shape[1] != 1:
            raise ValueError(
                f"classes come as labels (N, 1) or shares (N, {self.classes}), not {tuple(y.shape)}"
            )
        label = y[:, 0].round()
        if len(y) and (
            bool((label != y[:, 0]).any())
            or float(label.min()) < 0
            or float(label.max()) >= self.classes
        ):
            raise ValueError(
                f"class labels are whole numbers 0 … {self.classes - 1}; got {y[:, 0].tolist()[:3]} … "
                "(an average of labels means nothing: write cells: false)"
            )
        return torch.nn.functional.one_hot(label.long(), self.classes).to(torch.float64)

    @staticmethod
    def _moments(mean: Tensor, variance: Tensor, second: bool = True):
        """E[p] (N, C), E[p²] (N, C) or None, E[log Σ e^f] (N,). variance: (N,) or (N, C)."""
        variance = variance[:, None].expand_as(mean) if variance.ndim == 1 else variance
        deviation = variance.clamp_min(0.0).sqrt()
        epsilon, weights = nodes(variance, 1.0)
        low = (mean - 6.5 * deviation).max(1).values - 4.0  # below, the largest is never
        high = (mean + 6.5 * deviation).max(1).values + 22.0
        count = max(32, math.ceil(float((high - low).detach().max()) / 0.5)) if len(mean) else 32
        u = low[:, None] + (high - low)[:, None] * torch.linspace(
            0, 1, count, dtype=mean.dtype, device=mean.device
        )
        step = (high - low)[:, None] / (count - 1)
        rise = (mean[:, :, None] - u[:, None, :])[..., None] + deviation[
            :, :, None, None
        ] * epsilon  # f_c − u
        rise.clamp_max_(_HIGHEST).exp_()
        fall = torch.exp(-rise)
        h = (fall @ weights).clamp_min(1e-300)  # (N, C, U)
        slope = (rise * fall) @ weights  # dH/du
        curve = (rise.square_() * fall) @ weights if second else None
        log_h = h.log()
        product = log_h.sum(1)
        others = torch.exp(product[:, None] - log_h)
        first = (slope * others).sum(2) * step
        square = (curve * others).sum(2) * step if second else None
        # E max = high − ∫ Π H du, the trapezoid's ends being 0 and 1
        whole = torch.exp(product)
        largest = high - (whole.sum(1) - 0.5 * (whole[:, 0] + whole[:, -1])) * step[:, 0]
        return first, square, largest - _EULER

    def _chunks(self, mean: Tensor, variance: Tensor, second: bool = True):
        size = max(1, int(4e6 / (self.classes * 100 * 60)))
        parts = [
            self._moments(m, v, second) for m, v in zip(mean.split(size), variance.split(size))
        ]
        if not parts:
            parts = [(mean, mean, mean.sum(1))]
        return [
            torch.cat([p[i] for p in parts]) if parts[0][i] is not None else None for i in range(3)
        ]

    def derivatives(self, y, mean, variance, noise):
        first, square, _ = self._chunks(mean, variance)
        return y - first, first - square

    def expected_log_prob(self, y, mean, variance, noise):
        return (y * mean).sum(1) - self._chunks(mean, variance, False)[2]

    def log_predictive(self, y, mean, variance, noise):
        """Σ_c y_c log E[p_c]; where a class is a surprise, in logarithms and about the mode of the product."""
        told = self._chunks(mean, variance, False)[0].clamp_min(1e-300).log()
        shape = variance[:, None].expand_as(mean) if variance.ndim == 1 else variance
        row, own = ((told < _SURPRISE) & (y > 0)).nonzero(as_tuple=True)
        size = max(1, _TOGETHER // self.classes)
        for some, chosen in zip(row.split(size), own.split(size)):
            told[some, chosen] = self._log_surprise(mean[some], shape[some], chosen)
        return (y * told).sum(1)

    @staticmethod
    def _log_surprise(mean: Tensor, variance: Tensor, own: Tensor) -> Tensor:
        """log E[p_c] = log ∫ E[e^{f_c − u} exp(−e^{f_c − u})] Π_{k≠c} E[exp(−e^{f_k − u})] du for c = own (N,): (N,).

        The factors are what a count of one, and counts of none, have for densities; each is log-concave in u, since it
        is the marginal of a density that is so in u and f, and their product is.
        """
        count = torch.nn.functional.one_hot(own, mean.shape[1]).to(mean)

        def log_f(u: Tensor) -> Tensor:
            at = mean[:, :, None] - u[:, None, :]
            return _log_counts(
                count[:, :, None].expand_as(at), at, variance[:, :, None].expand_as(at)
            ).sum(1)

        broad = variance.amax(1)
        low, high = mean.amin(1) - broad - 60.0, mean.amax(1) + broad + 60.0
        for _ in range(30):  # a concave function's mode, by thirds: a 200 000th of the bracket
            third = (high - low) / 3.0
            left, right = log_f(torch.stack([low + third, high - third], 1)).unbind(1)
            low, high = (
                torch.where(left < right, low + third, low),
                torch.where(left < right, high, high - third),
            )
        return log_concave_integral(
            log_f, 0.5 * (low + high), 60.0 + 12.0 * broad.sqrt(), count=200
        )

    def observable(self, mean, variance):
        """Probability of each class, and its variance."""
        first, square, _ = self._chunks(mean, variance)
        return first, (square - first.square()).clamp_min(0.0)

    def information(self, mean, variance, noise):
        first, square, _ = self._chunks(mean, variance)
        return (first - square).mean(1)
