"""dual_svgp is batch SGPR: at fixed z and θ, in any order and batch size, with and without memory; and when grown."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import (
    SETTINGS,
    THETA,
    UT,
    close,
    covariance,
    drive,
    exact_gp,
    feed,
    in_ut,
    lattice,
    samples,
    titsias,
    titsias_by_qr,
)

from gp_mapping import Samples, create_map

C = 48.0  # the given centre
X, Y = drive(300)
Z = lattice(0.4, margin=0.2)  # (81, 2)
XS = np.random.default_rng(1).uniform(-0.7, 3.7, (60, 2))
ONES = np.ones(len(X))


def built(batch, size, order=None, **settings):
    field = create_map(
        "dual_svgp", centre=[C * UT], **(SETTINGS | {"inducing_inputs": Z} | settings)
    )
    feed(field, batch if order is None else batch[torch.from_numpy(order)], size)
    return field


def agrees(field, expected, tolerance=1e-8, xs=XS):
    """Mean about the centre and latent variance, the latter relative at each point."""
    mean, variance = in_ut(field.predict(torch.from_numpy(xs)))
    close(mean - C, expected[0], tolerance, "mean")
    error = np.abs(variance / expected[1][:, None] - 1).max()
    assert error <= tolerance, f"variance: relative error {error:.3g}"


def z_of(field):
    return (field.basis.z + field.scaling.origin).cpu().numpy()


def test_the_two_references_agree_and_differ_from_the_exact_gp():
    """The yardstick itself: two ways to the same SGPR, which is not simply the exact GP here."""
    a, b = titsias(X, Y - C, ONES, Z, XS, **THETA), titsias_by_qr(X, Y - C, ONES, Z, XS, **THETA)
    close(b[0], a[0], 1e-10)
    close(b[1], a[1], 1e-10)
    exact = exact_gp(X, Y - C, ONES, XS, **THETA)
    assert np.abs(exact[0] - a[0]).max() > 0.1 and (np.diag(exact[1]) / a[1]).max() > 1.01


@pytest.mark.parametrize("memory", [0, 20, 2000])
@pytest.mark.parametrize("size", [1, 7, 300])
def test_equals_batch_sgpr_in_any_order_and_batch_size(size, memory):
    expected = titsias(X, Y - C, ONES, Z, XS, **THETA)
    for seed in (None, 0, 1):
        order = None if seed is None else np.random.default_rng(seed).permutation(len(X))
        agrees(built(samples(X, Y), size, order, memory_size=memory), expected)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32"])
def test_equals_batch_sgpr_with_every_kernel(kernel):
    expected = titsias_by_qr(X, Y - C, ONES, Z, XS, **(THETA | {"name": kernel}))
    agrees(built(samples(X, Y), 50, kernel=kernel), expected)


def test_without_a_constant_it_is_the_plain_textbook():
    k_zz, k_zx, k_zs = (covariance(Z, b, **THETA) for b in (Z, X, XS))
    sigma = k_zz + k_zx @ k_zx.T
    mean = k_zs.T @ np.linalg.solve(sigma, k_zx @ (Y - C))
    variance = (
        100.0
        - (k_zs * np.linalg.solve(k_zz, k_zs)).sum(0)
        + (k_zs * np.linalg.solve(sigma, k_zs)).sum(0)
    )
    agrees(built(samples(X, Y), 50, constant_stddev=1e-15), (mean, variance))


def test_noise_variance_per_sample():
    noise = np.random.default_rng(2).uniform(0.1, 30.0, len(X))
    expected = titsias(X, Y - C, noise, Z, XS, **THETA)
    for memory in (0, 50, 2000):
        agrees(built(samples(X, Y, noise_variance=noise), 7, memory_size=memory), expected)


def test_counts_and_sensor_variance_make_the_noise():
    rng = np.random.default_rng(3)
    count, sensor = rng.integers(1, 20, len(X)).astype(float), rng.uniform(0.0, 9.0, len(X))
    expected = titsias(X, Y - C, 1.0 + sensor / count, Z, XS, **THETA)
    for memory in (0, 2000):
        field = built(samples(X, Y, count=count, sensor_variance=sensor), 20, memory_size=memory)
        agrees(field, expected)
        assert float(field.predict(torch.from_numpy(XS)).noise_variance) / UT**2 >= 1.0 - 1e-12
    # a count without a sensor variance says nothing
    agrees(built(samples(X, Y, count=count), 20), titsias(X, Y - C, ONES, Z, XS, **THETA))


def test_channels_share_the_variance():
    y = np.hstack([Y, 50 * np.sin(X[:, :1]), np.full_like(Y, C)])
    expected = titsias(X, y - C, ONES, Z, XS, **THETA)
    field = create_map("dual_svgp", centre=[C * UT] * 3, inducing_inputs=Z, **SETTINGS)
    feed(field, samples(X, y), 40)
    agrees(field, expected)


def test_inducing_inputs_at_the_data_make_the_exact_gp():
    x, y = drive(60, seed=4)
    x = x + np.random.default_rng(0).uniform(-1, 1, x.shape)  # apart from one another
    expected = exact_gp(x, y - C, np.ones(60), XS, **THETA)
    agrees(built(samples(x, y), 7, inducing_inputs=x), (expected[0], np.diag(expected[1])))
    oracle = create_map("exact", centre=[C * UT], **SETTINGS)
    oracle.update(samples(x, y))
    agrees(oracle, (expected[0], np.diag(expected[1])))
    field = built(samples(x, y), 7, inducing_inputs=x)
    close(field.covariance(XS, XS[:5]) / UT**2, expected[1][:, :5], 1e-8)


def test_heading_and_time_offset_are_features_like_any_other():
    """u = [w, w_h (2), g(z)]: the same as a kernel k(x − δv, ·) + s_c² + s_h² ĥ·ĥ'; M = N makes it exact."""
    rng = np.random.default_rng(6)
    x, y = drive(50, seed=5)
    x = x + rng.uniform(-1, 1, x.shape)
    v, vs = rng.normal(0, 0.2, (50, 2)), rng.normal(0, 0.2, (len(XS), 2))
    v[:5] *= 0.05  # hardly moving
    moved, moved_s = x - 0.2 * v, XS - 0.2 * vs
    head, head_s = (a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 0.03) for a in (v, vs))
    gram = covariance(moved, moved, **THETA) + 400.0 + 2.25 * head @ head.T + np.eye(50)
    for with_robot in (True, False):
        places, h = (moved_s, head_s) if with_robot else (XS, 0 * head_s)
        cross = covariance(moved, places, **THETA) + 400.0 + 2.25 * head @ h.T
        mean = cross.T @ np.linalg.solve(gram, y - C)
        variance = 500.0 + 2.25 * (h**2).sum(1) - (cross * np.linalg.solve(gram, cross)).sum(0)
        for model, extra in (("dual_svgp", {"inducing_inputs": moved}), ("exact", {})):
            field = create_map(
                model,
                centre=[C * UT],
                **(SETTINGS | extra | {"heading_stddev": 1.5 * UT, "time_offset": 0.2}),
            )
            feed(field, samples(x, y, velocity=v), 9)
            got = in_ut(
                field.predict(torch.from_numpy(XS), torch.from_numpy(vs) if with_robot else None)
            )
            close(got[0] - C, mean, 1e-8, f"{model} mean")
            close(got[1][:, 0], variance, 1e-8, f"{model} variance")


