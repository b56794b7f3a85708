"""Counts and labels that nobody can mean: of a map of classes or counts only the culprit is lost."""

import functools

import numpy as np
import pytest
import torch

from gp_mapping.core.likelihoods.discrete import Poisson
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.mapping import MapSettings

RATE, N = 20.0, 360


def _drive(kind: str) -> Samples:
    """Lanes of 3 m at .5 m/s, 20 samples a second: five to a cell of counts."""
    away = 0.5 * np.arange(N) / RATE
    lane = np.floor(away / 3.0)
    along = away - 3.0 * lane
    x = np.stack([np.where(lane % 2 == 0, along, 3.0 - along), 0.3 * lane], 1)
    f = np.sin(1.5 * x[:, 0]) * np.cos(1.1 * x[:, 1])
    y = (
        np.random.default_rng(1).poisson(5.0 * np.exp(f))
        if kind == "counts"
        else np.digitize(f, [-0.3, 0.3])
    )
    return Samples(
        x=torch.tensor(x), y=torch.tensor(y, dtype=torch.float64), stamp=torch.arange(N) / RATE
    )


def _settings(kind: str, model: str = "dual_svgp") -> MapSettings:
    likelihood = (
        {"likelihood": "poisson"} if kind == "counts" else {"likelihood": "softmax", "classes": 3}
    )
    return Parameters.build(
        # a start, since to find it takes the first cells in again and again: that is test_start.py's
        {"sensor": "scalar", "model": model, "max_inducing": 60, "lengthscale": 1.0, **likelihood}
    ).map


def _spoiled(samples: Samples, values: dict[int, float]) -> Samples:
    """Between the samples of those numbers and the next, one more of each value; a hundredth of a step later."""
    where = torch.tensor(list(values))
    order = torch.cat([torch.arange(len(samples)), where]).sort(stable=True).indices
    both = Samples.concatenate([samples, samples[where]])[order]
    y, stamp = both.y.clone(), both.stamp.clone()
    for row in (order >= len(samples)).nonzero()[:, 0].tolist():
        y[row] = values[int(where[order[row] - len(samples)])]
        stamp[row] += 1e-2 / RATE
    return Samples(x=both.x, y=y, stamp=stamp)


def _mapped(settings: MapSettings, samples: Samples, cut: int = 50) -> MapSession:
    session = MapSession(settings)
    for part in range(0, len(samples), cut):
        session.ingest(samples[part : part + cut])
    session.flush()
    return session


@functools.cache
def _counted() -> MapSession:
    """Of the counts as they are, which no test changes."""
    return _mapped(_settings("counts"), _drive("counts"))


@pytest.mark.parametrize(
    "kind, model", [("counts", "dual_svgp"), ("counts", "solve_gp"), ("labels", "dual_svgp")]
)
def test_what_can_be_no_outcome_is_refused_by_itself(kind, model):
    """Bit for bit the map of the others, and each refusal counted."""
    settings, samples = _settings(kind, model), _drive(kind)[:80]
    wrong = (
        {3: -1.0, 60: 1e12, 61: -7.0, 75: 3e9}
        if kind == "counts"
        else {3: 7.0, 60: -1.0, 61: 0.5, 75: 1e14}
    )
    told, alone = _mapped(settings, _spoiled(samples, wrong)), _mapped(settings, samples)
    assert (told.raw_count, told.refused) == (len(samples), len(wrong))
    a, b = told.predict(samples.x), alone.predict(samples.x)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)


@pytest.mark.parametrize("value", [1e2, 1e5, 9e8])
def test_a_burst_of_counts_is_left_out_of_its_cell(value):
    """By 2 √(y + 3/8), whose spread is known; it is a gross error, or refused where no field is as strong."""
    settings, samples = _settings("counts"), _drive("counts")
    bursts = dict.fromkeys((2, 70, 130, 131, 250), value)
    told, alone = _mapped(settings, _spoiled(samples, bursts)), _counted()
    a, b = told.map.predict(samples.x), alone.map.predict(samples.x)
    assert float(((a.mean - b.mean).abs() / b.stddev).max()) < 0.5
    assert told.report()["gross_errors"] + told.refused == len(bursts)
    assert told.raw_count + told.refused == N + len(bursts)


