"""Hyper-parameters, learned online in small, safe steps from blocks of remembered samples.

Where one memory holds most of what was measured, it is parted into blocks that lie together, and a step asks one of
them for its exact log evidence, slope and bend: v goes to the posterior's maximum given all blocks (hyper/blocks.py).

Where samples of many memories come by (tiles), where most are forgotten, and after θ was settled from outside (a fleet,
a fit): Bayes' rule from minibatches. Of N remembered samples a neighbourhood of n takes its share of the prior, so that
steps come to rest at the posterior of θ given all of them. Each is a natural-gradient step (Fisher scoring): in the
metric of the Fisher information no start is far, and steps shorten as the data agree.

A map takes the learner's values over when it is no longer within what is known of them (`HyperLearner.left`), since
that costs it a rebuild of its factors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.blocks import Blocks
from gp_mapping.core.hyper.evidence import evidence_score
from gp_mapping.core.hyper.theta import Theta

__all__ = ["HyperLearner"]


class HyperLearner:
    """The posterior's maximum over Theta.vector(), on the way; STEPS √n steps for n samples, done one by one.

    By blocks: v ← v − Λ⁻¹ [Σ_b g_b(v) + P (v − v₀)], Λ = Σ_b A_b + P, no part longer than LONGEST. By minibatches:

        Λ ← D Λ D + F + w P,   v ← v − Λ⁻¹ (g + w P (v − v₀)),   D² = diag(1 − γ),   γ_k = max(LAST, 3/(t_k + 6))

    g, F: gradient of the neighbourhood's −log evidence and its Fisher information; P: the prior's precision; w: the
    share of the samples that the neighbourhood stands for, so that a round of all of them takes the prior once. Λ is
    what the last third of the steps knew, so each direction moves by what this neighbourhood adds to it: a lane alone
    does not fix δ, and the first lane beside it does, however late it comes.

    t_k grows by 2 where parameter k turned round, and not while it keeps its direction (Kesten 1958): one that is
    still on its way from a far start goes on in long steps, one that has arrived averages.

    The logarithms' priors are Student-t with DEGREES degrees of freedom: firm near their medians, and weak far off, so
    that one that is wrong by a factor of ten costs little once there are data.

    Args:
        theta: where to start.
        prior: medians of the priors.
        prior_sd: (7,) scales of the logarithms' priors, then of δ in s and of the lever arm in m.
        free: (7,) which are learned.
        adopt_change: Theta.distance at which a map takes θ over while steps are long.
    """

    STEPS = 0.2
    NEIGHBOURS = 200  # a step costs their cube
    LEAST = 100  # however short the lengthscale: fewer cannot tell that it is longer, nor noise from the field
    REACH = 2.0  # lengthscales, of the learned one
    FAR, FARTHER = 0.1, 4.0  # a tenth of the steps reaches four times as far
    NEWEST, NEW = 40, 0.25  # a quarter of the steps looks near one of the newest 40
    LAST = 0.02
    FARTHEST = 5.0  # times largest_change: beyond it the map's θ is another one, whatever is known of the new one
    DEGREES = 4.0
    BLOCKS, BLOCK = True, 400  # whether it learns by blocks; most samples of one
    ENOUGH = 1.0  # of Blocks.news: below it no step is worth its time
    FEW, CLOSEST = (
        30,
        0.5,
    )  # from so many samples on ℓ is so much of their spacing at least: below, it has no slope
    QUIETEST = 1e-5  # of σ/s: D then has a condition of 1e10 n, which float64 still solves to n · 1e-6 of what it is
    LONGEST = (
        0.5,
        0.5,
        0.5,
        0.3,
        0.05,
        0.03,
        0.03,
    )  # of one step: beyond, the quadratic is not to be trusted

    def __init__(
        self,
        theta: Theta,
        prior: Theta,
        prior_sd=(1.0, 2.0, 3.0, 1.0, 0.2, 0.05, 0.05),
        free=(True, True, True, True, True, False, False),
        adopt_change: float = 0.1,
    ):
        self.theta, self.prior, self.largest_change = theta, prior, adopt_change
        self.stamped = theta.time_offset  # δ₀, what it was said to be
        self.prior_sd = torch.tensor(prior_sd, dtype=torch.float64)
        self.free = [bool(f) for f in free]
        self.free[3] = self.free[3] and theta.heading_stddev > 0

        self.vector = theta.vector()
        size = len(self.vector)
        self.metric = torch.zeros((size, size), dtype=torch.float64)  # Λ
        self.turns, self.direction = (
            torch.zeros(size, dtype=torch.float64) for _ in range(2)
        )  # t, sign of the move
        self.rounds = torch.zeros(size, dtype=torch.float64)  # of all samples, that are in Λ

        # six prior standard deviations: beyond lies only a fault, unless the start lies there
        centre, start = prior.vector(), theta.vector()
        self.low = torch.minimum(centre - 6 * self.prior_sd, start)
        self.high = torch.maximum(centre + 6 * self.prior_sd, start)
        self.quietest = min(
            2.0 * math.log(self.QUIETEST), float(start[2] - start[1])
        )  # of log σ²/s²
        self.steps, self.pending, self.rejected = 0, 0.0, 0
        self.seen, self.streams = (
            0,
            not self.BLOCKS,
        )  # samples that were scheduled; whether by minibatches
        self.blocks: Blocks | None = None
        self._believed: tuple[Tensor, ...] | None = (
            None  # v as believed, and what it was found from
        )

    @property
    def forgetting(self) -> Tensor:
        """γ of the next step: (P,)."""
        return (3.0 / (self.turns + 6.0)).clamp_min(self.LAST)

    def allows(self, vector: Tensor) -> bool:
        """Whether it lies within the limits."""
        return not bool(
            (vector < self.low).any()
            or (vector > self.high).any()
            or vector[2] < vector[1] + self.quietest
        )

    def left(self, theta: Theta) -> bool:
        """Whether a map at theta should take the learned θ over, which costs it a rebuild of its factors.

        Not for a change that is too small for a rebuild (largest_change of Theta.distance while steps are long, a fifth
        of it later), nor where all that is known of them together tells the two apart by less than a nat,
        ½ ΔᵀΛΔ ≤ 1: there the one is as good as the other. Where little is known Δ may be large, but not more than
        FARTHEST of largest_change.
        """
        change = self.theta.distance(theta) / self.largest_change
        if change <= 0.2:  # however short the steps, as it mostly is
            return False
        longest = float(self.forgetting[torch.tensor(self.free)].max()) if any(self.free) else 0.0
        if change <= min(1.0, 5.0 * longest):
            return False
        move = self.believed() - theta.vector()
        return change > self.FARTHEST or bool(0.5 * move @ self.metric @ move > 1.0)

    def schedule(self, samples: int) -> None:
        """Queue STEPS √n Fisher-scoring steps for n new samples; at most 40 are pending.

        √n, since the more samples come together the less new each says; bounded: a burst is no burst of learning.
        """
        self.pending = min(self.pending + self.STEPS * samples**0.5, 40.0)
        self.seen += samples

    def neighbourhood(
        self, x: Tensor, order: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, int]:
        """Samples near a random one, and how many samples they stand for.

        All within REACH learned lengthscales, now and then farther, but LEAST at the least. Where these are more than
        NEIGHBOURS, half the time the nearest stand for themselves: they know the noise and what is small. The other
        half, a random choice stands for all in reach, for it has seen the same stretch of the field.

        Args:
            x: (N, D) positions, m.
            order: (N,) arrival numbers.
            generator: of the random choices.

        Returns:
            Indices (n,), n ≤ NEIGHBOURS, and the number that they stand for, n … N.
        """
        n = len(x)
        new, which, far, compact = torch.rand(4, dtype=torch.float64, generator=generator).tolist()
        pool = (
            order.topk(min(self.NEWEST, n)).indices
            if new < self.NEW
            else torch.arange(n, device=x.device)
        )
        square = (x - x[pool[int(which * len(pool))]]).square().sum(1)

        reach = self.REACH * self.theta.lengthscale * (self.FARTHER if far < self.FAR else 1.0)
        near = (square <= reach**2 * (1 + 1e-6)).nonzero()[:, 0]
        if len(near) < min(self.LEAST, n):
            near = square.topk(min(self.LEAST, n), largest=False).indices
        if len(near) <= self.NEIGHBOURS:
            return near, len(near)

        if compact < 0.5:
            return near[square[near].topk(self.NEIGHBOURS, largest=False).indices], self.NEIGHBOURS
        chosen = torch.randperm(len(near), generator=generator)[: self.NEIGHBOURS]
        return near[chosen.to(x.device)], len(near)

    def covariance(self) -> Tensor:
        """Of θ given all samples and the prior, the inverse of Λ_kl/√(R_k R_l), R rounds; 0 where held. (P, P)"""
        precision = torch.diag(self.prior_sd.square().reciprocal())
        if bool(self.rounds.any()):
            root = self.rounds.sqrt()
            precision = self.metric / (root[:, None] * root)
        free, covariance = torch.tensor(self.free), torch.zeros_like(self.metric)
        if any(self.free):
            covariance[free[:, None] & free] = torch.linalg.inv(precision[free][:, free]).flatten()
        return covariance

    def believed(self) -> Tensor:
        """v, with as much of the time offset as the samples speak for: (P,).

        On a way that never comes back in another direction a shift along it changes nothing, and δ is what noise makes
        of it. So either the stamps are as they were said to be, δ₀, or they are late by any δ of its prior, the one as
        likely as the other beforehand; of the two the samples say (Savage-Dickey)

            B = N(δ₀; δ̂, C_δδ) / N(δ₀; prior),     E[δ] = δ₀ + (δ̂ − δ₀)/(1 + B)

        which is δ̂ once lanes in two directions lie side by side.
        """
        if not self.free[4] or not bool(self.rounds.any()):
            return self.vector
        known = self.vector, self.metric, self.rounds
        if self._believed is not None and all(a is b for a, b in zip(known, self._believed[1:])):
            return self._believed[0]

        middle, wide = float(self.prior.time_offset), float(self.prior_sd[4])
        away = float(self.vector[4]) - self.stamped
        narrow = min(math.sqrt(float(self.covariance()[4, 4])), wide)
        against = 0.5 * (((self.stamped - middle) / wide) ** 2 - (away / narrow) ** 2)
        held = self.vector.clone()
        held[4] = self.stamped + away / (1.0 + wide / narrow * math.exp(min(against, 50.0)))
        self._believed = held, *known
        return held

    def summary(self) -> Learned:
        """θ, Λ, and how well all samples know θ."""
        return Learned(self.theta, self.metric.clone(), self.covariance())

    def share_of(self, used: int, stands_for: int, total: int) -> Tensor:
        """w, the share of a round that a step on `used` samples is, which stand for `stands_for` of `total`: (P,).

        A random choice knows as much of the field as all that it stands for, but of the noise as its own number.
        """
        share = torch.full_like(self.vector, stands_for / total)
        share[2] = used / total
        return share

    def prior_precision(self, used: int, stands_for: int, total: int) -> Tensor:
        """wP, the prior's share in a step, arguments as of `share_of`: (P,).

        The Student-t as a Gaussian of the same slope: precision (ν + 1)/(ν + z²) at z scales from the median.
        """
        away = ((self.vector - self.prior.vector()) / self.prior_sd).square()
        heavy = (self.DEGREES + 1.0) / (self.DEGREES + away)
        heavy[4:7] = 1.0  # δ and the lever arm are no logarithms
        return self.share_of(used, stands_for, total) * heavy / self.prior_sd.square()

    def log_prior(self, vector: Tensor) -> float:
        """log p(v) of v (P,), but for a constant: Student-t of the logarithms, Gaussian of δ and the lever arm."""
        square = ((vector - self.prior.vector()) / self.prior_sd).square()
        heavy = -0.5 * (self.DEGREES + 1.0) * torch.log1p(square / self.DEGREES)
        heavy[4:7] = -0.5 * square[4:7]
        return float(heavy[torch.tensor(self.free)].sum())

    def settle(self, theta: Theta, information: Tensor) -> None:
        """Go on from θ that was found from all samples at once; information (P, P): what they know of it."""
        self.theta, self.vector = theta, theta.vector()
        self.metric = information + torch.diag(self.prior_sd.reciprocal().square())
        self.turns = torch.full_like(
            self.turns, 3.0 / self.LAST
        )  # arrived: steps are short, and average
        self.rounds = torch.ones_like(self.rounds)
        self.low, self.high = (
            torch.minimum(self.low, self.vector),
            torch.maximum(self.high, self.vector),
        )
        self.pending = 0.0
        self.stream()

    def score(self, vector: Tensor, data: dict[str, Tensor], near: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (7,) of −log evidence of the samples `near` (indices), and its Fisher information (7, 7)."""
        return evidence_score(self.theta, vector, self.free, *self._parts(data, near))

    def bend(self, vector: Tensor, data: dict[str, Tensor], near: Tensor) -> tuple[Tensor, Tensor]:
        """As `score`, with the average information where there are more than a few samples: of few it is a matter of
        chance."""
        average = len(near) > self.LEAST
        return evidence_score(
            self.theta, vector, self.free, *self._parts(data, near), average=average
        )

    def _parts(self, data: dict[str, Tensor], near: Tensor) -> list[Tensor | None]:
        of = data["pass_number"][near] if self.theta.bias_stddev > 0 else None
        return [*(data[name][near] for name in ("x", "velocity", "heading", "y", "extra")), of]

    @torch.no_grad()
    def step(self, data: dict[str, Tensor], generator: torch.Generator) -> bool:
        """One step from x, velocity (n, D), heading (n, 2), y (n, C), extra, order (n,), and pass_number (n,) where
        passes have constants; False where it was refused."""
        self.pending -= 1.0
        x = data["x"]
        if not len(x):
            return False
        if not self.streams and 2 * len(x) < self.seen:
            self.stream()
        if not self.streams:
            return self._ask_block(data)
        near, stands_for = self.neighbourhood(x, data["order"], generator)
        if len(near) < 5:
            return False
        said = self._said(self.score, data, near)
        if said is None:
            return False

        gradient, information = said
        step = len(near), stands_for, len(x)
        prior, keep = self.prior_precision(*step), (1.0 - self.forgetting).sqrt()
        self.rounds = keep.square() * self.rounds + self.share_of(*step)
        self.metric = keep[:, None] * self.metric * keep + information + torch.diag(prior)
        self.steps += 1

        downhill = gradient + prior * (self.vector - self.prior.vector())
        move = self.within_reach(downhill)
        self.turns += 2.0 * (move.sign() * self.direction < 0)
        self.direction = move.sign()
        self._go(move, self.low)
        return True

    def _said(self, ask, data: dict[str, Tensor], near: Tensor) -> tuple[Tensor, Tensor] | None:
        """`ask` (score or bend) at v; None, and counted, where it cannot be computed."""
        try:
            gradient, information = (
                t.cpu() for t in ask(self.vector.to(data["x"].device), data, near)
            )
        except torch.linalg.LinAlgError:
            self.rejected += 1
            return None
        if not bool(torch.isfinite(gradient).all() and torch.isfinite(information).all()):
            self.rejected += 1
            return None
        return gradient, information

    def _ask_block(self, data: dict[str, Tensor]) -> bool:
        """The block of which most is out of date is asked, and v goes to the minimum of all; False where none is."""
        x, order = data["x"].cpu(), data["order"].cpu().to(torch.float64)
        if len(x) < 5:
            return False
        blocks = self.blocks or Blocks.empty(x.shape[1], len(self.vector))
        blocks = self.blocks = blocks.split(x, self.BLOCK)
        news = blocks.news(x, order, self.vector)
        which = int(news.argmax())
        self.steps += 1  # also those that find nothing to do: θ has settled as far as it can by now
        if news[which] < self.ENOUGH:
            return False

        near = (blocks.of(x) == which).nonzero()[:, 0]
        said = torch.zeros_like(self.vector), torch.zeros_like(self.metric)  # an empty block's
        if len(near):
            said = self._said(self.bend, data, near.to(data["x"].device))
        if said is None:
            return False
        self.blocks = blocks = blocks.recorded(
            which, len(near), float(order.max()), self.vector, *said
        )
        if blocks.silent(x):
            return True

        prior = self.prior_precision(1, 1, 1)
        self.metric = blocks.information.sum(0) + torch.diag(prior)
        self.turns, self.rounds = (
            torch.full_like(self.turns, 3.0 / self.LAST),
            torch.ones_like(self.rounds),
        )
        low = self.low.clone()
        if len(x) >= self.FEW:
            spacing = float((x[1:] - x[:-1]).norm(dim=1).median())
            low[0] = max(float(low[0]), math.log(max(self.CLOSEST * spacing, 1e-9)))
        self._go(
            self.within_reach(
                blocks.slope(self.vector) + prior * (self.vector - self.prior.vector())
            ),
            low,
        )
        return True

    def within_reach(self, downhill: Tensor) -> Tensor:
        """Λ⁻¹ downhill (P,), no part of which is longer than LONGEST, beyond which no quadratic is to be trusted.

        A part that would be is held there and the others are solved again beside it, the longest first: to shorten the
        step as a whole would let a parameter of which little is known hold up all others.
        """
        longest = torch.tensor(self.LONGEST, dtype=torch.float64)
        loose, move = torch.tensor(self.free), torch.zeros_like(downhill)
        while bool(loose.any()):
            left = downhill[loose] - self.metric[loose][:, ~loose] @ move[~loose]
            move[loose] = torch.linalg.solve(self.metric[loose][:, loose], left)
            over = (move / longest).abs() * loose
            worst = int(over.argmax())
            if over[worst] <= 1.0:
                break
            move[worst] = longest[worst] * move[worst].sign()
            loose[worst] = False
        return move

    def _go(self, move: Tensor, low: Tensor) -> None:
        """v − move (P,), within the limits."""
        self.vector = torch.minimum(torch.maximum(self.vector - move, low), self.high)
        self.vector[2] = torch.maximum(self.vector[2], self.vector[1] + self.quietest)
        self.theta = self.theta.with_vector(self.believed())

    def stream(self) -> None:
        """From now on by minibatches: samples are no longer those of one memory."""
        self.streams, self.blocks = True, None

    def state_dict(self) -> dict:
        return {
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
        self.blocks = Blocks(**state["blocks"]) if state.get("blocks") else None
        self.theta = self.theta.with_vector(self.believed())
