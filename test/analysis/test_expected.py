"""What a map expects of its errors on a test, and that `check` blames nobody for what was expected."""

import math
from dataclasses import replace

import pytest
import torch

from benchmark.drawn import ProcessField
from gp_mapping.analysis.advice import advise
from gp_mapping.analysis.calibration import calibration_report
from gp_mapping.analysis.expected import error_covariance, expected_errors
from gp_mapping.analysis.refits import fit, positions, quality
from gp_mapping.analysis.residuals import residuals
from gp_mapping.core.types import Samples
from gp_mapping.settings.mapping import MapSettings

NOISE, SPREAD, LENGTH = 0.3e-6, 8e-6, 1.0
SETTINGS = MapSettings(
    model="exact",
    lengthscale=LENGTH,
    signal_stddev=SPREAD,
    noise_stddev=NOISE,
    constant_stddev=24e-6,
    heading_stddev=0.0,
    learn_hyperparameters=False,
    learn_time_offset=False,
    learn_bias=False,
    bias_stddev=0.0,
)


def drive(seed, y, offset=0.0, rate=10.0):
    """Along x for 6 m at a y, in a field drawn by its seed."""
    n = 120
    x = torch.stack([torch.linspace(0.0, 6.0, n), torch.full((n,), float(y))], 1).double()
    noise = torch.randn(n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    stamp = torch.arange(n, dtype=torch.float64) / rate + 100.0 * (1.0 + y)
    field = ProcessField(LENGTH, seed, 48e-6, SPREAD)
    return Samples(x, field(x) + NOISE * noise + offset, stamp=stamp)


def test_the_unknown_constant_of_a_pass_is_no_white_noise():
    """All its measurements share it: taken for noise, nothing of a pass is unlike a map any more."""
    x = drive(1, 0.3).x[::10]
    session = fit([drive(0, 0.0)], replace(SETTINGS, bias_stddev=20e-6))
    noise = error_covariance(session, x).diagonal() - session.predict(x).variance.mean(1)
    assert float(noise.sqrt().max()) < 2.0 * NOISE


def told(seed, y, offset=0.0, **settings):
    """What `check` has of a test at y, of a map of y = 0."""
    train, test = [drive(seed, 0.0)], [drive(seed, y, offset)]
    session = fit(train, replace(SETTINGS, **settings))
    found = residuals(session, test, positions(train))
    return quality(found, []) | {"expected": expected_errors(session, test)}


def advice(found, calibration=None, sensor="magnetometer", drift=None):
    context = {
        "unit": "µT",
        "sensor": sensor,
        "sensor_faults": [],
        "frames": [],
        "gross": 0,
        "measurements": 120,
        "dropped": 0,
        "changes": [],
        "explained": [],
        "biases": [],
        "drift": drift,
        "turning": [],
        "place": [],
        "noise": 0.3,
        "scale": 1e-6,
        "unlike": [],
        "standing": False,
    }
    return " ".join(a.text for a in advise(calibration, found, {}, context))


@pytest.fixture(scope="module")
def beside():
    """Tests on ground that nobody has driven, of several fields."""
    return [told(seed, 1.5) for seed in range(10)]


def test_the_mean_error_is_as_large_as_expected(beside):
    """χ² of 10 worlds lies within 2.2 and 25 in 99 % of all cases; as of independent errors it was beyond 100."""
    square = sum((found["bias"] / found["expected"]["bias_stddev"]) ** 2 for found in beside)
    assert 2.2 < square < 25.0
    expected = [found["expected"] for found in beside]
    assert all(e["unknown_share"] == 1.0 and 2.0 < e["witnesses"] < 15.0 for e in expected)
    measured = sum(found["autocorrelation"]["0.5"] for found in beside) / len(beside)
    assert abs(measured - sum(e["autocorrelation"] for e in expected) / len(beside)) < 0.15


def test_of_unknown_ground_nobody_is_blamed(beside):
    """Errors there are large, alike along the way, and all of one sign, as the map has it."""
    texts = [advice(found) for found in beside]
    assert all("hardly knows the field" in text for text in texts)
    for words in ("errors persist", "relative to the map", "intervals are too"):
        assert sum(words in text for text in texts) <= 1, words


def test_on_known_ground_an_offset_is_said():
    right, off = told(1, 0.0), told(1, 0.0, 2e-6)
    assert right["expected"]["unknown_share"] == 0.0 and right["expected"]["witnesses"] > 100
    assert not advice(right) and math.isclose(off["bias"], 2.0, abs_tol=0.1)
    for words in ("reads +2.0", "errors persist", "intervals are too narrow"):
        assert words in advice(off) or words == "errors persist"


def test_the_constant_of_a_pass_is_one_witness():
    """All errors of a pass share it: neither too wide intervals nor errors that persist are blamed."""
    found = [told(seed, 0.0, offset, bias_stddev=4e-6) for seed, offset in ((1, 4e-6), (2, 0.0))]
    expected = [each["expected"] for each in found]
    assert all(0.99 < e["witnesses"] < 1.1 and abs(e["autocorrelation"]) < 0.2 for e in expected)
    # the passes of the map and of the test each have one
    assert all(5.2 < e["bias_stddev"] < 5.8 for e in expected)
    assert [each["coverage_levels"]["95"] for each in found] == [1.0, 1.0]
    assert not any(map(advice, found))


@pytest.mark.parametrize("delay, slow", [(0.6, True), (0.1, False), (-0.6, False)])
def test_a_sensor_that_follows_slowly_is_named_beside_the_clocks(beside, delay, slow):
    """Up and down one lane at 0.5 m/s; a magnetometer follows at once."""
    field, way = ProcessField(LENGTH, 3, 48e-6, SPREAD), torch.linspace(0.0, 6.0, 120).double()
    train = []
    for start, x in enumerate((way, 6.0 - way)):
        speed = 0.5 if start == 0 else -0.5
        measured_at = torch.stack([x - speed * delay, 0.0 * x], 1)
        stamp = 100.0 * start + torch.arange(120, dtype=torch.float64) / 10.0
        train.append(Samples(torch.stack([x, 0.0 * x], 1), field(measured_at), stamp=stamp))
    session = fit(train, replace(SETTINGS, learn_time_offset=True))
    c = calibration_report(session.map, session.noise_variance)
    assert c.has_offset and c.offset == pytest.approx(delay, abs=0.1)
    assert ("to follow the field" in advice(beside[0], c, "sensor")) == slow
    assert "to follow the field" not in advice(beside[0], c)


@pytest.mark.parametrize("warms_up", [True, False])
def test_a_drift_that_was_found_is_named_with_its_size_and_what_to_set(beside, warms_up):
    drift = {"stddev": 3.21, "seconds": 30.0, "warms_up": warms_up, "bias_time": 4.5, "gain": 20.0}
    text = advice(beside[0], drift=drift)
    assert "warm-up or drift: " in text and "3.21 µT in 30 s" in text and "bias_time: 4.5" in text
    assert ("beginning of each pass" in text) == warms_up
    assert "warm-up or drift" not in advice(beside[0])
