"""A constant of each pass and component: the vector map beside dense Gaussian regression."""

import copy

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT
from curl_free_world import dipoles
from map_contract import PLACES, same_state

from gp_mapping import Samples, create_map
from gp_mapping.core.hyper.bias import SEGMENT
from gp_mapping.core.kernels.curl_free import to_rows
from gp_mapping.core.models.curl_free.row_passes import (
    component_of,
    pass_of,
    row_number,
    row_numbers,
)

PASSES = np.repeat([0.0, 1.0, 2.0], 10)
BIASES = np.array([[4.0, -3.0, 0.0], [-5.0, 2.0, 6.0], [1.0, 1.0, -8.0]])
EXACT = {"inducing_information": 0.0, "memory_size": 2000, "learn_hyperparameters": False}


def world(seed=4):
    """Thirty samples, ten of each of three passes that cross each other, microtesla."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 3, (30, 2))
    return x, dipoles(x) + BIASES[PASSES.astype(int)] + rng.normal(0, 0.5, (30, 3))


def fed(x, y, passes, bias=5.0 * UT, **settings):
    """A map whose every row is an inducing input."""
    field = create_map("curl_free", bias_stddev=bias, **(SETTINGS | EXACT | settings))
    field.rows.tolerance = 1e-12
    for part in np.split(np.arange(len(x)), range(10, len(x), 10)):
        heading = torch.from_numpy(np.stack([np.cos(x[part, 0]), np.sin(x[part, 0])], 1))
        field.update(
            Samples(
                torch.from_numpy(x[part]),
                torch.from_numpy(y[part] * UT),
                heading=heading,
                pass_number=torch.from_numpy(passes[part]),
            )
        )
    return field


class Dense:
    """Regression on 3n numbers, with s_b² δ(p, p′) δ(c, c′) in the covariance."""

    def __init__(self, field, x, y, passes, centre, correlation=None):
        self.theta, self.passes = field.theta, passes
        self.rows = to_rows(torch.from_numpy(x))
        self.kinds = self.rows[:, -1]
        number = torch.from_numpy(np.repeat(passes, 3))
        alike = number[:, None] == number if correlation is None else correlation(number)
        self.same_pass = alike.double() * (self.kinds[:, None] == self.kinds)
        gram = self.prior(self.rows, self.rows) + self.theta.bias_stddev**2 * self.same_pass
        gram += torch.eye(len(gram), dtype=torch.float64) * self.theta.noise_stddev**2
        self.gram, self.centre = gram, centre
        self.target = torch.from_numpy((y - centre).reshape(-1, 1))

    def prior(self, a, b):
        same = (a[:, -1:] == b[:, -1]).double()
        return self.theta.kernel()(a, b) + self.theta.constant_stddev**2 * same

    def of(self, cross, own):
        """Mean and covariance of what has this covariance with the data, and this prior."""
        return cross.mT @ torch.linalg.solve(
            self.gram, self.target
        ), own - cross.mT @ torch.linalg.solve(self.gram, cross)

    def predict(self, places, number=None):
        """Mean (N, 3) and covariances (N, 3, 3) of the field, or with the constant of a pass."""
        rows = to_rows(places)
        cross, own = self.prior(self.rows, rows), self.prior(rows, rows)
        if number is not None:
            same = (self.kinds[:, None] == rows[:, -1]).double()
            of_pass = torch.from_numpy(np.repeat(self.passes == number, 3)).double()
            cross = cross + self.theta.bias_stddev**2 * same * of_pass[:, None]
            own = own + self.theta.bias_stddev**2 * (rows[:, -1:] == rows[:, -1]).double()
        mean, joint = self.of(cross, own)
        n = len(places)
        blocks = joint.reshape(n, 3, n, 3)[torch.arange(n), :, torch.arange(n)]
        return mean.reshape(-1, 3).numpy() + self.centre, blocks.numpy()

    def constant(self, number):
        """Mean (3,) and standard deviation (3,) of the constants of a pass."""
        of_pass = torch.from_numpy(np.repeat(self.passes == number, 3)).double()
        component = (self.kinds[:, None] == torch.arange(3)).double()
        variance = self.theta.bias_stddev**2
        mean, joint = self.of(
            variance * of_pass[:, None] * component, variance * torch.eye(3, dtype=torch.float64)
        )
        return mean.ravel().numpy(), joint.diagonal().sqrt().numpy()


def centre_of(y):
    """The median of the first batch, the lower one."""
    return np.sort(y[:10], 0)[4]


def assert_equal(prediction, mean, blocks, rtol=1e-6):
    scale = np.abs(blocks).max()
    assert np.abs(prediction.mean.numpy() / UT - mean).max() < rtol * np.abs(mean).max()
    assert np.abs(prediction.covariance.numpy() / UT**2 - blocks).max() < rtol * scale


def test_numbers_of_rows_are_those_of_components_and_segments_stay_segments():
    numbers = torch.tensor([0.0, -1.0, 5.0 + 3 * SEGMENT], dtype=torch.float64)
    rows = row_numbers(numbers).reshape(3, 3)
    assert rows[0].tolist() == [0.0, 1.0, 2.0]
    assert rows[1].tolist() == [-1.0] * 3
    assert rows[2].tolist() == [15 + 3 * SEGMENT, 16 + 3 * SEGMENT, 17 + 3 * SEGMENT]
    for i in (0, 2):
        for c in range(3):
            number = float(rows[i, c])
            assert row_number(float(numbers[i]), c) == number
            assert component_of(number) == c and pass_of(number) == float(numbers[i])
    assert row_number(-1.0, 2) == -1.0 == pass_of(-1.0)


@pytest.mark.parametrize("potential", ["harmonic", "free"])
def test_it_is_dense_regression_with_a_constant_of_each_pass_and_component(potential):
    """Field, measurements of known and unknown passes, and the constants, to rounding."""
    x, y = world()
    field = fed(x, y, PASSES, potential=potential)
    dense = Dense(field, x, y, PASSES, centre_of(y))
    assert_equal(field.predict(PLACES), *dense.predict(PLACES))
    for number in (1.0, 7.0):  # the last one is a pass that has not been yet
        assert_equal(field.predict_in_pass(PLACES, number), *dense.predict(PLACES, number))

    biases = field.biases()
    assert [b.number for b in biases] == [0.0, 1.0, 2.0]
    for bias in biases:
        mean, stddev = dense.constant(bias.number)
        assert np.allclose(bias.mean.numpy() / UT, mean, rtol=1e-6, atol=1e-6)
        assert np.allclose(bias.stddev.numpy() / UT, stddev, rtol=1e-6)
        assert bool((bias.stddev_apart < bias.stddev).all())
    assert field.bias_variance().shape == (3,)
    assert torch.allclose(
        field.bias_variance(),
        torch.full((3,), 25.0 * UT**2, dtype=torch.float64),
        rtol=1e-9,
        atol=0.0,
    )


def test_with_the_body_fixed_field_a_measurement_has_both():
    x, y = world()
    field = fed(x, y, PASSES, heading_stddev=3.0 * UT)
    heading = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(len(PLACES), 2)
    still = torch.zeros_like(PLACES)
    apart = field.predict(PLACES, still, heading)
    known = field.predict_in_pass(PLACES, 1.0, still, heading)
    unknown = field.predict_in_pass(PLACES, 9.0, still, heading)
    assert torch.allclose(unknown.mean, apart.mean, rtol=1e-9, atol=0.0)
    more = 25.0 * UT**2 * torch.eye(3, dtype=torch.float64)
    assert torch.allclose(unknown.covariance, apart.covariance + more, rtol=1e-9, atol=0.0)
    assert bool((known.variance < unknown.variance).all())
    assert float((known.mean - apart.mean - field.biases()[1].mean).abs().max()) < 1e-9 * UT


@pytest.mark.parametrize("memory", [2000, 6])
def test_maps_of_two_robots_keep_their_passes_apart(memory):
    """Pass 0 of one is not pass 0 of the other; also about other centres, and what is not remembered."""
    x, y = world()
    first, second = slice(0, 10), slice(10, 30)
    one = fed(x[first], y[first], np.zeros(10))
    other = fed(x[second], y[second], PASSES[second] - 1.0, memory_size=memory)
    assert float((one.centre - other.centre).abs().max()) > UT
    one.merge(other)
    assert one.newest_pass == 2.0
    dense = Dense(one, x, y, PASSES, centre_of(y))
    assert_equal(one.predict(PLACES), *dense.predict(PLACES), rtol=1e-5)
    assert_equal(one.predict_in_pass(PLACES, 2.0), *dense.predict(PLACES, 2.0), rtol=1e-5)


def test_resumed_it_is_the_map_that_was_saved():
    x, y = world()
    field = fed(x, y, PASSES)
    again = create_map("curl_free", bias_stddev=5.0 * UT, **(SETTINGS | EXACT))
    again.rows.tolerance = field.rows.tolerance
    again.load_state_dict(copy.deepcopy(field.state_dict()))
    assert again.newest_pass == 2.0
    assert same_state(again.state_dict(), field.state_dict())
    assert torch.equal(
        again.predict_in_pass(PLACES, 1.0).mean, field.predict_in_pass(PLACES, 1.0).mean
    )


def test_the_spread_is_learned_and_the_error_is_that_of_a_map_that_was_told():
    """Eight passes over each other's ground, 4 µT apart in each component; beside the level."""
    rng = np.random.default_rng(11)
    n, passes = 320, np.repeat(np.arange(8.0), 40)
    x = rng.uniform(0, 2.5, (n, 2))
    biases = rng.normal(0, 4.0, (8, 3))
    noise = rng.normal(0, 0.5, (n, 3))
    settings = SETTINGS | {"inducing_information": 0.0, "memory_size": 2000, "max_inducing": 250}
    errors, found = {}, {}
    for name, shift, learns in (
        ("modelled", biases[passes.astype(int)], True),
        ("not modelled", biases[passes.astype(int)], False),
        ("told", np.zeros((n, 3)), False),
    ):
        field = create_map("curl_free", learn_bias=learns, learn_noise=True, **settings)
        assert (field.theta.bias_stddev > 0) == learns
        for part in np.split(np.arange(n), range(20, n, 20)):
            field.update(
                Samples(
                    torch.from_numpy(x[part]),
                    torch.from_numpy((dipoles(x[part]) + shift[part] + noise[part]) * UT),
                    pass_number=torch.from_numpy(passes[part]),
                )
            )
        places = torch.from_numpy(rng.uniform(0.3, 2.2, (200, 2)))
        off = field.predict(places).mean.numpy() / UT - dipoles(places.numpy())
        errors[name] = np.sqrt(((off - off.mean(0)) ** 2).mean())
        found[name] = field.theta.bias_stddev * field.scale / UT
    assert 2.5 < found["modelled"] < 6.5
    assert errors["modelled"] < 1.1 * errors["told"]
    assert errors["not modelled"] > 1.5 * errors["told"]
