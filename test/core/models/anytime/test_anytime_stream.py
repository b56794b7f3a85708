"""Long streams stay bounded, sites stay positive, sessions resume: what a live map asks of PITC and PIC."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, feed, lattice, samples
from map_contract import PLACES, same_state

from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.errors import NumericalError
from gp_mapping.mapping.session import MapSession

SMALL = SETTINGS | {
    "inducing_tolerance": 0.05,
    "inducing_information": 0.0,
    "memory_size": 60,
    "max_inducing": 30,
    "tile_samples": 8,
}


def long_stream(n=1500, seed=7):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 4.0, (n, 2))
    return samples(x, 48.0 + 10.0 * np.sin(x[:, :1]) + rng.normal(0, 1, (n, 1)))


def numbers_kept(state) -> int:
    parts = state.values()
    return sum(
        numbers_kept(v) if isinstance(v, dict) else v.numel() if torch.is_tensor(v) else 1
        for v in parts
    )


@pytest.mark.parametrize("name", ["fitc", "pitc", "pic"])
def test_bounded_and_sound_after_a_long_stream(name):
    """Memory full, budget full, tiles closing, hyper-parameters adopted, places forgotten, all at once."""
    field, batch = create_map(name, **SMALL), long_stream(800)
    feed(field, batch[:300], 10)
    size = numbers_kept(field.state_dict())
    for start in range(300, 800, 10):
        field.update(batch[start : start + 10])
        if start % 100 == 0:
            assert field.adopt(replace(field.theta, lengthscale=0.45 + start / 4000))
            field.forget(0.9)
            field.forget_near(batch.x[start : start + 1], 0.3, 5)
    assert (
        numbers_kept(field.state_dict()) <= 1.3 * size
        and len(field.memory) <= 60
        and len(field.basis) <= 30
    )
    # what is in the sites is positive, and so is what the memory's samples leave of it
    eye = torch.eye(field.basis.size, dtype=torch.float64)
    for sites in (field.sites, field.unremembered_sites()):
        assert float(torch.linalg.eigvalsh(sites.precision - eye)[0]) > -1e-9 * float(
            sites.precision.max()
        )
    if name != "fitc":
        assert field.closed > 0
        for part in field.memory.blocks():
            factor = field.memory.factor(part)
            assert (
                len(part) <= 8
                and bool((factor.diagonal() > 0).all())
                and bool((factor.triu(1) == 0).all())
            )


@pytest.mark.parametrize("name", ["fitc", "pic"])
def test_replacing_leaves_no_trace(name):
    """Hundreds of replacements of (h_B, G_B) are the same as all blocks put in once."""
    fixed = SETTINGS | {
        "tile_samples": 50,
        "inducing_inputs": lattice(1.0, 4.0),
        "centre": [48 * UT],
    }
    field, once, batch = create_map(name, **fixed), create_map(name, **fixed), long_stream(400)
    feed(field, batch, 1)
    once.update(batch)
    a, b = field.predict(PLACES), once.predict(PLACES)
    assert torch.allclose(a.mean, b.mean, rtol=1e-10, atol=0.0)
    assert torch.allclose(a.variance, b.variance, rtol=1e-9, atol=0.0)


def test_a_session_resumes_bit_for_bit():
    """With posteriors of PIC among the scores' snapshots."""
    x, y = drive(250, seed=3)
    batch = Samples(x, y * UT, stamp=0.02 * np.arange(250))
    settings = MapSettings(
        model="pic",
        cell_length=0.05,
        score_distance=0.5,
        tile_samples=10,
        max_inducing=40,
        learn_hyperparameters=False,
        learn_time_offset=False,
    )
    straight = MapSession(settings)
    straight.ingest(batch[:160])
    state = copy.deepcopy(straight.state_dict())
    resumed = MapSession.from_state_dict(copy.deepcopy(state))
    assert straight.scores._before.oldest.posterior.blocks
    for session in (straight, resumed):
        session.ingest(batch[160:])
    assert same_state(straight.state_dict(), resumed.state_dict())
    a, b = straight.predict(PLACES), resumed.predict(PLACES)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)


