"""Gross errors that are many are said: they may be the field."""

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession

LIFTED = 0.2


def said(
    share: float, seconds: float = 40.0, rate: float = 10.0, **settings
) -> tuple[list, MapSession]:
    """What is said of a probe that tells of soil in a share of its measurements, two in a row."""
    rng, n = np.random.default_rng(4), round(seconds * rate)
    stamp = np.arange(n) / rate
    x = np.stack([0.4 * stamp, 0.0 * stamp], 1)
    y = LIFTED + 0.05 * rng.standard_normal(n)
    if share:
        every = round(2 / share)
        for i in range(every, n - 1, every):
            y[i : i + 2] = 28.0 + rng.standard_normal(2)
    starts = {"lengthscale": 4.0, "signal_stddev": 3.0, "noise_stddev": 0.5, "field_unit": "%"}
    starts["learn_hyperparameters"] = False
    session = MapSession(MapSettings(**starts, constant_stddev=30.0, field_scale=1.0, **settings))
    session.ingest(
        Samples(
            torch.from_numpy(x), torch.from_numpy(y)[:, None], stamp=torch.from_numpy(100.0 + stamp)
        )
    )
    session.flush()
    return [text for text in session.warnings if "as gross errors" in text], session


def test_a_probe_that_is_lifted_while_the_robot_drives_is_asked_about():
    """What tells of soil is left out, and the map is of air."""
    (text,), session = said(0.15, 100.0)
    count = session.report()["gross_errors"]
    assert text.startswith(f"{count} of 1000 measurements ({count / 10:.0f} %)") and count > 120
    value, stamp = (
        float(text.partition(word)[2].split()[0].rstrip("):"))
        for word in ("the newest: ", "%, stamp ")
    )
    assert abs(value - 28.0) < 4.0 and 190.0 < stamp <= 200.0
    assert "min_value and max_value leave out" in text and "robust: false keeps them" in text


def test_where_each_third_measurement_lies_far_off_it_is_kept_and_said():
    """Gas that comes in gusts is as often far from the others; of a probe the limits tell them apart."""
    asked, session = said(0.3)
    assert not asked and session.cells.bursts.count >= 100 and session.report()["gross_errors"] < 40
    (text,) = (text for text in session.warnings if "too many lie far" in text)
    assert "where they are errors, min_value and max_value leave them out" in text


@pytest.mark.parametrize("share, settings", [(0.05, {}), (0.3, {"robust": False})])
def test_a_sensor_with_spikes_is_not_asked_about(share, settings):
    assert said(share, **settings)[0] == []
