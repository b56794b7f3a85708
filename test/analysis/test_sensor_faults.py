"""Faults of the sensor itself: every component counts, and a pass of nothing is none."""

import numpy as np
import pytest
import torch

from gp_mapping import Samples
from gp_mapping.analysis.sensor_faults import sensor_faults

UT = 1e-6


def drive(y: np.ndarray, start: float = 0.0) -> Samples:
    """Values y (n, C) at 10 Hz and .3 m/s along a line."""
    t = start + 0.1 * np.arange(len(y))
    x = np.stack([0.3 * t, np.zeros_like(t)], 1)
    return Samples(torch.from_numpy(x), torch.from_numpy(y), stamp=torch.from_numpy(t))


def noise(n: int, channels: int) -> np.ndarray:
    return 45 * UT + UT * np.random.default_rng(0).standard_normal((n, channels))


def test_a_pass_of_nothing_is_no_fault_and_hides_none():
    y = noise(200, 1)
    empty = drive(y[:0])
    assert sensor_faults([empty], UT, "µT") == []
    assert sensor_faults([drive(y), empty], UT, "µT") == []
    y[50:110] = y[50]
    alone, beside = (sensor_faults(passes, UT, "µT") for passes in ([drive(y)], [empty, drive(y)]))
    assert "the sensor hung (1 times" in alone[0].text and beside == alone


@pytest.mark.parametrize("begin", [0, 50, 140])
def test_a_hang_has_its_length_wherever_in_the_pass_it_is(begin):
    """60 measurements a tenth of a second apart, at .3 m/s; one in a pass of its own is as long."""
    y = noise(200, 1)
    y[begin : begin + 60] = 52.5 * UT
    for before in ([], [drive(noise(100, 1)[:, :1], -50.0)]):
        (fault,) = sensor_faults([*before, drive(y)], UT, "µT")
        share = 100 * 60 / (200 + 100 * len(before))
        said = f"(1 times, {share:.0f} % of the measurements), at worst for 5.9 s and 1.8 m"
        assert said in fault.text and f"from stamp {0.1 * begin:.1f}, at exactly 52.5" in fault.text


def test_values_that_share_one_component_are_not_one_value():
    """It drops out to (40, 1, 1) µT here and there; once it hangs long, at another value with 40 µT ahead."""
    y = noise(1000, 3)
    y[::5] = np.array([40.0, 1.0, 1.0]) * UT
    y[301:451] = np.array([40.0, 7.0, 8.0]) * UT
    texts = [fault.text for fault in sensor_faults([drive(y)], UT, "µT")]
    assert any("tells exactly 40, 1, 1 µT" in text for text in texts), texts
    assert any("at exactly 40, 7, 8 µT" in text for text in texts), texts


def test_a_number_of_a_counter_is_no_fault_and_one_far_from_the_others_is():
    """A Geiger counter of few counts a sample tells 0 and 1 most often; a sensor of whole dB drops out to −100."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(np.exp(np.linspace(-2.0, 3.0, 1000)))[:, None].astype(float)
    assert sensor_faults([drive(counts)], 1.0, "units") == []
    signal = np.round(rng.normal(-65.0, 4.0, (1000, 1)))
    assert sensor_faults([drive(signal)], 1.0, "dBm") == []
    signal[::2] = -100.0
    assert "tells exactly -100 dBm" in sensor_faults([drive(signal)], 1.0, "dBm")[0].text


def test_the_end_of_the_range_has_one_name():
    """It was called a hang, too."""
    rng = np.random.default_rng(0)
    y = 21.0 + 2.0 * np.sin(0.021 * np.arange(1200)) + 0.05 * rng.standard_normal(1200)
    faults = sensor_faults([drive(np.minimum(y, 22.0)[:, None])], 1.0, "°C")
    assert len(faults) == 1 and "the end of its range" in faults[0].text


def test_a_sensor_that_hangs_is_named_and_a_coarse_one_is_not():
    t = np.arange(600) * 0.1
    x = np.stack([0.4 * t, 0.0 * t], 1)
    smooth = 20.0 + np.sin(t)[:, None]
    assert not sensor_faults([Samples(x, smooth, stamp=t)], 1.0, "°C")
    assert not sensor_faults([Samples(x, np.round(smooth), stamp=t)], 1.0, "°C"), (
        "whole degrees repeat themselves"
    )
    hung = smooth.copy()
    hung[200:320] = hung[200]
    found = sensor_faults([Samples(x, hung, stamp=t)], 1.0, "°C")
    assert (
        len(found) == 1
        and not found[0].dead
        and "11.9 s and 4.8 m from stamp 20.0" in found[0].text
    )
    still = np.where((np.arange(600) < 200)[:, None], x, x[200])
    assert not sensor_faults([Samples(still, hung, stamp=t)], 1.0, "°C"), "it stood still"


def faults_of(values, metres=0.4, seconds=0.1):
    t = np.arange(len(values)) * seconds
    samples = Samples(
        np.stack([metres * t, 0.0 * t], 1), np.asarray(values, float)[:, None], stamp=t
    )
    return [fault.text for fault in sensor_faults([samples], 1.0, "units")]


def test_a_sensor_that_drops_out_saturates_or_knows_few_values_is_named():
    """None of these hung for long beside what it usually did, so nothing was said of them."""
    n = np.arange(600)
    alive = 20.0 + np.sin(0.1 * n) + 0.01 * np.random.default_rng(0).standard_normal(600)
    for said, values in (
        ("exactly 0 units, the smallest", np.where(n % 2, 0.0, alive)),
        ("exactly 0 units, the smallest", np.where(n // 25 % 2, 0.0, alive)),
        ("exactly 0 units, the smallest", np.where(n == 77, alive, 0.0)),
        ("exactly 20.5 units, the largest", np.minimum(alive, 20.5)),
        ("one of 2 values (3; 4 units)", 3.0 + n % 2),
    ):
        texts = faults_of(values)
        assert texts and said in texts[0], (said, texts)
    assert "hung" in faults_of(alive[:100] * (n[:100] < 60) + 7.0 * (n[:100] >= 60), 0.5, 1.0)[0], (
        "at 1 Hz, for 40 s"
    )
    assert "dead" in faults_of(np.zeros(25), 0.5, 1.0)[0]
    for good in (alive, np.round(alive), np.round(3.0 * alive), np.round(100.0 * alive)):
        assert not faults_of(good), faults_of(good)