@pytest.mark.parametrize("size", [1, 20])
def test_grown_lazily_it_is_batch_sgpr_at_the_final_inputs(size):
    """While everything is remembered: a new z gets what the memory says there."""
    field = built(
        samples(X, Y), size, inducing_inputs=None, inducing_tolerance=0.01, inducing_information=0.0
    )
    z = z_of(field)
    assert 30 < len(z) < 130
    agrees(field, titsias_by_qr(X, Y - C, ONES, z, XS, **THETA))


def test_inputs_moved_within_a_budget_it_is_batch_sgpr_still():
    field = built(
        samples(X, Y),
        20,
        inducing_inputs=None,
        inducing_tolerance=0.01,
        inducing_information=0.0,
        max_inducing=25,
    )
    z = z_of(field)
    assert 20 <= len(z) <= 25
    agrees(field, titsias_by_qr(X, Y - C, ONES, z, XS, **THETA))


def test_grown_with_a_fine_tolerance_it_is_the_exact_gp():
    expected = exact_gp(X, Y - C, ONES, XS, **THETA)
    errors = []
    for tolerance in (1e-3, 1e-4, 1e-5):
        field = built(
            samples(X, Y),
            20,
            inducing_inputs=None,
            inducing_tolerance=tolerance,
            inducing_information=0.0,
            max_inducing=300,
        )
        mean, variance = in_ut(field.predict(torch.from_numpy(XS)))
        assert field.jitter == 0.0
        sd = np.sqrt(np.diag(expected[1]))
        errors.append(
            (
                np.abs((mean - C - expected[0])[:, 0] / sd).max(),
                np.abs(variance[:, 0] / sd**2 - 1).max(),
            )
        )
    assert errors[0] > errors[1] > errors[2]
    assert errors[2][0] < 0.02 and errors[2][1] < 2e-3, errors


def test_two_centres_tell_the_same_story():
    """The prior mean is where the first values lie; with a wide constant it hardly matters."""
    at = [
        create_map(
            "dual_svgp",
            inducing_inputs=Z,
            centre=[c * UT],
            **(SETTINGS | {"constant_stddev": 1e3 * UT}),
        )
        for c in (0.0, C)
    ]
    for field in at:
        feed(field, samples(X, Y), 100)
    close(at[0].predict(torch.from_numpy(XS)).mean, at[1].predict(torch.from_numpy(XS)).mean, 2e-4)


