"""GPyTorch as it is used: an exact GP on a subsample, SVGP on stored samples, and online variational conditioning."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from benchmark.batch import UNIT, GPyTorchExact, kmeans_inputs, prediction
from gp_mapping.core.types import Prediction, Samples

__all__ = ["ExactGP", "OnlineConditioning", "StoredSVGP"]

_CHUNK = 2000


class _Stored:
    """Keeps everything, and fits when it is asked to predict."""

    def __init__(self):
        self.parts: list[tuple[Tensor, Tensor]] = []
        self.fitted = None

    def update(self, x: Tensor, y: Tensor) -> None:
        """Keep N samples."""
        self.parts.append((x, y.reshape(-1, 1)))
        self.fitted = None

    def data(self) -> Samples:
        """All of it."""
        return Samples(*(torch.cat(v) for v in zip(*self.parts)))

    def predict(self, x: Tensor, *_, **__) -> Prediction:
        """At x (N, D), after a fit where there is new data."""
        self.fitted = self.fitted or self.fit()
        return self.fitted.predict(x)


class ExactGP(_Stored):
    """GPyTorch's exact GP on a random `size` of the samples, θ given."""

    def __init__(self, size: int, theta: tuple[float, float, float], seed: int = 0):
        """theta: ℓ in m, s² and σ² in µT²."""
        super().__init__()
        self.size, self.theta, self.seed = size, theta, seed

    def fit(self) -> GPyTorchExact:
        return GPyTorchExact(self.data(), self.size, self.seed, *self.theta)


class StoredSVGP(_Stored):
    """GPyTorch's SVGP (Hensman et al. 2013), z by k-means, trained by Adam in minibatches on everything stored."""

    def __init__(
        self,
        theta: tuple[float, float, float],
        *,
        budget: int = 200,
        epochs: int = 8,
        size: int = 500,
        rate: float = 0.02,
        learn: bool = True,
        bernoulli: bool = False,
        seed: int = 0,
    ):
        super().__init__()
        self.theta, self.budget, self.epochs, self.size, self.rate = (
            theta,
            budget,
            epochs,
            size,
            rate,
        )
        self.learn, self.bernoulli, self.seed = learn, bernoulli, seed

    def fit(self) -> "_SVGP":
        data, generator = self.data(), torch.Generator().manual_seed(self.seed)
        z = kmeans_inputs(data.x, min(self.budget, len(data) // 2), self.seed)
        new = _SVGP(
            z, self.theta, 0.0 if self.bernoulli else float(data.y.mean()) / UNIT, self.bernoulli
        )
        y = data.y[:, 0] if self.bernoulli else data.y[:, 0] / UNIT
        objective = new.gpytorch.mlls.VariationalELBO(new.likelihood, new.model, len(data))
        groups = [
            p
            for n, p in new.model.named_parameters()  # the likelihood's among them
            if "inducing_points" not in n and (self.learn or "variational" in n)
        ]
        optimiser = torch.optim.Adam(groups, self.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimiser, self.epochs * -(-len(data) // self.size)
        )
        new.model.train()
        for _ in range(self.epochs):
            for pick in torch.randperm(len(data), generator=generator).split(self.size):
                optimiser.zero_grad()
                (-objective(new.model(data.x[pick]), y[pick])).backward()
                optimiser.step()
                schedule.step()
        new.model.eval()
        return new


class _SVGP:
    """The model and its likelihood."""

    def __init__(
        self, z: Tensor, theta: tuple[float, float, float], centre: float, bernoulli: bool = False
    ):
        import gpytorch  # a test requirement, and slow to import

        kinds = gpytorch.likelihoods
        self.likelihood = (
            kinds.BernoulliLikelihood() if bernoulli else kinds.GaussianLikelihood()
        ).double()
        likelihood = self.likelihood

        class Model(gpytorch.models.ApproximateGP):
            def __init__(self):
                v = gpytorch.variational
                super().__init__(
                    v.VariationalStrategy(
                        self,
                        z,
                        v.CholeskyVariationalDistribution(len(z)),
                        learn_inducing_locations=False,
                    )
                )
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(
                    gpytorch.kernels.MaternKernel(nu=2.5)
                )
                self.likelihood = likelihood

            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(x), self.covar_module(x)
                )

        self.gpytorch, self.model, self.bernoulli = gpytorch, Model().double(), bernoulli
        self.model.mean_module.constant.data.fill_(centre)
        self.model.covar_module.base_kernel.lengthscale = theta[0]
        self.model.covar_module.outputscale = theta[1]
        if not bernoulli:
            self.likelihood.noise = theta[2]

    @torch.no_grad()
    def predict(self, x: Tensor) -> Prediction:
        """Of a Bernoulli model: its latent f."""
        parts = [self.model(part) for part in x.split(_CHUNK)]
        mean, variance = torch.cat([p.mean for p in parts]), torch.cat([p.variance for p in parts])
        if self.bernoulli:
            return Prediction(mean[:, None], variance[:, None], torch.zeros(1, dtype=torch.float64))
        return prediction(mean, variance, self.likelihood.noise.item())


class OnlineConditioning:
    """OVC (Maddox, Stanton & Wilson 2021): an SVGP trained on the first `warm_up` samples, then `get_fantasy_model`.

    What GPyTorch returns is an exact GP on M pseudo-points and every sample since, so that it grows with the stream:
    only every `thinned`-th sample is put in.
    """

    def __init__(
        self, theta: tuple[float, float, float], warm_up: int, *, thinned: int = 25, **settings
    ):
        """settings: of StoredSVGP, for the first part."""
        self.stored, self.warm_up, self.thinned = StoredSVGP(theta, **settings), warm_up, thinned
        self.count, self.model = 0, None

    def update(self, x: Tensor, y: Tensor) -> None:
        """Keep, train when there is enough, condition from then on."""
        before, self.count = self.count, self.count + len(x)
        if before < self.warm_up:
            self.stored.update(x, y)
            return
        if self.model is None:
            self.stored.fitted = self.stored.fit()
            self.model = self.stored.fitted.model
        pick = slice((-before) % self.thinned, None, self.thinned)
        x, y = x[pick], y.reshape(-1)[pick] / UNIT
        if len(x):
            with self._settings():
                if hasattr(self.model, "train_inputs"):
                    self.model(x[:1])  # fills the caches that it conditions
                self.model = self.model.get_fantasy_model(x, y)

    @staticmethod
    def _settings():
        from contextlib import ExitStack

        import gpytorch

        stack = ExitStack()
        stack.enter_context(torch.no_grad())
        stack.enter_context(gpytorch.settings.fast_pred_var(True))
        stack.enter_context(gpytorch.settings.max_cholesky_size(100000))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        return stack

    def predict(self, x: Tensor, *_, **__) -> Prediction:
        """At x (N, D)."""
        if self.model is None:
            return self.stored.predict(x)
        with self._settings():
            parts = [self.model(part) for part in x.split(_CHUNK)]
            mean, variance = (
                torch.cat([p.mean for p in parts]),
                torch.cat([p.variance for p in parts]),
            )
        return prediction(mean, variance, self.stored.fitted.likelihood.noise.item())
