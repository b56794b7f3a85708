"""Under which kernel remembered samples are likeliest: how smooth the field is, looked at again.

    log p(y | k) ≈ Σ_b log p(y_b | v̂, k) + log p(v̂) − ½ log |Λ|,   Λ = Σ_b A_b + P

b are compact neighbourhoods from all of the map, taken for independent, so that their evidences add
up; v = (log ℓ, log s², log σ²) is at its best for each kernel, found by Newton's steps with the
average information A_b (evidence.py), and integrated out about it (Laplace). All else is θ's.

A kernel takes the place of another where it is CLEAR nats better, which is odds of 150 to 1, and
where neighbourhoods agree on it: the sum of their differences d_b lies CERTAIN of its standard
deviations, as the d_b themselves tell, above 0 (Vuong 1989). Nats count under the model: one object
with an edge is worth tens of them against a smooth kernel, in its own neighbourhood alone.

References:
    Stein 1999, Interpolation of Spatial Data, 6 (the smoothness is a parameter that data tell).
    Vuong 1989, Likelihood ratio tests for model selection and non-nested hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.hyper.bias import bias_correlation
from gp_mapping.core.hyper.blocks import Blocks
from gp_mapping.core.hyper.first_guess import SMOOTHNESS
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.extents import matter
from gp_mapping.core.kernels.stationary import make_kernel

__all__ = ["CERTAIN", "CLEAR", "Evidence", "KernelSearch", "Neighbourhoods", "is_clear"]

CLEAR = 5.0  # nats
CERTAIN = 2.0  # standard deviations
_MOST, _SIZE = 16, 64  # neighbourhoods that are looked at, and samples in one at most
_FEWEST, _LEAST = 4, 8  # neighbourhoods that can agree, and samples of one that can tell anything
_STEPS, _CLOSE = 8, 0.05  # Newton's steps at most; nats that are left, at which they end
_LONGEST = 0.7  # of each entry of a step
# −1/ρ″(0) of unit lengthscale: a field with slopes of one size has ℓ² in proportion to it
_CURVATURE = {"matern32": 3.0, "matern52": 5 / 3, "matern72": 7 / 5, "matern92": 9 / 7}


@dataclass(frozen=True)
class Neighbourhoods:
    """B neighbourhoods of n samples each; the rows of those with fewer are empty.

    Attributes:
        x: sensor's places (B, n, D), m, along axes of one lengthscale.
        half: from the middle of the stretch that a sample averages to an end of it (B, n, D), m.
        heading: (B, n, 2).
        y: (B, n, C), inner units.
        extra: noise variance in addition to σ² (B, n).
        pass_number: (B, n), negative where there is none.
        present: whether a row is a sample (B, n), bool.
    """

    x: Tensor
    half: Tensor
    heading: Tensor
    y: Tensor
    extra: Tensor
    pass_number: Tensor
    present: Tensor

    @staticmethod
    def of(parts: Sequence[dict[str, Tensor]], theta: Theta) -> Neighbourhoods | None:
        """Choose neighbourhoods; None where they are too few to agree on anything.

        Args:
            parts: columns of samples, as of HyperLearner.step, of one map each.
            theta: says where the sensor was.
        """
        boxes = [(part, box) for part in parts for box in _boxes(part["x"].cpu())]
        if len(boxes) < _FEWEST:
            return None
        even = torch.linspace(0, len(boxes) - 1, min(_MOST, len(boxes))).round().long()
        chosen = [boxes[i] for i in even.tolist()]
        tables = [_columns(part, box.to(part["x"].device), theta) for part, box in chosen]
        n = max(len(box) for _, box in chosen)
        return Neighbourhoods(
            *(torch.stack([_padded(c, n) for c in each]) for each in zip(*tables))
        )


def _boxes(x: Tensor) -> list[Tensor]:
    """Indices of the samples of each box of at most _SIZE, which together hold all of x (N, D)."""
    if len(x) < _LEAST:
        return []
    boxes = Blocks.empty(x.shape[1], 1).split(x, _SIZE)
    number, found = boxes.box_of(x), []
    for which in range(len(boxes.low)):
        box = (number == which).nonzero()[:, 0]
        if len(box) > _SIZE:  # all at one place
            box = box[torch.linspace(0, len(box) - 1, _SIZE).round().long()]
        found += [box] if len(box) >= _LEAST else []
    return found


def _columns(part: dict[str, Tensor], box: Tensor, theta: Theta) -> list[Tensor]:
    """The columns of Neighbourhoods of some samples (n, …), on the processor."""
    x, velocity, heading, y, extra, number = (
        part[name][box].cpu() for name in ("x", "velocity", "heading", "y", "extra", "pass_number")
    )
    extent = part["extent"][box].cpu() if "extent" in part else torch.zeros_like(extra)
    places = theta.sensor_place(x, velocity, heading)
    speed = torch.linalg.vector_norm(velocity, dim=1, keepdim=True)
    half = velocity / speed.clamp_min(1e-300) * extent[:, None]
    axes = torch.as_tensor(theta.lengthscales(1.0), dtype=torch.float64)
    present = torch.ones(len(x), dtype=torch.bool)
    return [places / axes, half / axes, heading, y, extra, number, present]


def _padded(column: Tensor, n: int) -> Tensor:
    """A column with n rows, the missing ones 0."""
    return torch.cat([column, column.new_zeros((n - len(column), *column.shape[1:]))])


class Evidence(NamedTuple):
    """What the neighbourhoods say of a kernel.

    Attributes:
        nats: log evidence, with θ integrated out, up to a constant that is the same for all.
        parts: what each neighbourhood adds to it (B,).
        vector: the likeliest log ℓ, log s², log σ² (3,).
    """

    nats: float
    parts: Tensor
    vector: Tensor


def is_clear(better: Evidence, other: Evidence) -> bool:
    """Whether a kernel is clearly the likelier one, all over the map."""
    gains = better.parts - other.parts
    spread = math.sqrt(len(gains) * float(gains.var()))
    return better.nats - other.nats > CLEAR and float(gains.sum()) > CERTAIN * spread


class KernelSearch:
    """Finds the likeliest kernel of SMOOTHNESS, one Newton step of one kernel at a time.

    From the present kernel on in the direction in which the evidence grows, or all of them.

    Args:
        theta: of the map, with the present kernel.
        data: the neighbourhoods, as they are now.
        prior_sd: scales of the logarithms' priors (3,), about θ's own numbers.
        thorough: whether all kernels are looked at.

    Attributes:
        theta: see above.
        found: the kernels whose evidence is known.
    """

    def __init__(
        self,
        theta: Theta,
        data: Neighbourhoods,
        prior_sd: Sequence[float] = (1.0, 2.0, 3.0),
        thorough: bool = False,
    ):
        self.theta, self.data, self.thorough = theta, data, thorough
        self._precision = torch.tensor(prior_sd, dtype=torch.float64).pow(-2)
        self.found: dict[str, Evidence] = {}
        self._failed: tuple[str, ...] = ()
        self._name: str | None = theta.kernel_name
        self._vector, self._steps = self._start(theta.kernel_name), 0

    def _start(self, name: str) -> Tensor:
        """v of a field with the same slopes under another kernel (3,)."""
        vector = self.theta.vector()[:3].clone()
        vector[0] += 0.5 * math.log(_CURVATURE[name] / _CURVATURE[self.theta.kernel_name])
        return vector

    def advance(self) -> bool:
        """Do one more step; whether there is no other."""
        if self._name is None:
            return True
        try:
            parts, gradient, information = negative_evidence(
                self.theta, self._name, self._vector, self.data
            )
        except torch.linalg.LinAlgError:
            self._failed = (*self._failed, self._name)
            return self._begin_next()

        away = self._vector - self._start(self._name)
        known = information + torch.diag(self._precision)
        move = torch.linalg.solve(known, gradient + self._precision * away)
        left = 0.5 * float(move @ known @ move)
        self._steps += 1
        if left > _CLOSE and self._steps < _STEPS:
            self._vector = self._vector - move.clamp(-_LONGEST, _LONGEST)
            return False

        prior = 0.5 * float((self._precision * away.square()).sum())
        nats = -float(parts.sum()) - prior - 0.5 * float(torch.logdet(known))
        self.found = {**self.found, self._name: Evidence(nats, -parts, self._vector)}
        return self._begin_next()

    def _begin_next(self) -> bool:
        """Go on with the next kernel; whether there is none."""
        self._name, self._steps = self._next(), 0
        if self._name is not None:
            self._vector = self._start(self._name)
        return self._name is None

    def _next(self) -> str | None:
        """The kernel to look at next."""
        done, present = {*self.found, *self._failed}, SMOOTHNESS.index(self.theta.kernel_name)
        if self.theta.kernel_name not in self.found:  # nothing to compare with
            return None
        best = SMOOTHNESS.index(max(self.found, key=lambda name: self.found[name].nats))
        beside = [present - 1, present + 1, best - 1, best + 1]
        among = range(len(SMOOTHNESS))
        ahead = [SMOOTHNESS[i] for i in ([*among] if self.thorough else beside) if i in among]
        return next((name for name in ahead if name not in done), None)

    def finish(self) -> None:
        """Do all steps that are left."""
        while not self.advance():
            pass

    @property
    def clearly(self) -> Theta | None:
        """θ with the kernel that is clearly likelier than the present one; None: there is none."""
        present = self.found.get(self.theta.kernel_name)
        if present is None:
            return None
        best = max(self.found, key=lambda name: self.found[name].nats)
        return self.theta_of(best) if is_clear(self.found[best], present) else None

    def theta_of(self, name: str) -> Theta:
        """θ with a kernel whose evidence is known, and the numbers likeliest under it."""
        vector = self.theta.vector()
        vector[:3] = self.found[name].vector
        return replace(self.theta, kernel_name=name).with_vector(vector)

    # --- files ------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "theta": asdict(self.theta),
            "data": dict(self.data.__dict__),
            "prior_sd": self._precision.pow(-0.5).tolist(),
            "thorough": self.thorough,
            "found": {name: each._asdict() for name, each in self.found.items()},
            "failed": list(self._failed),
            "name": self._name,
            "vector": self._vector,
            "steps": self._steps,
        }

    @staticmethod
    def restored(state: dict) -> KernelSearch:
        """Continue where state_dict was taken."""
        search = KernelSearch(
            Theta(**state["theta"]),
            Neighbourhoods(**state["data"]),
            state["prior_sd"],
            bool(state["thorough"]),
        )
        search.found = {name: Evidence(**each) for name, each in state["found"].items()}
        search._failed, search._name = tuple(state["failed"]), state["name"]
        search._vector, search._steps = state["vector"].clone(), int(state["steps"])
        return search


@torch.no_grad()
def negative_evidence(
    theta: Theta, kernel: str, vector: Tensor, data: Neighbourhoods
) -> tuple[Tensor, Tensor, Tensor]:
    """−log p(y_b | v, k) of each neighbourhood (B,), and gradient (3,) and information of the sum.

    As evidence.evidence_score, of the first three entries of v and all neighbourhoods at once; the
    value is up to a constant, and all are sums over channels divided by their number.

    Args:
        theta: s_c, s_h, s_b and ρ.
        kernel: name of the covariance function.
        vector: log ℓ, log s², log σ² (3,).
        data: the neighbourhoods.

    Raises:
        LinAlgError: a covariance does not factor.
    """
    length, signal, noise = vector.exp().tolist()
    x, channels = data.x, data.y.shape[2]
    averages = matter(torch.linalg.vector_norm(data.half, dim=2), length)
    if averages:
        x = torch.cat([x + data.half, x - data.half], 1)
    square = _square_distances(x / length)
    field, slope = make_kernel(kernel, 1.0, 1.0).correlation_and_slope(square)
    change = slope.mul_(square).mul_(-2.0 * signal)  # ∂C of log ℓ
    field = field.mul_(signal)
    if averages:
        field, change = _mean_of_ends(field), _mean_of_ends(change)

    both = data.present[:, :, None] & data.present[:, None]
    covariance = field + theta.constant_stddev**2
    if theta.heading_stddev > 0:
        covariance += theta.heading_stddev**2 * (data.heading @ data.heading.mT)
    if theta.bias_stddev > 0:
        together = torch.stack([_of_passes(each, theta) for each in data.pass_number])
        covariance += theta.bias_stddev**2 * together
    field, change, covariance = (
        torch.where(both, each, 0.0) for each in (field, change, covariance)
    )
    # an empty row is a value of 0 with a variance of 1, of which nothing depends on v
    own = torch.where(data.present, noise, 0.0)
    diagonal = torch.where(data.present, noise + data.extra, 1.0)
    covariance = covariance + torch.diag_embed(diagonal)

    factor = torch.linalg.cholesky(covariance)
    inverse = torch.cholesky_inverse(factor)
    alpha = inverse @ data.y  # (B, n, C)
    value = 0.5 * (alpha * data.y).sum((1, 2)) / channels
    value += factor.diagonal(dim1=1, dim2=2).log().sum(1)

    pull = inverse - alpha @ alpha.mT / channels
    bends = [change @ alpha, field @ alpha, own[:, :, None] * alpha]
    traces = (change, field)
    gradient = [0.5 * (pull * each).sum() for each in traces]
    gradient.append(0.5 * (pull.diagonal(dim1=1, dim2=2) * own).sum())
    bent = torch.cat(bends, 2)  # (B, n, 3C), one parameter after the other
    products = bent.mT @ (inverse @ bent)
    information = products.sum(0).reshape(3, channels, 3, channels)
    information = 0.5 / channels * information.diagonal(dim1=1, dim2=3).sum(2)
    return value, torch.stack(gradient), 0.5 * (information + information.mT)


def _square_distances(x: Tensor) -> Tensor:
    """r² of places x (B, n, D), by direct differences: (B, n, n)."""
    total = None
    for column in x.unbind(2):
        difference = column[:, :, None] - column[:, None]
        square = difference.square_()
        total = square if total is None else total.add_(square)
    return total


def _mean_of_ends(matrix: Tensor) -> Tensor:
    """As extents.mean_of_ends: (B, n, n) of (B, 2n, 2n)."""
    n = matrix.shape[1] // 2
    rows = matrix[:, :n] + matrix[:, n:]
    return 0.25 * (rows[:, :, :n] + rows[:, :, n:])


def _of_passes(numbers: Tensor, theta: Theta) -> Tensor:
    """Correlation of the constants of passes (n,), 0 where there is none: (n, n)."""
    if theta.bias_correlation > 0:
        alike = bias_correlation(numbers, numbers, theta.bias_correlation)
    else:
        alike = (numbers[:, None] == numbers).double()
    has = numbers >= 0
    return alike * (has[:, None] & has)
