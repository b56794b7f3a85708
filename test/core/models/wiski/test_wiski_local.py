"""What a WISKI map does without a solve: dense GPs around a place."""

import numpy as np
import pytest
import torch
from core_data import SETTINGS, drive, feed, samples
from test_wiski import pair

from gp_mapping import create_map
from gp_mapping.analysis.calibration import calibration_report


@pytest.mark.parametrize("n, tolerance", [(300, 0.2), (1500, 1.0)])
def test_a_neighbourhood_is_near_the_exact_gp_without_a_solve(n, tolerance):
    """sd within 5 %, mean within .2 posterior sd where every sample is a lump of its own, and once f is of a refresh.

    Where more than a thousand lumps are thinned for f, the mean is within one posterior sd: of σ it is a fifth.
    """
    wiski_map, exact = pair(n=n)
    solve, wiski_map.solve_refresh = wiski_map.solve_refresh, None  # whoever solves now fails
    rng = np.random.default_rng(2)
    velocity = torch.from_numpy(rng.normal(size=(40, 2)))
    parts = [
        torch.tensor(c) + 0.3 * torch.from_numpy(rng.uniform(-1.0, 1.0, (40, 2)))
        for c in ([1.0, 1.0], [2.8, 0.2], [-0.5, 1.5])
    ]

    def worst():
        mean, sd = [], []
        for places in parts:
            local = wiski_map.local_posterior(places[:1], 1.0)
            for how in ({}, {"velocity": velocity}):
                a, b = local.predict(places, **how), exact.predict(places, **how)
                mean.append(float(((a.mean - b.mean).abs() / b.stddev).max()))
                sd.append(float((a.stddev / b.stddev - 1).abs().max()))
            again = type(local).from_state_dict(local.state_dict(), "cpu").predict(places, velocity)
            assert torch.equal(again.mean, a.mean) and torch.equal(again.variance, a.variance)
            some = wiski_map.local_posterior(places[:1], 1.0).predict(places[20:], velocity[20:])
            assert torch.allclose(some.mean, a.mean[20:], rtol=1e-10, atol=0.0), (
                "whatever was asked before"
            )
        return max(mean), max(sd)

    mean, sd = worst()
    assert mean < tolerance and sd < 0.05, (mean, sd)
    inner = wiski_map.scaling.inner_x(parts[0])
    slope = exact.posterior.gradient(inner)
    found = wiski_map.local_posterior(parts[0], 0.5).gradient(inner)
    assert float((found - slope).abs().max()) < 0.1 * float(slope.abs().max())
    nowhere = torch.tensor([[90.0, 90.0]])
    empty, prior = (f.predict(nowhere).stddev for f in (wiski_map.local_posterior(nowhere), exact))
    assert float(empty[0, 0]) == pytest.approx(float(prior[0, 0]), rel=0.02)
    wiski_map.solve_refresh = solve
    wiski_map.refresh()
    mean, sd = worst()
    assert mean < 0.35 and sd < 0.05, (mean, sd)


def test_a_file_keeps_the_passes_and_an_older_one_knows_none():
    field = create_map("wiski", **(SETTINGS | {"bias_stddev": 3e-6}))
    x, y = drive(120)
    for number in range(2):
        part = samples(x[number::2], y[number::2] + 4.0 * number)
        feed(field, part.of_pass(float(number)), 20)
    place = torch.tensor([[1.0, 1.0]])
    local = field.local_posterior(place, 1.0)
    state = local.state_dict()
    again = type(local).from_state_dict(state, "cpu")
    older = type(local).from_state_dict({k: v for k, v in state.items() if k != "passes"}, "cpu")
    told = [local.predict_in_pass(place, number) for number in (0.0, 1.0)]
    assert float(told[1].mean - told[0].mean) > 2e-6
    for number in (0, 1):
        same = again.predict_in_pass(place, float(number))
        assert torch.equal(same.mean, told[number].mean)
    assert len(state["passes"]) == 2 and older.numbers == ()


def test_raw_samples_leave_the_standard_deviation_of_the_exact_gp():
    """Within 1 % everywhere, also beside a lane whose samples say something of the slope across it."""
    rng = np.random.default_rng(4)
    lanes, along = np.meshgrid(np.arange(0.0, 1.7, 0.4), np.arange(0.0, 2.0, 0.02), indexing="ij")
    x = np.stack([along.ravel(), lanes.ravel()], 1) + np.clip(
        0.02 * rng.normal(size=(lanes.size, 2)), -0.008, 0.008
    )
    batch = samples(x, 48 + 8 * np.sin(3 * x[:, :1]) + rng.normal(size=(len(x), 1)))
    wiski, exact = (create_map(name, **SETTINGS) for name in ("wiski", "exact"))
    for field in (wiski, exact):
        feed(field, batch, 100)
    places = torch.from_numpy(rng.uniform(0.0, 1.7, (500, 2)))
    ratio = wiski.for_planning().predict(places).stddev / exact.predict(places).stddev - 1
    assert float(ratio.abs().max()) < 0.01 and float(ratio.square().mean().sqrt()) < 0.004


def test_it_calibrates_as_the_exact_map_does(monkeypatch):
    """The memory keeps the samples themselves: at one θ, what is learned of the robot is the same."""
    wiski_map, exact = pair({"heading_stddev": 1e-6, "time_offset": 0.0})
    monkeypatch.setattr(wiski_map, "solve_refresh", None)  # no solve for that either
    a, b = (calibration_report(f).as_dict() for f in (wiski_map, exact))
    for name, value in b.items():
        if isinstance(value, float):
            assert a[name] == pytest.approx(value, rel=1e-6, abs=1e-12), name
    assert a["samples"] == b["samples"] == 300 and a["turning"] > 0.0
    assert len(calibration_report(wiski_map).sentences()) >= 4


def test_a_memory_of_places_says_why_it_does_not_calibrate():
    field = create_map("curl_free", **SETTINGS)
    x, y = drive(40, channels=3)
    feed(field, samples(x, y), 20)
    with pytest.raises(
        RuntimeError, match="map one component, with model dual_svgp, exact or wiski"
    ):
        calibration_report(field)
