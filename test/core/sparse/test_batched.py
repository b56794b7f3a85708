"""Posteriors predicted in one batched computation say what each says alone."""

from dataclasses import replace

import pytest
import torch
from core_data import posterior_about

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.sparse.batched import (
    MOST_NUMBERS,
    batch_kind,
    batches,
    padded_factors,
    predict_together,
)

THETA = Theta(0.5, 1.5, 0.1, 1.0)
COUNTS = (5, 300, 1, 40)
SIZES = (12, 30, 0, 30)  # inducing inputs of each posterior
THETAS = {
    "all alike": [THETA] * 4,
    "each its own": [
        replace(THETA, lengthscale=length, signal_stddev=1.0 + length, time_offset=0.1 * length)
        for length in (0.4, 0.5, 0.6, 0.7)
    ],
    "stretched, of two scales": [
        replace(THETA, anisotropy=2.0, long_share=0.2, long_ratio=4.0, lever_arm_along=0.2)
    ]
    * 4,
    "with a robot": [replace(THETA, heading_stddev=0.7, constant_stddev=0.0, lever_arm_across=0.1)]
    * 4,
}


@pytest.mark.parametrize("motion", [False, True], ids=["a field", "a robot that passes"])
@pytest.mark.parametrize("name", THETAS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_each_predicts_as_alone(name, motion, dtype):
    posteriors = [
        posterior_about((3.0 * i, 1e5), size, theta, dtype=dtype, seed=i)
        for i, (size, theta) in enumerate(zip(SIZES, THETAS[name]))
    ]
    # as a map has them: factors by rows, or as LAPACK leaves them, by columns
    posteriors[1] = posteriors[1].own_copy()
    assert len({batch_kind(posterior) for posterior in posteriors}) == 1
    generator = torch.Generator().manual_seed(9)
    x, velocity = (torch.randn(sum(COUNTS), 2, generator=generator).double() for _ in range(2))
    x += torch.tensor([[3.0, 1e5]])
    passing = [velocity] if motion else []

    together = predict_together(posteriors, COUNTS, x, *passing)
    alone = [
        posterior.predict(*part)
        for posterior, *part in zip(posteriors, *(v.split(COUNTS) for v in (x, *passing)))
    ]
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    sd = posteriors[0].theta.signal_stddev * posteriors[0].scaling.scale  # of the prior field
    for told, wanted in (
        (together.mean, torch.cat([part.mean for part in alone])),
        (together.stddev, torch.cat([part.stddev for part in alone])),
    ):
        torch.testing.assert_close(told, wanted, rtol=0, atol=tolerance * sd)
    torch.testing.assert_close(together.noise_variance, alone[0].noise_variance, rtol=0, atol=0)


def test_factors_are_padded_with_the_identity_whether_they_lie_by_rows_or_columns():
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(n, n, generator=generator).double() for n in (3, 1, 4)]
    padded = padded_factors([factors[0], factors[1], factors[2].mT.contiguous().mT], 4)
    for factor, told in zip(factors, padded):
        wanted = torch.eye(4).double()
        wanted[: len(factor), : len(factor)] = factor
        assert torch.equal(told, wanted)


def test_what_has_another_form_is_asked_alone():
    plain = posterior_about((0.0, 0.0), 8, THETA)
    assert batch_kind(replace(plain, orthogonal=torch.eye(2))) is None
    assert batch_kind(replace(plain, R=plain.R[:4, :4])) is None  # rows that keep their prior
    assert batch_kind(object()) is None
    single = posterior_about((0.0, 0.0), 8, THETA, dtype=torch.float32)
    assert batch_kind(single) not in (None, batch_kind(plain))


def test_batches_are_of_like_size_and_bounded():
    generator = torch.Generator().manual_seed(0)
    sizes = [
        (int(rows), int(places))
        for rows, places in zip(
            torch.randint(1, 1500, (200,), generator=generator),
            torch.randint(1, 16384, (200,), generator=generator),
        )
    ]
    kinds = [("a", "b")[i % 3 == 0] for i in range(len(sizes))]
    found = batches(kinds, sizes)
    assert sorted(i for batch in found for i in batch) == list(range(len(sizes)))
    for batch in found:
        assert batch == sorted(batch) and len({kinds[i] for i in batch}) == 1
        rows, places = (max(sizes[i][axis] for i in batch) for axis in (0, 1))
        work = sum(sizes[i][0] ** 2 * sizes[i][1] for i in batch)
        assert len(batch) * rows**2 * places <= 2 * work
        assert len(batch) == 1 or len(batch) * rows * max(rows, places) <= MOST_NUMBERS
    # tiles of a drawing: full ones, and some of which it needs a strip
    assert len(batches(["a"] * 64, [(400, 4000)] * 48 + [(390, 200)] * 16)) == 6
