"""A session whose passes have another bias each: against one that was told them, and where there are none."""

import copy
import math

import pytest
import torch

from benchmark.calibration.biases import World, told
from benchmark.calibration.biases import mapped as mapped_from
from gp_mapping.analysis.pass_biases import any_differs, biases_text, pass_biases
from gp_mapping.core.hyper.bias import SEGMENT
from gp_mapping.core.types import Samples
from gp_mapping.mapping.bias_numbers import BiasNumbers
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

SMALL = World(0.0, 3, 1.6, 1.6)
BIASES = (-4e-6, 1e-6, 5e-6)  # T
# near what the field is: to find starts takes the first cells in again and again
STARTS = {
    "lengthscale": 0.6,
    "signal_stddev": 10e-6,
    "noise_stddev": 0.3e-6,
    "constant_stddev": 30e-6,
}


def drives(biases=BIASES) -> list[Samples]:
    return [Samples(d.x, d.y + b, stamp=d.stamp) for d, b in zip(SMALL.drives(3)[0], biases)]


def mapped(drives: list[Samples], **settings) -> MapSession:
    return mapped_from(drives, **STARTS | settings)


@pytest.fixture(scope="module")
def session():
    return mapped(drives())


@pytest.fixture(scope="module")
def plain():
    """Of the same passes without any bias, in a map that knows none."""
    return mapped(drives((0.0, 0.0, 0.0)), learn_bias=False)


@pytest.fixture(scope="module")
def first():
    """Of the first pass alone."""
    return mapped(drives()[:1])


