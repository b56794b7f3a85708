"""A map that is read may have more inducing inputs; one without samples, or with given ones, keeps what it has."""

import torch
from core_data import SETTINGS, drive, feed, lattice, samples

from gp_mapping import create_map


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
