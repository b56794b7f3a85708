"""A model as somebody else would write it: the exact GP, by nothing but the contract and a kernel."""

import copy

import torch

from gp_mapping import FieldMap, MapSettings, Prediction, UpdateReport
from gp_mapping.core.kernels.stationary import make_kernel


class OwnGP(FieldMap):
    """mean = c + k*ᵀ(K + Σ)⁻¹(y − c), variance = k** − k*ᵀ(K + Σ)⁻¹k*, with every sample kept."""

    def __init__(self, settings: MapSettings):
        self.settings = settings
        self.stationary = make_kernel(settings.kernel, settings.signal_stddev**2, settings.lengthscale)
        self.data, self.factor, self._centre = None, None, None  # x (n, D), y (n, C), noise (n,)

    centre = property(lambda self: self._centre)

    def kernel(self, a, b):
        return self.stationary(a.double(), b.double()) + self.settings.constant_stddev**2

    def update(self, batch):
        if self.data and (batch.x.shape[1], batch.y.shape[1]) != (self.data[0].shape[1], self.channels):
            raise ValueError(f"samples are {batch.x.shape[1]}-D with {batch.y.shape[1]} channels, the map is another")
        if len(batch):
            self._centre = batch.y.mean(0) if self.centre is None else self.centre
            noise = torch.full((len(batch),), self.settings.noise_stddev**2, dtype=torch.float64)
            if batch.sensor_variance is not None:
                noise = noise + batch.sensor_variance / (1.0 if batch.count is None else batch.count)
            self._add(batch.x, batch.y, noise if batch.noise_variance is None else batch.noise_variance)
            self.epoch += 1
        n = len(self.data[0]) if self.data else 0
        return UpdateReport(len(batch), n, n, n)

    def _add(self, *columns):
        self.data = tuple(torch.cat(both) for both in zip(self.data, columns)) if self.data else columns
        self.factor = None

    def _half(self, x):
        self.need_data()
        if self.factor is None:
            self.factor = torch.linalg.cholesky(self.kernel(self.data[0], self.data[0]) + torch.diag(self.data[2]))
        return torch.linalg.solve_triangular(self.factor, self.kernel(self.data[0], x), upper=False)

    def predict(self, x, velocity=None, heading=None):
        half = self._half(x)
        y = torch.linalg.solve_triangular(self.factor, self.data[1] - self.centre, upper=False)
        prior = self.stationary.diag(x.double()) + self.settings.constant_stddev**2
        variance = (prior - half.square().sum(0)).clamp_min(0.0)[:, None].expand(-1, self.channels)
        return Prediction(half.mT @ y + self.centre, variance, self.noise_variance())

    def covariance(self, a, b):
        return self.kernel(a, b) - self._half(a).mT @ self._half(b)

    def fantasize(self, x):
        new, told = copy.copy(self), self.predict(x)
        new._add(x, told.mean, told.noise_variance[0].expand(len(x)))
        return new

    def forget(self, factor):
        if not 0.0 < factor <= 1.0:
            raise ValueError(f"a forgetting factor lies in (0, 1], not {factor}")
        if self.data and factor < 1.0:
            self.data, self.factor, self.epoch = (*self.data[:2], self.data[2] / factor), None, self.epoch + 1

    def merge(self, other):
        if not isinstance(other, OwnGP) or other.hyperparameters() != self.hyperparameters() or (
                other.settings.field_scale != self.settings.field_scale or 0 != self.channels != other.channels != 0):
            raise ValueError("maps of other kernels, units or channels cannot be merged")
        if other.started:
            self._centre = other.centre if self.centre is None else self.centre
            self._add(*other.data)
            self.epoch += 1

    def hyperparameters(self):
        names = ("lengthscale", "signal_stddev", "noise_stddev", "constant_stddev")
        return {name: getattr(self.settings, name) for name in names}

    def state_dict(self):
        return {"model": "own", "scale": self.settings.field_scale, "centre": self.centre,
                "data": None if self.data is None else [c.clone() for c in self.data]}

    def load_state_dict(self, state):
        try:
            if (state["model"], state["scale"]) != ("own", self.settings.field_scale):
                raise ValueError(f"the state is of model {state['model']!r} with field_scale {state['scale']}")
            centre, data = state["centre"], state["data"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a state of this model: {error!r}") from error
        self.data, self._centre = data and tuple(c.clone() for c in data), centre
        self.factor, self.epoch = None, self.epoch + 1
