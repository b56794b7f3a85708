"""A map that is read may have more inducing inputs; one without samples, or with given ones, keeps what it has."""

import numpy as np
import torch
from core_data import SETTINGS, drive, feed, lattice, samples

from gp_mapping import create_map
from gp_mapping.core.models.dual_svgp import rebuilding


def test_an_empty_map_stays_empty():
    field = create_map("dual_svgp", **SETTINGS)
    epoch = field.epoch
    field.use_budget()
    assert not field.started and field.epoch == epoch


def test_given_inputs_stay_and_others_become_more():
    batch = samples(*drive(150))
    given = create_map("dual_svgp", **SETTINGS, inducing_inputs=lattice(0.8))
    chosen = create_map("dual_svgp", **SETTINGS)
    for field in (given, chosen):
        feed(field, batch, 30)
    places, epoch, count = given.inducing_inputs(), given.epoch, len(chosen.inducing_inputs())
    for field in (given, chosen):
        field.use_budget()
    assert torch.equal(given.inducing_inputs(), places) and given.epoch == epoch
    assert len(chosen.inducing_inputs()) > count


def test_it_is_done_when_asked_for_also_where_a_live_map_does_long_work_in_slices(monkeypatch):
    """Who asks, to add the map to others, has no later updates to go on with."""
    monkeypatch.setattr(rebuilding, "SLICE", 1.0)
    batch, maps = samples(*drive(150)), []
    for sliced in (False, True):
        field = create_map("dual_svgp", **SETTINGS)
        feed(field, batch, 30)
        field.in_slices(sliced, driven=True)
        field.use_budget()
        assert field.rebuild is None
        maps.append(field)
    whole, sliced = maps
    assert torch.equal(whole.inducing_inputs(), sliced.inducing_inputs())


def test_with_the_budget_for_it_a_map_of_a_quiet_sensor_is_the_exact_gp():
    """Noise of 0.05 µT in a field of 10 µT: a residual of 0.1 µT is no small one there."""
    quiet = SETTINGS | {"noise_stddev": 5e-8}
    x, y = drive(150)
    batch = samples(x, 48.0 + 10.0 * np.sin(2.0 * x[:, :1]) * np.cos(2.0 * x[:, 1:]))
    exact = create_map("exact", **quiet)
    field = create_map("dual_svgp", **quiet, inducing_information=0.1, max_inducing=200)
    for one in (exact, field):
        feed(one, batch, 30)
    field.use_budget()

    places = torch.from_numpy(lattice(0.3))
    judge, told = exact.predict(places), field.predict(places)
    sd = judge.variance.sqrt()
    assert float(((told.mean - judge.mean).abs() / sd).max()) < 0.1
    assert float((told.variance.sqrt() / sd - 1.0).abs().max()) < 0.05
