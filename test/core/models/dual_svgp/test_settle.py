"""Sites of classes and counts depend on the field: of a sum they are brought to the field of all samples."""

import numpy as np
import pytest
import torch

from gp_mapping import Samples, create_map
from gp_mapping.core.models.dual_svgp import natural_gradient
from gp_mapping.errors import NumericalError

CLASSES = {
    "likelihood": "softmax",
    "classes": 3,
    "lengthscale": 0.7,
    "signal_stddev": 1.0,
    "constant_stddev": 2.0,
    "learn_hyperparameters": False,
    "heading_stddev": 0.0,
    "inducing_information": 0.0,
    "inducing_tolerance": 1e-5,
    "max_inducing": 200,
    "field_scale": 1.0,
}


def labels(begin: float, seed: int) -> Samples:
    """Along a lane in which one class follows the other, with some of them wrong."""
    rng = np.random.default_rng(seed)
    x = np.stack([np.linspace(0.0, 2.0, 24), np.full(24, begin)], 1)
    kind = np.floor(1.5 * x[:, :1]).clip(0, 2)
    wrong = rng.random((24, 1)) < 0.15
    return Samples(x, np.where(wrong, rng.integers(0, 3, (24, 1)), kind).astype(float))


def mapped(*parts: Samples):
    field = create_map("dual_svgp", **CLASSES)
    for part in parts:
        for i in range(0, len(part), 5):
            field.update(part[i : i + 5])
    return field


def apart(one, other) -> float:
    """Largest distance of the means, in standard deviations."""
    x = torch.rand((60, 2), dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2.0
    p, q = one.predict_now(x), other.predict_now(x)
    return float(((p.mean - q.mean).abs() / q.variance.sqrt()).max())


def test_a_sum_of_maps_of_classes_is_the_map_of_all_of_them_in_any_order():
    a, b = labels(0.0, 0), labels(0.4, 1)
    sums = [mapped(a), mapped(b)]
    for one, other in zip(sums, (mapped(b), mapped(a))):
        one.merge(other)
    both, back = mapped(a, b), mapped(b, a)
    assert apart(sums[0], both) > 0.1, "sites are of an earlier field"
    for field in (*sums, both, back):
        field.use_budget()
    assert max(apart(field, sums[0]) for field in (*sums[1:], both, back)) < 0.03


@pytest.mark.parametrize("step", [1, 3])
def test_where_the_steps_diverge_the_map_is_as_it_was(monkeypatch, step):
    field = mapped(labels(0.0, 0))
    before, calls = field.predict_now(field.remembered_places()).mean, []
    refresh = natural_gradient.refresh

    def diverges(model):
        calls.append(refresh(model))
        if len(calls) == step:
            raise NumericalError("a factor of D")
        return 1.0

    monkeypatch.setattr(natural_gradient, "refresh", diverges)
    field.use_budget()
    assert len(calls) == step
    assert torch.equal(field.predict_now(field.remembered_places()).mean, before)
