"""Blocks of a slow sensor: long where it is noisy, short where they blur the field."""

import pytest
import torch
from slow_sensor import track

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.response.block_length import best_length, blur
from gp_mapping.mapping.response.posterior import Known


@pytest.mark.parametrize("kernel", ["matern32", "matern52", "rbf"])
def test_blur_is_that_of_draws(kernel):
    """The mean of two places less the value between them."""
    length = 2.0
    apart = ((length / 5) ** 2 / 6) ** 0.5
    x = torch.tensor([[0.0], [apart], [2 * apart]], dtype=torch.float64)
    factor = torch.linalg.cholesky(make_kernel(kernel, 1.0, length)(x, x))
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(100_000, 3, dtype=torch.float64, generator=generator) @ factor.mT
    sample = (0.5 * f[:, 0] + 0.5 * f[:, 2] - f[:, 1]).square().mean() / apart**4
    assert abs(float(sample) / blur(kernel, length) - 1.0) < 0.02


def test_a_noisier_or_slower_sensor_has_longer_blocks():
    """Within .1 and a third of a lengthscale."""
    told = track(0, 3.0)
    lengths = [
        best_length(told, Known(tau, 0.1, 2.0, noise, 1.0), "matern52")
        for tau, noise in ((1.0, 0.001), (1.0, 0.01), (3.0, 0.01), (10.0, 0.01), (10.0, 1.0))
    ]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]
    assert 0.19 < lengths[0] and lengths[-1] < 0.67