def scored(session: MapSession, level: float = 0.0):
    """Scores about the field that is higher by `level`."""
    x = 1.6 * torch.rand(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    truth, p = SMALL.field(3)(x) + level, session.predict(x)
    return told(p.mean, p.variance, p.noise_variance, truth, truth)


def test_as_good_as_told_and_honest_while_a_map_without_them_takes_them_for_noise(session, plain):
    level = sum(BIASES) / 3  # which nobody can know
    ignorant = mapped(drives(), learn_bias=False)
    own, best, without = scored(session), scored(plain), scored(ignorant)
    assert own.shape < 1.1 * best.shape and own.shape < 0.6 * without.shape
    assert abs(own.rmse**2 - own.shape**2) ** 0.5 == pytest.approx(level, abs=0.3e-6)
    assert own.field > 0.95 and session.noise_variance < 0.05 * ignorant.noise_variance
    assert 3e-6 < session.report()["hyperparameters"]["bias_stddev"] < 7e-6


def test_a_lattice_knows_them_too(plain):
    own = mapped(drives(), model="wiski")
    assert scored(own).shape < 1.1 * scored(plain).shape and scored(own).field > 0.92
    found = [float(b.mean) for b in own.map.biases()]
    apart = torch.tensor([(f - b) * 1e6 for f, b in zip(found, BIASES)])
    assert float((apart - apart.mean()).abs().max()) < 0.2
    assert float(own.map.bias_variance()) > (3e-6) ** 2
    place = torch.tensor([[0.8, 0.8]], dtype=torch.float64)
    p = own.predict(place)
    assert float(p.noise_variance) > float(own.map.bias_variance()) > float(p.variance)


def test_no_bias_no_loss(plain):
    free = mapped(drives((0.0, 0.0, 0.0)))
    assert scored(free).rmse < 1.01 * scored(plain).rmse
    assert abs(scored(free).nlpd - scored(plain).nlpd) < 0.05
    assert not any_differs(pass_biases(free), free.noise_variance**0.5 * 1e6)


def test_each_pass_s_bias_is_told_apart_from_the_field(session):
    real, found = torch.tensor(BIASES) * 1e6, pass_biases(session)
    assert [b["pass"] for b in found] == [1, 2, 3]
    assert [b["stamp"] for b in found] == pytest.approx(
        [float(d.stamp[0]) for d in drives()], abs=0.5
    )
    means = torch.tensor([b["mean"] for b in found])
    assert float(((means - means.mean()) - (real - real.mean())).abs().max()) < 0.2
    assert any_differs(found, 0.3) and "pass 2" in biases_text(found, "µT")


def test_a_measurement_of_a_pass_to_come_has_the_biases_variance_and_the_field_has_not(session):
    x = torch.tensor([[0.8, 0.8]], dtype=torch.float64)
    p, bias = session.predict(x), float(session.map.bias_variance())
    assert bias > (4e-6) ** 2
    assert float(p.noise_variance) > bias > float(p.variance)
    assert session.noise_variance < (1e-6) ** 2, "one-step-ahead scores know the pass"


def test_a_pass_goes_on_after_a_file_and_the_next_one_is_another(first):
    whole, last = copy.deepcopy(first), drives()[1]
    whole.break_pass()
    whole.ingest(last[:100])
    again = MapSession.from_state_dict(whole.state_dict())
    for one in (whole, again):
        one.ingest(last[100:])
        one.flush()
    assert again.map.hyperparameters() == whole.map.hyperparameters()
    assert [b.number for b in again.map.biases()] == [0.0, 1.0]
    assert [
        torch.equal(a.mean, b.mean) for a, b in zip(again.map.biases(), whole.map.biases())
    ] == [True] * 2


def test_segments_of_a_pass_are_numbered_between_whole_numbers():
    numbers, x = BiasNumbers(10.0), torch.zeros((1, 2), dtype=torch.float64)

    def number(stamp, passes):
        cell = Samples(x, x[:, :1], stamp=torch.tensor([stamp], dtype=torch.float64))
        return float(numbers.with_numbers(cell, passes).pass_number[0])

    assert [number(s, 1) for s in (0.0, 9.0, 10.0, 25.0)] == [0.0, 0.0, SEGMENT, 2 * SEGMENT]
    assert [number(s, 2) for s in (30.0, 41.0)] == [1.0, 1.0 + SEGMENT]
    numbers.join(BiasNumbers(10.0))
    assert number(50.0, 2) == 2.0, "none of the other's"


def test_a_sensor_that_drifts_gets_a_new_constant_each_bias_time():
    drive = drives()[0]
    lasts = float(drive.stamp[-1] - drive.stamp[0])
    session = mapped([drive], bias_time=lasts / 4)
    assert len(session.map.biases()) in (4, 5)


def test_two_sessions_passes_are_counted_apart(first):
    _, second, third = drives()
    one_robot, other = copy.deepcopy(first), mapped([second])
    one_robot.merge(other)
    assert len(one_robot.map.biases()) == 2
    one_robot.break_pass()
    one_robot.ingest(third)
    one_robot.flush()
    numbers = [b.number for b in one_robot.map.biases()]
    assert len(set(numbers)) == len(numbers) == 3


def test_many_passes_keep_to_the_bound():
    field = MapSession(MapSettings(max_biases=5, cell_length=0.5))
    for k in range(40):
        field.break_pass()
        x = torch.tensor([[0.1 * (k % 7), 0.2 * i] for i in range(4)], dtype=torch.float64)
        field.ingest(
            Samples(x, 4e-5 + 1e-6 * torch.sin(x[:, :1]), stamp=100.0 * k + torch.arange(4.0))
        )
    field.flush()
    assert len(field.map.biases()) == 5 and field.report()["closed_passes"] >= 30
    assert any("max_biases" in text for text in field.warnings)
    assert math.isfinite(float(field.predict(torch.zeros(1, 2)).variance))


def test_where_a_thousand_passes_began_is_remembered():
    numbers = BiasNumbers(time=0.0)
    cell = Samples([[0.0, 0.0]], [[1.0]], stamp=[5.0])
    for i in range(1001):
        numbers.with_numbers(cell, i)
    assert len(numbers.began) == 1000 and numbers.number == 1000.0
    assert next(iter(numbers.began.values())) == (1, 5.0), "the oldest went"