def test_a_state_of_other_tiles_is_refused():
    field = create_map("pic", **SMALL)
    feed(field, samples(*drive(60)), 20)
    with pytest.raises(ValueError, match="tile_samples is 8 in the state and 9"):
        create_map("pic", **SMALL | {"tile_samples": 9}).load_state_dict(field.state_dict())


def test_pic_meets_its_data_and_jumps_at_a_border():
    """What PIC is for, and what it costs: nearer to the samples than PITC, and not continuous across tiles."""
    x, y = drive(300)
    few = {"max_inducing": 12, "inducing_tolerance": 0.3, "inducing_information": 0.0}
    fields = {name: create_map(name, **SETTINGS | few) for name in ("pitc", "pic")}
    error = {}
    for name, field in fields.items():
        feed(field, samples(x, y), 20)
        error[name] = float((field.predict(torch.from_numpy(x)).mean.numpy() - y * UT).std())
    assert error["pic"] < 0.8 * error["pitc"]
    origin, side = fields["pic"].scaling.origin, fields["pic"].side
    border = origin + torch.tensor(
        [[0.5 * side, 0.2], [0.5 * side, 0.7], [1.5 * side, 0.5]], dtype=torch.float64
    )
    step = torch.tensor([[1e-9, 0.0]], dtype=torch.float64)
    jump = {
        n: float((f.predict(border - step).mean - f.predict(border + step).mean).abs().max()) / UT
        for n, f in fields.items()
    }
    assert jump["pitc"] < 1e-5 and jump["pic"] > 1e-2


@pytest.mark.parametrize("name", ["pitc", "pic"])
def test_blocks_are_those_of_their_samples_after_a_merge_of_full_memories(name):
    """U Uᵀ = K − Q + σ² of each block, in the order in which its samples came: in a full memory no order of places."""
    x, y = drive(600, seed=4)
    mine, its = (create_map(name, memory_size=60, **SETTINGS) for _ in range(2))
    feed(mine, samples(x[:300], y[:300]), 20)
    feed(its, samples(x[300:], y[300:]), 20)
    assert not bool((its.memory.order.diff() > 0).all())
    mine.merge(its)
    memory, rows, features = mine.memory, mine.basis.size, mine.basis.features
    places, noise = mine.memory_places(mine.theta), mine.own_noise(mine.theta)
    for part in memory.blocks():
        if float(memory.block[part[0]]) < 0:
            continue
        factor, inducing = memory.factor(part), memory.raw[part, :rows].mT[features:]
        gamma = (
            mine.basis.kernel(places[part], places[part])
            - inducing.mT @ inducing
            + torch.diag(noise[part])
        )
        assert torch.allclose(factor @ factor.mT, gamma, atol=1e-6 * float(gamma.max())), name
    assert bool(torch.isfinite(mine.predict(PLACES).mean).all())


def test_a_refused_update_leaves_the_noise_of_what_is_remembered(monkeypatch):
    """New inputs near by make it smaller before the update is refused."""
    field = create_map("fitc", **SETTINGS | {"max_inducing": 60, "memory_size": 60})
    x, y = drive(40, size=1.0)
    feed(field, samples(x, y), 20)
    before, beta, more = field.state_dict(), field.memory.beta.clone(), samples(x + 0.9, y)

    def fails(self):
        raise NumericalError("not sound")

    with monkeypatch.context() as patch:
        patch.setattr(type(field), "check", fails)
        with pytest.raises(NumericalError):
            field.update(more)
    assert same_state(field.state_dict(), before)

    field.update(more[:1])
    assert not torch.equal(field.memory.beta[: len(beta)], beta), "it would have been smaller"