def test_float32_loses_a_stated_amount():
    """On a tame stream: the mean within 0.01 µT (noise 1), the latent variance within 2 %."""
    exact = built(samples(X, Y), 20).predict(torch.from_numpy(XS))
    rough = built(samples(X, Y), 20, dtype="float32").predict(torch.from_numpy(XS))
    assert rough.mean.dtype == torch.float64
    loss = (
        float((rough.mean - exact.mean).abs().max()) / UT,
        float((rough.variance / exact.variance - 1).abs().max()),
    )
    assert 1e-9 < loss[0] < 0.01 and loss[1] < 0.02, loss


def test_a_map_without_inducing_inputs_takes_places_that_are_uncertain():
    """Where nothing is worth an input yet the mean is the same everywhere: its slope is zero, not an error."""
    field = create_map(
        "dual_svgp",
        signal_stddev=1e-6,
        noise_stddev=1e-5,
        inducing_information=0.5,
        learn_hyperparameters=False,
    )
    sure = create_map(
        "dual_svgp",
        signal_stddev=1e-6,
        noise_stddev=1e-5,
        inducing_information=0.5,
        learn_hyperparameters=False,
    )
    x, y = (
        torch.tensor([[0.0, 0.0], [0.1, 0.0]]).double(),
        torch.tensor([[4.5e-5], [4.6e-5]]).double(),
    )
    for step in range(3):
        field.update(Samples(x + 0.2 * step, y, position_variance=torch.full((2,), 1e-2).double()))
        sure.update(Samples(x + 0.2 * step, y))
    assert len(field.inducing_inputs()) == len(sure.inducing_inputs()) == 0
    assert torch.equal(field.predict(x).mean, sure.predict(x).mean)


def test_many_samples_at_once_find_room_in_a_full_budget_as_one_by_one():
    """The last of them, too: the room that a full budget makes once is not enough for a hundred."""
    batch, settings = samples(X, Y), {"lengthscale": 0.25, "noise_stddev": 0.2 * UT}
    exact = create_map("exact", centre=[C * UT], **(SETTINGS | settings))
    feed(exact, batch, 300)
    judge, off = exact.predict(batch.x), []
    for size in (1, 100):
        field = built(batch[:100], 1, inducing_inputs=None, max_inducing=60, **settings)
        feed(field, batch[100:], size)
        off.append(
            float(
                ((field.predict(batch.x).mean - judge.mean) / judge.stddev).square().mean().sqrt()
            )
        )
    assert field.counters()["budget_full"] > 0 and off[1] < 1.2 * off[0], off


def test_a_full_budget_gives_up_nothing_for_places_that_it_knows():
    field = built(
        samples(X, Y)[:80],
        20,
        inducing_inputs=None,
        max_inducing=12,
        inducing_tolerance=0.01,
        inducing_information=0.0,
        lengthscale=0.3,
    )
    before, there = field.counters()["budget_full"], field.inducing_inputs()
    assert before > 0
    field.update(samples(there[:8], np.full((8, 1), C)))
    assert field.counters()["budget_full"] == before and torch.equal(field.inducing_inputs(), there)


@pytest.mark.parametrize("information", [0.0, 1.0])
def test_a_batch_says_how_many_inducing_inputs_it_made(information):
    field = create_map("dual_svgp", centre=[C * UT], inducing_information=information, **SETTINGS)
    batch, count = samples(X, Y)[:60], 0
    for part in (batch[:20], batch[20:60], batch[:20]):  # of the last all is known
        report = field.update(part)
        assert (report.used, report.added, report.inducing) == (
            len(part),
            len(field.basis) - count,
            len(field.basis),
        )
        count = len(field.basis)
    assert report.added == 0 < count


def test_what_an_input_must_tell_and_leave():
    """Bits and a share of s², or s_p² where that is less; where the bits are none, a budget that was full asks for
    residual variance, whatever the noise."""
    told, plain = (
        create_map(
            "dual_svgp", **SETTINGS | {"inducing_information": bits, "inducing_tolerance": 0.02}
        )
        for bits in (0.5, 0.0)
    )
    share, noise = 0.02 * plain.theta.signal_stddev**2, plain.theta.noise_stddev**2
    assert noise < share
    assert told.uses_worth and not plain.uses_worth
    assert told.worth == pytest.approx(4.0**0.5 - 1.0) and plain.worth == 0.0
    assert told.least_residual == pytest.approx(noise)
    assert plain.least_residual == pytest.approx(share)
    told.floor, plain.floor = 1.5, 3.0 * share
    assert told.worth == pytest.approx(4.0**1.5 - 1.0) and plain.worth == 0.0
    assert told.least_residual == pytest.approx(noise)
    told.theta = replace(told.theta, noise_stddev=told.theta.signal_stddev)
    assert told.least_residual == pytest.approx(share)
    assert plain.least_residual == pytest.approx(3.0 * share)
    told.floor, plain.floor = 0.1, 0.1 * share
    assert told.worth == pytest.approx(1.0) and plain.least_residual == pytest.approx(share)
