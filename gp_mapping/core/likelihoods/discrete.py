"""Likelihoods of classes and counts: Bernoulli, Poisson and softmax.

f has no unit and is neither scaled nor centred.
"""

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
# nats of log E[p_c] below which a class is improbable; rows times classes in one integral
_SURPRISE, _TOGETHER = (-5.0, 60)
_HIGHEST = 60.0  # largest log-rate; exp of more is of no use
# standard deviation up to which e^{m − u} and e^{√v ε} are finite
_WIDEST = 50.0
# numbers in one integral of classes: what a processor's cache holds, and what fills a card
_IN_CACHE, _ON_CARD = 5e5, 4e6
_MOST_COUNTS = 1e9  # in one measurement; no detector counts as many


class Bernoulli(NonGaussian):
    """Probit likelihood: y > threshold with probability Φ(f).

    With this link the predictive probability Φ(m/√(1 + v)) is exact.

    Attributes:
        threshold: in the unit of y; labels 0 and 1 have 0.5. A mean of several
            measurements on one side of it weighs as many (Samples.count).
    """

    name = "bernoulli"

    def __init__(self, threshold: float = 0.5):
        self.threshold = threshold

    def encode(self, y):
        """Encode y as 1 above the threshold, else −1."""
        return torch.where(y > self.threshold, 1.0, -1.0).to(torch.float64)

    def weight(self, count):
        """Labels of different moments are independent: n on one side say n times as much as one."""
        return count

    def derivatives(self, y, mean, variance, noise):
        """As NonGaussian.derivatives, by quadrature.

        With t = yf and n(t) = φ(t)/Φ(t): ∂ = y n, −∂² = n (t + n).
        """
        epsilon, weights = nodes(variance, 2.0)
        t = y[..., None] * (
            mean[..., None] + variance.clamp_min(0.0).sqrt()[:, None, None] * epsilon
        )
        ratio = torch.exp(-0.5 * t.square() - 0.5 * _LOG_2PI - torch.special.log_ndtr(t))
        return y * (ratio @ weights), (ratio * (t + ratio)) @ weights

    def expected_log_prob(self, y, mean, variance, noise):
        """As Likelihood.expected_log_prob: E[log Φ(yf)] by quadrature."""
        return expectation(
            torch.special.log_ndtr, y * mean, variance[:, None].expand_as(mean), 2.0
        ).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        """As Likelihood.log_predictive: log Φ(ym/√(1 + v)), exact."""
        return torch.special.log_ndtr(y * mean / (1.0 + variance[:, None]).sqrt()).sum(1)

    def observable(self, mean, variance):
        """As Likelihood.observable: probability of a y above the threshold, variance of Φ(f)."""
        probability = torch.special.ndtr(mean / (1.0 + variance).sqrt())
        square = expectation(lambda f: torch.special.ndtr(f).square(), mean, variance, 2.0)
        return probability, (square - probability.square()).clamp_min(0.0)

    def information(self, mean, variance, noise):
        """As Likelihood.information: β of either outcome, weighted by its probability."""
        p = torch.special.ndtr(mean / (1.0 + variance[:, None]).sqrt())
        one = torch.ones_like(mean)
        above, below = (
            self.derivatives(sign * one, mean, variance, noise)[1] for sign in (1.0, -1.0)
        )
        return (p * above + (1 - p) * below).mean(1)


class Poisson(NonGaussian):
    """Counts with rate e^f, the log link: α = y − E[e^f], β = E[e^f] = exp(m + v/2).

    y is the count of one measurement, or the mean of several, which then weighs as many
    (Samples.count).

    Attributes:
        duration: of one measurement, s; e^f is its expected count, and the rate is e^f/duration.
    """

    name, kept = "poisson", 0.0  # a rate that was far too high falls in one step

    def __init__(self, duration: float = 1.0):
        self.duration = duration

    def encode(self, y):
        """As Likelihood.encode.

        Raises:
            ValueError: a count is negative, or more than a detector can count.
        """
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
        """Weight n of a mean of n counts: counts of different moments are independent."""
        return count

    @staticmethod
    def rate_of(mean: Tensor, variance: Tensor) -> Tensor:
        """Expected count E[e^f] = exp(m + v/2), at most e^60.

        Args:
            mean: m.
            variance: v, of a shape that goes with m.
        """
        return torch.exp((mean + 0.5 * variance).clamp_max(_HIGHEST))

    def start(self, y, noise):
        """As Likelihood.start: at the likelihood's own mode, f = log(y + ½).

        From a prior far below it, a step with e^f would overshoot.
        """
        expected = y + 0.5
        beta = expected.mean(1)  # one for all channels
        return beta[:, None] * expected.log(), beta

    def derivatives(self, y, mean, variance, noise):
        """As NonGaussian.derivatives: y − E[e^f] and E[e^f]."""
        rate = self.rate_of(mean, variance[:, None])
        return y - rate, rate

    def expected_log_prob(self, y, mean, variance, noise):
        """As Likelihood.expected_log_prob: ym − E[e^f] − log Γ(y + 1), exact."""
        return (y * mean - self.rate_of(mean, variance[:, None]) - torch.lgamma(y + 1.0)).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        """As Likelihood.log_predictive: log ∫ Poisson(y|e^f) N(f|m, v) df."""
        return _log_counts(
            y.to(mean.dtype).expand_as(mean), mean, variance[:, None].expand_as(mean)
        ).sum(1)

    def observable(self, mean, variance):
        """As Likelihood.observable: the rate in 1/s.

        Log-normal: mean exp(m + v/2)/duration, variance (e^v − 1) mean².
        """
        rate = self.rate_of(mean, variance) / self.duration
        return rate, torch.expm1(variance.clamp_max(_HIGHEST)) * rate.square()

    def information(self, mean, variance, noise):
        """As Likelihood.information: E[e^f]."""
        return self.rate_of(mean, variance[:, None]).mean(1)


