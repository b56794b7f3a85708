"""Equal numbers at an end of all that a sensor tells are the end of its range; other heaps are not."""

import numpy as np
import pytest
import torch

from gp_mapping.analysis.sensor_faults import sensor_faults
from gp_mapping.core.types import Samples
from gp_mapping.mapping.repeated import range_ends
from gp_mapping.mapping.repeated.range_ends import RangeEnds
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for

K = np.arange(600)
PLACES = np.c_[0.3 * K, np.zeros(len(K))].tolist()
NOISE = np.random.default_rng(0).standard_normal(len(K))
RSSI = -94.0 + 9.0 * np.sin(0.03 * K) + 2.5 * NOISE  # dBm
SPOT = 400.0 + 100.0 * np.exp(-0.5 * ((K % 200 - 100) / 15.0) ** 2)  # on a level


def ends_of(values: np.ndarray, places: list[list[float]] = PLACES) -> RangeEnds:
    """A watcher that has seen these values."""
    watch = RangeEnds(0.05)
    watch.add(values.tolist(), places)
    return watch


@pytest.mark.parametrize(
    "values, value, lower",
    [
        (np.maximum(RSSI, -100.0), -100.0, True),
        (np.maximum(np.round(RSSI), -100.0), -100.0, True),
        (np.minimum(RSSI + 200.0, 110.0), 110.0, False),
        (np.minimum(np.round(40.0 * (RSSI + 110.0)), 1023.0), 1023.0, False),
        # one wild number beyond it hides it not
        (np.r_[np.maximum(RSSI, -100.0)[:-1], -127.0], -100.0, True),
    ],
    ids="floor rounded_floor full_scale converter wild".split(),
)
def test_a_heap_at_an_end_is_the_end_of_the_range(values, value, lower):
    """Its value and its share of the way are told, however the numbers are cut into calls."""
    (end,) = ends_of(values).found
    assert (end.value, end.lower) == (value, lower)
    assert end.share == pytest.approx((values == value).mean(), abs=0.03)

    parts = RangeEnds(0.05)
    for k in range(0, len(values), 7):
        parts.add(values[k : k + 7].tolist(), PLACES[k : k + 7])
        again = RangeEnds(0.05)
        again.load_state_dict(parts.state_dict())
        parts = again
    assert parts.found == [end]

    half = ends_of(values[:300], PLACES[:300])
    half.join(ends_of(values[300:], PLACES[300:]))
    assert half.found and half.found[0].value == value, "also of two that are merged"


@pytest.mark.parametrize(
    "values, places",
    [
        (RSSI, PLACES),
        (np.round(RSSI), PLACES),
        (np.round(RSSI / 5.0), PLACES),
        (np.maximum(RSSI + 95.0, 0.0), PLACES),
        (np.random.default_rng(0).poisson(1.0, len(K)).astype(float), PLACES),
        (SPOT, PLACES),
        (np.round(SPOT), PLACES),
        (np.round(SPOT + 0.1 * NOISE), PLACES),
        (np.minimum(SPOT, 450.0), PLACES),
        (np.r_[RSSI[:300], np.full(200, -120.0), RSSI[500:]], PLACES),
        (np.where(K % 9 < 2, -200.0, RSSI), PLACES),
        # it stands where it is weakest, and waits
        (
            np.r_[RSSI[:150], np.full(300, -104.0), RSSI[450:]],
            [[0.3 * min(k, 150), 0.0] for k in K],
        ),
        (np.full(len(K), 20.0), PLACES),
    ],
    ids=(
        "fine rounded coarse no_gas counts level rounded_level quiet_level simulated hangs drops_out "
        "waits dead"
    ).split(),
)
def test_other_heaps_are_no_end(values, places):
    """Of sensors that round, at standstill, where there is nothing to measure, or where they hang."""
    assert ends_of(values, places).found == []


