"""Hyper-parameters, learned online in small, safe steps from blocks of remembered samples.

Where one memory holds most of what was measured, its samples are partitioned into blocks that lie
together. A step evaluates one block's exact log evidence, gradient and curvature, and v moves to
the posterior's maximum given all blocks (hyper/blocks.py).

Where samples of many memories are seen in turn (tiles), where most samples are forgotten, and after
θ was settled from outside (a fleet, a fit), the learner follows Bayes' rule from minibatches. A
neighbourhood of n out of N remembered samples takes its fraction of the prior, so that the steps
settle at the posterior of θ given all samples. Each is a natural-gradient step (Fisher scoring): in
the metric of the Fisher information no start is far, and steps shorten as the data agree.

A map takes over the learner's values when they differ from its own by more than is uncertain about
them (`HyperLearner.should_adopt`), since that costs it a rebuild of its factors.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.blocks import OFFSET, Blocks, positive, spacing
from gp_mapping.core.hyper.evidence import evidence_score
from gp_mapping.core.hyper.stamps import Stamps
from gp_mapping.core.hyper.surprise import surprise
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import solve_within

__all__ = ["HyperLearner"]


class HyperLearner:
    """Finds the posterior's maximum over Theta.vector(), one step at a time.

    n new samples queue STEPS √n steps. By blocks:

        v ← v − Λ⁻¹ [Σ_b g_b(v) + P (v − v₀)],    Λ = Σ_b A_b + P,   no entry beyond LONGEST

    By minibatches:

        Λ ← D Λ D + F + w P,   v ← v − Λ⁻¹ (g + w P (v − v₀)),   D² = diag(1 − γ)
        γ_k = max(LAST, 3/(t_k + 6))

    g and F are the gradient of the neighbourhood's −log evidence and its Fisher information, P is
    the prior's precision, and w is the fraction of the samples that the neighbourhood stands for,
    so that a round of all samples takes the prior once. Λ is what the last third of the steps knew,
    so each direction moves by what this neighbourhood adds to it: a single lane does not determine
    δ, and the first lane next to it does, however late it comes.

    t_k grows by 2 when parameter k reverses its direction, and stays while it keeps it (Kesten
    1958): a parameter that is still far from its optimum goes on in long steps, one that has
    arrived averages.

    The logarithms' priors are Student-t with DEGREES degrees of freedom: firm near their medians
    and weak far off, so that one that is wrong by a factor of ten costs little once there are data.

    Args:
        theta: where to start.
        prior: medians of the priors.
        prior_sd: (7,) scales of the logarithms' priors, then of δ in s and of the lever arm in m.
        free: (7,) which entries are learned.
        adopt_change: Theta.distance at which a map takes θ over while steps are long.
    """

    STEPS = 0.2  # per square root of the number of new samples

    # minibatches
    NEIGHBOURS = 200  # samples of a neighbourhood at most; a step costs their cube
    # samples at least, however short the lengthscale: fewer cannot show that it is longer, nor
    # separate noise from the field
    LEAST = 100
    REACH = 2.0  # learned lengthscales within which neighbours lie
    FAR, FARTHER = 0.1, 4.0  # a tenth of the steps reaches four times as far
    NEWEST, NEW = 40, 0.25  # a quarter of the steps looks near one of the newest 40
    LAST = 0.02  # least γ

    # times largest_change: beyond it θ differs from the map's, however uncertain it is
    FARTHEST = 5.0
    DEGREES = 4.0

    # blocks
    BLOCKS, BLOCK = True, 300  # whether it learns by blocks; most samples in one
    GIVEN = 100  # nearest samples of blocks before, on which a block's evidence is conditional
    BESIDE = 50  # nearest samples, on which that of a few new ones is
    ENOUGH = 1.0  # of Blocks.staleness: below it no step is worth its time
    # from FEW samples on, ℓ is at least CLOSEST times their spacing: below, the evidence is flat
    FEW, CLOSEST = 30, 0.5

    # least σ/s: D then has a condition number of 1e10 n, which float64 still solves with a relative
    # error of n · 1e-6
    QUIETEST = 1e-5
    # of each entry of a step: beyond, the quadratic is not to be trusted
    LONGEST = 0.5, 0.5, 0.5, 0.3, 0.05, 0.03, 0.03

    def __init__(
        self,
        theta: Theta,
        prior: Theta,
        prior_sd=(1.0, 2.0, 3.0, 1.0, 0.2, 0.05, 0.05),
        free=(True, True, True, True, True, False, False),
        adopt_change: float = 0.1,
    ):
        self.theta, self.prior, self.largest_change = theta, prior, adopt_change
        self.prior_sd = torch.tensor(prior_sd, dtype=torch.float64)
        self.stamps = Stamps(theta.time_offset, prior.time_offset, float(self.prior_sd[OFFSET]))
        self.free = [bool(f) for f in free]
        self.free[3] = self.free[3] and theta.heading_stddev > 0

        self.vector = theta.vector()
        size = len(self.vector)
        self.metric = torch.zeros((size, size), dtype=torch.float64)  # Λ
        # t, and the sign of the last move
        self.turns, self.direction = (torch.zeros(size, dtype=torch.float64) for _ in range(2))
        self.rounds = torch.zeros(size, dtype=torch.float64)  # rounds of all samples that Λ holds

        # limits at six prior standard deviations: beyond lies only a fault, unless the start does
        centre, start = prior.vector(), theta.vector()
        self.low = torch.minimum(centre - 6 * self.prior_sd, start)
        self.high = torch.maximum(centre + 6 * self.prior_sd, start)
        # least log σ²/s²
        self.quietest = min(2.0 * math.log(self.QUIETEST), float(start[2] - start[1]))

        self.steps, self.pending, self.rejected = 0, 0.0, 0
        # samples that were scheduled; whether steps are by minibatches
        self.seen, self.streams = 0, not self.BLOCKS
        self.blocks: Blocks | None = None
        # caches of `offset_belief` and `covariance`: a result, and what it was computed from
        self._believed: tuple | None = None
        self._covered: tuple | None = None

    @property
    def forgetting(self) -> Tensor:
        """γ of the next step: (P,)."""
        return (3.0 / (self.turns + 6.0)).clamp_min(self.LAST)

    def is_within_limits(self, vector: Tensor) -> bool:
        """Whether v lies within the limits."""
        return not bool(
            (vector < self.low).any()
            or (vector > self.high).any()
            or vector[2] < vector[1] + self.quietest
        )

    def should_adopt(self, theta: Theta) -> bool:
        """Whether a map at θ should take over the learned θ, at the cost of a rebuild.

        A change that is too small for a rebuild is not taken over: below largest_change of
        Theta.distance while steps are long, below a fifth of it later. Nor is one where all that is
        known of both distinguishes them by less than a nat, ½ ΔᵀPΔ ≤ 1 with each sample counted
        once (`precision`): there one is as good as the other. Where little is known Δ may be large,
        but not beyond FARTHEST times largest_change. Another kernel is always taken over.

        Args:
            theta: of the map.
        """
        if theta.shape != self.theta.shape:
            return True
        change = self.theta.distance(theta) / self.largest_change
        if change <= 0.2:  # the usual case: too small however short the steps
            return False

        longest = float(self.forgetting[torch.tensor(self.free)].max()) if any(self.free) else 0.0
        if change <= min(1.0, 5.0 * longest):
            return False

        move = self.supported_vector() - theta.vector()
        return change > self.FARTHEST or bool(0.5 * move @ self.precision() @ move > 1.0)

    def schedule(self, samples: int) -> None:
        """Queue STEPS √n steps for n new samples; at most 40 are pending.

        √n, since each of many samples that come together adds less. The bound keeps a burst of
        samples from becoming a burst of learning.
        """
        self.pending = min(self.pending + self.STEPS * samples**0.5, 40.0)
        self.seen += samples

    def neighbourhood(
        self, x: Tensor, order: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, int]:
        """Samples near a random one, and how many samples they stand for.

        These are all within REACH learned lengthscales, now and then farther, but at least LEAST.
        Where they are more than NEIGHBOURS, half the time the nearest stand for themselves: they
        know the noise and what is small. The other half, a random choice stands for all in reach,
        since it has seen the same stretch of the field.

        Args:
            x: (N, D) positions, m.
            order: (N,) arrival numbers.
            generator: of the random choices.

        Returns:
            Indices (n,), n ≤ NEIGHBOURS, and the number that they stand for, n … N.
        """
        n = len(x)
        new, which, far, compact = torch.rand(4, dtype=torch.float64, generator=generator).tolist()
        # the centre: one of the newest samples, or any
        pool = (
            order.topk(min(self.NEWEST, n)).indices
            if new < self.NEW
            else torch.arange(n, device=x.device)
        )
        centre = int(which * len(pool))
        square = (x - x[pool[centre : centre + 1]]).square().sum(1)

        reach = self.REACH * self.theta.lengthscale * (self.FARTHER if far < self.FAR else 1.0)
        near = (square <= reach**2 * (1 + 1e-6)).nonzero()[:, 0]
        if len(near) < min(self.LEAST, n):
            near = square.topk(min(self.LEAST, n), largest=False).indices
        if len(near) <= self.NEIGHBOURS:
            return near, len(near)

        # the nearest stand for themselves, a random choice for all in reach
        if compact < 0.5:
            return near[square[near].topk(self.NEIGHBOURS, largest=False).indices], self.NEIGHBOURS
        chosen = torch.randperm(len(near), generator=generator)[: self.NEIGHBOURS]
        return near[chosen.to(x.device)], len(near)

    def precision(self) -> Tensor:
        """Precision of θ given all samples and the prior, each of them counted once: (P, P).

        It is Λ_kl/√(R_k R_l), R the rounds of all samples that Λ holds.
        """
        if not bool(self.rounds.any()):
            return torch.diag(self.prior_sd.square().reciprocal())

        root = self.rounds.sqrt()
        return self.metric / (root[:, None] * root)

    def covariance(self) -> Tensor:
        """Covariance of θ given all samples and the prior: (P, P), 0 where an entry is held."""
        inputs = self.metric, self.rounds  # each step replaces them
        if self._covered is None or any(a is not b for a, b in zip(inputs, self._covered[1:])):
            free, covariance = torch.tensor(self.free), torch.zeros_like(self.metric)
            if any(self.free):
                known = self.precision()[free][:, free]
                covariance[free[:, None] & free] = torch.linalg.inv(known).flatten()
            self._covered = covariance, *inputs
        return self._covered[0]

    def supported_vector(self) -> Tensor:
        """v, with as much of the time offset as the samples support: (P,); see `offset_belief`."""
        if not self.free[OFFSET] or not bool(self.rounds.any()):
            return self.vector

        believed = self.vector.clone()
        believed[OFFSET] = self.offset_belief()[0]
        return believed

    def offset_belief(self) -> tuple[float, float]:
        """Mean (s) and variance (s²) of the time offset given all samples (hyper/stamps.py)."""
        if not self.free[OFFSET]:
            return float(self.vector[OFFSET]), 0.0

        inputs = self.vector, self.metric, self.rounds, self.blocks
        if self._believed is None or any(a is not b for a, b in zip(inputs, self._believed[1:])):
            known = self.covariance()[OFFSET, OFFSET], self.precision()[OFFSET, OFFSET]
            belief = self.stamps.belief(self.vector, *map(float, known), self.blocks)
            self._believed = belief, *inputs
        return self._believed[0]

    def summary(self) -> Learned:
        """θ, Λ, and the covariance of θ given all samples."""
        return Learned(self.theta, self.metric.clone(), self.covariance(), self.offset_belief()[1])

    def round_fraction(self, used: int, stands_for: int, total: int) -> Tensor:
        """w, the fraction of a round that a step is: (P,).

        A random choice knows as much of the field as all samples that it stands for, but as much of
        the noise as its own number.

        Args:
            used: samples of the step.
            stands_for: samples that these stand for.
            total: all samples.
        """
        fraction = torch.full_like(self.vector, stands_for / total)
        fraction[2] = used / total
        return fraction

    def prior_precision(self, used: int, stands_for: int, total: int) -> Tensor:
        """wP, the prior's contribution to a step: (P,).

        The Student-t enters as a Gaussian of the same slope, with precision (ν + 1)/(ν + z²) at z
        scales from the median.

        Args:
            used: as of `round_fraction`, and so are the others.
            stands_for: see `used`.
            total: see `used`.
        """
        square = ((self.vector - self.prior.vector()) / self.prior_sd).square()
        precision = (self.DEGREES + 1.0) / (self.DEGREES + square)
        precision[4:7] = 1.0  # δ and the lever arm are no logarithms
        return self.round_fraction(used, stands_for, total) * precision / self.prior_sd.square()

    def log_prior(self, vector: Tensor) -> float:
        """log p(v), up to a constant, of the free entries of v (P,).

        Student-t for the logarithms, Gaussian for δ and the lever arm.
        """
        square = ((vector - self.prior.vector()) / self.prior_sd).square()
        log_density = -0.5 * (self.DEGREES + 1.0) * torch.log1p(square / self.DEGREES)
        log_density[4:7] = -0.5 * square[4:7]
        return float(log_density[torch.tensor(self.free)].sum())

    def continue_from(self, theta: Theta, information: Tensor) -> None:
        """Continue from a θ that was found from all samples at once.

        Args:
            theta: the θ found.
            information: Fisher information of all samples about it (P, P).
        """
        self.theta, self.vector = theta, theta.vector()
        self.metric = information + torch.diag(self.prior_sd.reciprocal().square())
        # θ has arrived: steps are short, and average
        self.turns = torch.full_like(self.turns, 3.0 / self.LAST)
        self.rounds = torch.ones_like(self.rounds)

        self.low, self.high = (
            torch.minimum(self.low, self.vector),
            torch.maximum(self.high, self.vector),
        )

        self.pending = 0.0
        self.use_minibatches()

    def score(self, vector: Tensor, data: dict[str, Tensor], near: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (P,) of −log evidence, and Fisher information (P, P).

        Args:
            vector: where, as of Theta.vector, (P,).
            data: columns of all samples, as of `step`.
            near: indices of those that count, (n,).
        """
        return evidence_score(self.theta, vector, self.free, *self._arguments(data, near))

    def score_average(
        self, vector: Tensor, data: dict[str, Tensor], near: Tensor, given: Tensor
    ) -> tuple[Tensor, Tensor]:
        """−log evidence's gradient (P,) and average information (P, P) of `near`, given others.

        −log p(near | given) is that of both together minus that of those given, and so is its
        information, whose negative curvatures by chance are left out. That of few samples is
        Fisher's.

        Args:
            vector: v (P,).
            data: as of `step`.
            near: indices (n,).
            given: indices of the samples that are known beforehand.
        """
        both = torch.cat([near, given])
        gradient, information = self._gradient_and_information(
            vector, data, both, len(both) > self.LEAST
        )
        if len(given):
            known, its_information = self._gradient_and_information(
                vector, data, given, len(both) > self.LEAST
            )
            gradient, information = gradient - known, positive(information - its_information)
        return gradient, information

    def _gradient_and_information(
        self, vector: Tensor, data: dict[str, Tensor], near: Tensor, average: bool
    ):
        """Gradient, and average or Fisher information, of the samples `near`."""
        return evidence_score(
            self.theta, vector, self.free, *self._arguments(data, near), average=average
        )

    def _arguments(self, data: dict[str, Tensor], near: Tensor | slice) -> list[Tensor | None]:
        """The arguments of evidence_score, of the samples `near`."""
        pass_numbers = data["pass_number"][near] if self.theta.bias_stddev > 0 else None
        return [
            *(data[name][near] for name in ("x", "velocity", "heading", "y", "extra")),
            pass_numbers,
            data["extent"][near] if "extent" in data else None,
        ]

    @torch.no_grad()
    def step(self, data: dict[str, Tensor], generator: torch.Generator) -> bool:
        """Take one step; False where it found nothing to do or was refused.

        Args:
            data: x and velocity (n, D), heading (n, 2), y (n, C), extra and order (n,), and
                pass_number (n,) where passes have constants, and extent (n,) of averages.
            generator: of the random choices.
        """
        self.pending -= 1.0
        x = data["x"]
        if not len(x):
            return False

        # most samples are forgotten: blocks of the others do not represent them
        if not self.streams and 2 * len(x) < self.seen:
            self.use_minibatches()
        if not self.streams:
            return self._step_block(data)

        near, stands_for = self.neighbourhood(x, data["order"], generator)
        if len(near) < 5:
            return False
        evaluation = self._evaluate(self.score, data, near)
        if evaluation is None:
            return False

        gradient, information = evaluation
        step = len(near), stands_for, len(x)
        prior, keep = self.prior_precision(*step), (1.0 - self.forgetting).sqrt()
        # Λ ← D Λ D + F + wP, and the rounds of samples that are in it
        self.rounds = keep.square() * self.rounds + self.round_fraction(*step)
        self.metric = keep[:, None] * self.metric * keep + information + torch.diag(prior)
        self.steps += 1

        downhill = gradient + prior * (self.vector - self.prior.vector())
        move = self.limited_step(downhill, self.low)

        # a reversal of the direction shortens later steps
        self.turns += 2.0 * (move.sign() * self.direction < 0)
        self.direction = move.sign()
        self._move_vector(move, self.low)
        return True

    def _evaluate(
        self, score, data: dict[str, Tensor], *near: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """`score` or `score_average` at v; None, counted as rejected, where that fails."""
        try:
            gradient, information = score(self.vector, data, *near)
        except torch.linalg.LinAlgError:
            self.rejected += 1
            return None

        # one copy for both
        both = torch.cat([gradient[None], information]).cpu()
        if not bool(torch.isfinite(both).all()):
            self.rejected += 1
            return None
        return both[0], both[1:]

    def _step_block(self, data: dict[str, Tensor]) -> bool:
        """Evaluate the blocks that are most out of date, and move v to the minimum of all blocks.

        All at the same v, and as many as take no longer than a full one. False where no block is
        out of date, or none of them can be evaluated: it is passed over, so that the others have
        their turn.
        """
        x, order = data["x"].cpu(), data["order"].cpu().to(torch.float64)
        if len(x) < 5:
            return False

        blocks = self.blocks or Blocks.empty(x.shape[1], len(self.vector))
        self.blocks = blocks = blocks.split(x, self.BLOCK)
        self.steps += 1  # also those that find nothing to do: θ has settled as far as it can by now

        news = blocks.staleness(x, order, self.vector)
        if news.max() < self.ENOUGH:
            columns = self._arguments(data, slice(None))
            news = news + surprise(self.theta, self.vector, columns, blocks, order, self.BESIDE)
        if news.max() < self.ENOUGH:
            return False

        evaluated, cost = False, 0.0  # in full blocks
        held = blocks.count_in(x).tolist()
        for turn, which in enumerate(news.argsort(descending=True, stable=True).tolist()):
            cost += (held[which] / self.BLOCK) ** 2
            if turn and (cost > 1.0 or news[which] < self.ENOUGH):
                break
            evaluated = self._ask(which, data, x, float(order.max())) or evaluated
        if not self.blocks.is_incomplete(x):
            self._move_to_minimum(x)
        return evaluated

    def _ask(self, which: int, data: dict[str, Tensor], x: Tensor, newest: float) -> bool:
        """Evaluate one block; False where that cannot be.

        Args:
            which: number of the block.
            data: as of `step`.
            x: places of all samples (N, D).
            newest: the latest arrival number of all samples.
        """
        near, given = self.blocks.members(which, x, self.GIVEN)
        # what an empty block says
        evaluation = torch.zeros_like(self.vector), torch.zeros_like(self.metric)
        if len(near):
            near, given = (to_device(which_of, data["x"].device) for which_of in (near, given))
            evaluation = self._evaluate(self.score_average, data, near, given)
            if evaluation is None and len(given):  # what lies beside it may be to blame
                evaluation = self._evaluate(self.score_average, data, near, given[:0])

        record = which, len(near), newest, self.vector
        if evaluation is None:
            self.blocks = self.blocks.with_skipped(*record)
        else:
            against = self._loss_of_stamps(data, near, given, evaluation) if len(near) else 0.0
            self.blocks = self.blocks.with_evaluation(*record, *evaluation, against)
        return evaluation is not None

    def _loss_of_stamps(
        self, data: dict[str, Tensor], near: Tensor, given: Tensor, said: tuple[Tensor, Tensor]
    ) -> float:
        """Nats by which a block's evidence is less with the offset of the stamps (Stamps.lost)."""
        if not self.free[OFFSET]:
            return 0.0
        columns = [self._arguments(data, those) for those in (torch.cat([near, given]), given)]
        variance, little = float(self.covariance()[OFFSET, OFFSET]), 0.2 * self.largest_change
        return self.stamps.lost(self.theta, self.vector, said, variance, little, columns)

    def _move_to_minimum(self, x: Tensor) -> None:
        """A Newton step on the sum of all blocks and the prior.

        Args:
            x: places of all samples (N, D).
        """
        blocks, prior = self.blocks, self.prior_precision(1, 1, 1)
        self.metric = blocks.information.sum(0) + torch.diag(prior)
        self.turns = torch.full_like(self.turns, 3.0 / self.LAST)
        self.rounds = torch.ones_like(self.rounds)

        # ℓ below half the spacing has no slope; see CLOSEST
        low = self.low.clone()
        if len(x) >= self.FEW:
            low[0] = max(float(low[0]), math.log(max(self.CLOSEST * spacing(x), 1e-9)))
        downhill = blocks.slope(self.vector) + prior * (self.vector - self.prior.vector())
        self._move_vector(self.limited_step(downhill, low), low)

    def limited_step(self, downhill: Tensor, low: Tensor) -> Tensor:
        """Λ⁻¹ downhill (P,), with no entry beyond LONGEST, where the quadratic fails, or a limit.

        Shortening the step as a whole would let a parameter of which little is known hold up all
        others; what is held at a limit has the others moved as far as they should be given it.

        Args:
            downhill: gradient of −log posterior (P,).
            low: lower limits of v (P,).
        """
        longest = torch.tensor(self.LONGEST, dtype=torch.float64)
        most = torch.minimum(longest, self.vector - low)
        least = torch.minimum(torch.maximum(-longest, self.vector - self.high), most)
        return solve_within(self.metric, downhill, self.free, least, most)

    def _move_vector(self, move: Tensor, low: Tensor) -> None:
        """Move v by −move (P,), within the limits.

        Args:
            move: (P,).
            low: lower limits (P,).
        """
        self.vector = torch.minimum(torch.maximum(self.vector - move, low), self.high)
        self.vector[2] = torch.maximum(self.vector[2], self.vector[1] + self.quietest)
        self.theta = self.theta.with_vector(self.supported_vector())

    def use_minibatches(self) -> None:
        """Learn by minibatches from now on: samples are no longer those of one memory."""
        self.streams, self.blocks = True, None

    def state_dict(self) -> dict:
        """State for `load_state_dict`."""
        return {
            "kernel": self.theta.kernel_name,
            "vector": self.vector.clone(),
            "metric": self.metric.clone(),
            "turns": self.turns.clone(),
            "direction": self.direction.clone(),
            "rounds": self.rounds.clone(),
            "steps": self.steps,
            "pending": self.pending,
            "rejected": self.rejected,
            "seen": self.seen,
            "streams": self.streams,
            "blocks": {} if self.blocks is None else dict(self.blocks.__dict__),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue exactly where `state_dict` was taken."""
        # absent in maps of a version that had one kernel from the first cells on
        self.theta = replace(self.theta, kernel_name=state.get("kernel", self.theta.kernel_name))
        self.vector, self.metric = state["vector"].clone(), state["metric"].clone()
        self.turns, self.direction = state["turns"].clone(), state["direction"].clone()
        # a state that did not count them has seen its samples at least once
        self.rounds = state["rounds"].clone() if "rounds" in state else torch.ones_like(self.vector)

        self.steps, self.pending, self.rejected = (
            int(state["steps"]),
            float(state["pending"]),
            int(state["rejected"]),
        )
        self.seen = int(state.get("seen", 0))
        self.streams = bool(state.get("streams", not self.BLOCKS))
        blocks = state.get("blocks")
        self.blocks = Blocks.restored(blocks, self.stamps.offset) if blocks else None
        self.theta = self.theta.with_vector(self.supported_vector())