def _log_counts(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Log predictive probability of counts, log ∫ Poisson(y|e^f) N(f|m, v) df.

    The integral is taken about the mode of the product. The mode, y − e^f − (f − m)/v = 0, is
    f = m + vy − w with w + log w = log v + m + vy (Lambert's function).

    Args:
        y: counts.
        mean: m, of the shape of y.
        variance: v, of the shape of y.

    Returns:
        A tensor of the shape of y.
    """
    v = variance.clamp_min(_LEAST_VARIANCE)

    # w + log w = a by Newton's method, from its asymptotes
    a = (v.log() + mean + v * y).clamp_min(-600.0)
    w = torch.where(a > 1.0, a - a.clamp_min(1.0).log(), torch.exp(a.clamp_max(1.0)))
    for _ in range(20):
        new = w * (1.0 + a - w.log()) / (1.0 + w)
        w, change = new, float((new - w).abs().max() if w.numel() else 0.0)
        if change < 1e-10:
            break

    def log_product(f: Tensor) -> Tensor:
        """Log of the integrand at f (…, n)."""
        gauss = -0.5 * (f - mean[..., None]).square() / v[..., None] - 0.5 * (
            _LOG_2PI + v[..., None].log()
        )
        return y[..., None] * f - torch.exp(f) - torch.lgamma(y + 1.0)[..., None] + gauss

    return log_concave_integral(log_product, mean + v * y - w, (2 * 41.0 * v).sqrt())


class Softmax(NonGaussian):
    """One of C classes with p_c = e^{f_c}/Σ e^{f_k}; f has C latent channels.

    Expectations are integrals over one dimension whatever C is, because p_c is the probability that
    f_c + g_c is the largest, with g Gumbel. With H_k(u) = E exp(−e^{f_k − u}),

        E[p_c] = ∫ H_c'(u) Π_{k≠c} H_k(u) du,   E log Σ e^{f_k} = E max_k (f_k + g_k) − γ

    and E[p_c²] is as E[p_c] with one more factor e^{f_c − u}. Both u and f are integrated by the
    trapezoid rule.

    Attributes:
        classes: C.
    """

    name, refreshed = "softmax", 50

    def __init__(self, classes: int):
        self.classes = classes

    def encode(self, y):
        """One-hot rows (N, C) from labels 0 … C − 1 in one column; fractions (N, C) stay.

        Raises:
            ValueError: a label is none, or a row of fractions does not sum to 1.
        """
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
        """Expectations by the integrals of the class docstring.

        Args:
            mean: of f, (N, C).
            variance: of f, (N,) or (N, C).
            second: whether E[p²] is wanted.

        Returns:
            E[p] (N, C), E[p²] (N, C) or None, E[log Σ e^f] (N,).
        """
        variance = variance[:, None].expand_as(mean) if variance.ndim == 1 else variance
        deviation = variance.clamp_min(0.0).sqrt()

        # nodes of f, and of u where the largest f_k + g_k may lie
        epsilon, weights = nodes(variance, 1.0)
        low = (mean - 6.5 * deviation).max(1).values - 4.0  # below, the largest is never
        high = (mean + 6.5 * deviation).max(1).values + 22.0
        extent, widest = 0.0, 0.0
        if len(mean):
            extent, widest = torch.stack([(high - low).max(), deviation.max()]).detach().tolist()
        count = max(32, math.ceil(extent / 0.5))
        u = low[:, None] + (high - low)[:, None] * torch.linspace(
            0, 1, count, dtype=mean.dtype, device=mean.device
        )
        step = (high - low)[:, None] / (count - 1)

        # e^{f_c − u} and exp(−e^{f_c − u}) at all nodes, (N, C, U, n)
        level, around = mean[:, :, None] - u[:, None, :], deviation[:, :, None] * epsilon
        if widest <= _WIDEST:  # a product of few exponentials in place of many
            rise = level.exp()[..., None] * around.exp()[:, :, None, :]
            rise.clamp_max_(math.exp(_HIGHEST))
        else:
            rise = level[..., None] + around[:, :, None, :]
            rise.clamp_max_(_HIGHEST).exp_()
        fall = torch.exp(-rise)

        h = (fall @ weights).clamp_min(1e-300)  # (N, C, U)
        slope = (rise * fall) @ weights  # dH/du
        curve = (rise.square_() * fall) @ weights if second else None

        # Π_{k≠c} H_k: the product of all, by logarithms, without that of c
        log_h = h.log()
        log_product = log_h.sum(1)
        product_of_others = torch.exp(log_product[:, None] - log_h)
        first = (slope * product_of_others).sum(2) * step
        square = (curve * product_of_others).sum(2) * step if second else None

        # E max = high − ∫ Π H du, the trapezoid's ends being 0 and 1
        product = torch.exp(log_product)
        largest = high - (product.sum(1) - 0.5 * (product[:, 0] + product[:, -1])) * step[:, 0]
        return first, square, largest - _EULER

    def _chunks(self, mean: Tensor, variance: Tensor, second: bool = True):
        """As _moments, of so many samples at a time that their nodes stay in bounded memory."""
        size = len(mean) or 1
        if len(mean):
            # high − low ≤ 13 √v + 26
            widest = float(variance.detach().max().clamp_min(0.0).sqrt())
            each = self.classes * max(32.0, (13.0 * widest + 26.0) / 0.5)
            each *= len(nodes(variance, 1.0)[0])
            size = max(1, int((_IN_CACHE if mean.is_cpu else _ON_CARD) / each))
        parts = [
            self._moments(m, v, second) for m, v in zip(mean.split(size), variance.split(size))
        ]
        if not parts:
            parts = [(mean, mean, mean.sum(1))]
        return [
            torch.cat([p[i] for p in parts]) if parts[0][i] is not None else None for i in range(3)
        ]

    def derivatives(self, y, mean, variance, noise):
        """As NonGaussian.derivatives: y_c − E[p_c] and E[p_c] − E[p_c²]."""
        first, square, _ = self._chunks(mean, variance)
        return y - first, first - square

    def expected_log_prob(self, y, mean, variance, noise):
        """As Likelihood.expected_log_prob: Σ_c y_c m_c − E[log Σ_k e^{f_k}]."""
        return (y * mean).sum(1) - self._chunks(mean, variance, False)[2]

    def log_predictive(self, y, mean, variance, noise):
        """As Likelihood.log_predictive: Σ_c y_c log E[p_c].

        For a class that is measured and improbable, log E[p_c] is integrated in logarithms about
        the mode of the product: nodes spread about q(f) would miss it.
        """
        log_p = self._chunks(mean, variance, False)[0].clamp_min(1e-300).log()
        variances = variance[:, None].expand_as(mean) if variance.ndim == 1 else variance
        rows, classes = ((log_p < _SURPRISE) & (y > 0)).nonzero(as_tuple=True)

        size = max(1, _TOGETHER // self.classes)
        for row, c in zip(rows.split(size), classes.split(size)):
            log_p[row, c] = self._log_surprise(mean[row], variances[row], c)
        return (y * log_p).sum(1)

    @staticmethod
    def _log_surprise(mean: Tensor, variance: Tensor, own: Tensor) -> Tensor:
        """Log probability of one improbable class per sample.

            log E[p_c] = log ∫ E[e^{f_c − u} exp(−e^{f_c − u})] Π_{k≠c} E[exp(−e^{f_k − u})] du

        The factors are the predictive probabilities of a count of one, and of counts of none. Each
        is log-concave in u, since it is the marginal of a density that is so in u and f; so their
        product is, too.

        Args:
            mean: of f, (N, C).
            variance: of f, (N, C).
            own: c, (N,).

        Returns:
            (N,).
        """
        count = torch.nn.functional.one_hot(own, mean.shape[1]).to(mean)

        def log_f(u: Tensor) -> Tensor:
            """Log of the integrand at u (N, n)."""
            at = mean[:, :, None] - u[:, None, :]
            return _log_counts(
                count[:, :, None].expand_as(at), at, variance[:, :, None].expand_as(at)
            ).sum(1)

        # mode of a concave function by thirds, to a 200 000th of the bracket
        largest_variance = variance.amax(1)
        low, high = (
            mean.amin(1) - largest_variance - 60.0,
            mean.amax(1) + largest_variance + 60.0,
        )
        for _ in range(30):
            third = (high - low) / 3.0
            left, right = log_f(torch.stack([low + third, high - third], 1)).unbind(1)
            low, high = (
                torch.where(left < right, low + third, low),
                torch.where(left < right, high, high - third),
            )

        return log_concave_integral(
            log_f, 0.5 * (low + high), 60.0 + 12.0 * largest_variance.sqrt(), count=200
        )

    def observable(self, mean, variance):
        """As Likelihood.observable: the probability of each class."""
        first, square, _ = self._chunks(mean, variance)
        return first, (square - first.square()).clamp_min(0.0)

    def information(self, mean, variance, noise):
        """As Likelihood.information: E[p_c] − E[p_c²], mean over classes."""
        first, square, _ = self._chunks(mean, variance)
        return (first - square).mean(1)