def test_it_keeps_its_size():
    """A long drive is thinned."""
    watch, k = RangeEnds(0.05), np.arange(20_000)
    values = np.maximum(
        np.sin(0.05 * k) + 0.1 * np.random.default_rng(1).standard_normal(len(k)), -0.7
    )
    watch.add(values.tolist(), np.c_[0.1 * k, 0.0 * k].tolist())
    assert len(watch.kept) <= 512
    assert watch.found[0].value == -0.7


@pytest.mark.parametrize("upper", [False, True])
def test_a_map_and_check_say_it(upper):
    """Once, with value, share and setting; not as a sensor that hangs, nor as a repeat."""
    values = np.minimum(RSSI + 200.0, 110.0) if upper else np.maximum(RSSI, -100.0)
    drive = Samples(
        torch.tensor(PLACES), torch.from_numpy(values)[:, None], stamp=0.5 * torch.from_numpy(K)
    )[:250]
    session = MapSession(map_settings_for("scalar", MapSettings(learn_hyperparameters=False)))
    session.ingest(drive)
    told = "110 units, the largest" if upper else "-100 units, the smallest"
    for said in session.warnings, [fault.text for fault in sensor_faults([drive], 1.0, "units")]:
        (one,) = (
            text for text in said if "the end of" in text or "hung" in text or "repeat" in text
        )
        assert told in one and ("max_value" if upper else "min_value") in one

    again = MapSession.from_state_dict(session.state_dict())
    assert session.value_notes == again.value_notes


@pytest.mark.parametrize("lower", [True, False])
def test_an_end_that_is_said_and_is_none_is_contradicted(lower):
    """It is a limit in another unit, say: all beyond would be taken for that limit without a word."""
    values = 1e-3 * (RSSI if lower else -RSSI)[:400]  # all of these are looked at
    most, middle = float(values.min() if lower else values.max()), float(np.median(values))
    wrong = (middle, np.inf) if lower else (-np.inf, middle)
    (note,) = ends_of(values, PLACES[:400]).notes_beyond(wrong, 1e-3, "mV")
    assert (
        note.startswith("on 50 % of the way") and f"{'lower' if lower else 'upper'}_limit" in note
    )
    assert f"up to {most / 1e-3:.6g} mV" in note
    held = np.maximum(values, wrong[0]) if lower else np.minimum(values, wrong[1])
    assert ends_of(held * (1.0 + 1e-15), PLACES[:400]).notes_beyond(wrong, 1e-3, "mV") == []
    assert ends_of(values, PLACES[:400]).notes_beyond((-np.inf, np.inf), 1e-3, "mV") == []
    assert RangeEnds(0.05).notes_beyond(wrong, 1e-3, "mV") == []


@pytest.mark.parametrize("times", [2, 3])
def test_an_end_is_come_back_to_three_times(times):
    """A sensor that hung twice, at what was just its largest number, was at no end of its range."""
    values = RSSI.copy()
    for k in range(times):
        values[100 + 150 * k :][:20] = RSSI.max()
    assert len(ends_of(values[:500], PLACES[:500]).found) == (times == 3)


def test_of_too_many_measurements_every_second_stays(monkeypatch):
    """From the first to the newest, about equally far apart."""
    monkeypatch.setattr(range_ends, "_KEPT", 16)
    watch, k = RangeEnds(0.05), np.arange(200.0)
    watch.add(k.tolist(), np.c_[k, 0.0 * k].tolist())
    kept = [row[-1] for row in watch.kept]
    assert watch.stride == 16 and 8 <= len(kept) <= 16
    assert kept[0] == 0.0 and 200.0 - kept[-1] <= 17.0
    assert max(np.diff(kept)) <= 2 * 16 - 1 and min(np.diff(kept)) > 0.0

    half = RangeEnds(0.05)
    half.add(k[:12].tolist(), np.c_[k, 0.0 * k][:12].tolist())
    watch.join(half)
    kept = [row[-1] for row in watch.kept]
    assert len(kept) <= 16 and kept[-1] == 0.0, "the other's, from its first on"