def test_a_source_is_no_burst():
    """Two hundred times as much as beside it, over a few cells: it is mapped."""
    samples = _drive("counts")
    near = ((samples.x - torch.tensor([1.5, 0.6])).square().sum(1) / 0.05).neg().exp()
    y = torch.tensor(
        np.random.default_rng(2).poisson(5.0 + 1000.0 * near.numpy()), dtype=torch.float64
    )
    session = _mapped(_settings("counts"), Samples(x=samples.x, y=y, stamp=samples.stamp))
    assert session.report()["gross_errors"] <= 2 and not session.refused
    assert 400.0 < float(session.map.observable(torch.tensor([[1.5, 0.6]]).double()).mean) < 1600.0


def test_a_wild_count_that_is_alone_in_its_cell_costs_its_surroundings_only():
    """A slow counter: no neighbour in the cell tells, and a source may be there; what lies away is as it was."""
    fast = _drive("counts")
    slow = fast[torch.arange(0, N, 5)]
    y = slow.y.clone()
    y[20::15] = 1e4
    session = _mapped(_settings("counts"), Samples(x=slow.x, y=y, stamp=slow.stamp), cut=7)
    p = session.map.predict(slow.x)
    assert session.raw_count + session.refused == len(slow)
    away = torch.cdist(slow.x, slow.x[20::15]).amin(1) > 0.5
    truth = np.log(5.0) + torch.sin(1.5 * slow.x[:, 0]) * torch.cos(1.1 * slow.x[:, 1])
    assert float((p.mean[:, 0] - truth)[away].square().mean().sqrt()) < 1.0


@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp"])
def test_a_map_that_could_not_be_asked_any_more_is_the_one_before(model, monkeypatch):
    """Steps that run away leave finite sums that do not factor: that batch is refused, and the map goes on."""
    samples = _drive("counts")
    session = _mapped(_settings("counts", model), samples[:200])
    before, cells = session.map.predict(samples.x).mean, session.cell_count
    step, calls = Poisson.step, iter(range(1000))

    def runs_away(
        self, y, mean, variance, noise
    ):  # at the last step of each batch: no later one would stumble
        alpha, beta, rate = step(self, y, mean, variance, noise)
        return (
            (alpha, beta, rate)
            if next(calls) % Poisson.steps < Poisson.steps - 1
            else (alpha, beta - 1e9, rate)
        )

    with monkeypatch.context() as patched:
        patched.setattr(Poisson, "step", runs_away)
        session.ingest(samples[200:206])
        session.flush()
    assert (
        session.cell_count == cells
        and session.raw_count + session.refused == 206
        and session.refused == 6
    )
    assert torch.equal(session.map.predict(samples.x).mean, before)
    session.ingest(samples[206:])
    session.flush()
    assert session.refused == 6 and bool(torch.isfinite(session.map.predict(samples.x).mean).all())


@pytest.mark.parametrize("model", ["dual_svgp", "pitc", "pic"])
def test_what_was_forgotten_often_stays_a_number(model):
    """Each pause leaves a 1e-12th of what was known, and forty of them less than the smallest number."""
    session = MapSession(
        MapSettings(model=model, forgetting_time=1e-6, max_inducing=10, memory_size=50)
    )
    x, stamp = torch.rand((60, 2), dtype=torch.float64), 1.7e9 + 100.0 * torch.arange(60).double()
    session.ingest(Samples(x=x, y=45e-6 + 1e-6 * x[:, :1], stamp=stamp))
    session.flush()
    assert session.raw_count == 60 and not session.refused
    assert bool(torch.isfinite(session.predict(x).mean).all())
