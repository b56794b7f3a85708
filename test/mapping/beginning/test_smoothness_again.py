"""The kernel is looked at again when there are several times as many cells, and the map follows."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from survey_paths import lawnmower

import gp_mapping.mapping.beginning.smoothness as smoothness
import gp_mapping.mapping.beginning.start as starts
from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.beginning.smoothness import SmoothnessWatch
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.sensors import map_settings_for

LANES = lawnmower(5.0, 0.5, 0.2)[:176]
SETTINGS = map_settings_for(
    "temperature",
    MapSettings(
        cell_length=0.1,
        cell_lengthscales=0.0,
        learn_time_offset=False,
        learn_bias=False,
        heading_stddev=0.0,
        robust=False,
    ),
)
AS_GIVEN = {
    "heading_stddev": 0.0,
    "field_scale": 1.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "learn_bias": False,
}


@cache
def values(kernel="matern92"):
    """Of a field of that kernel (ℓ .8 m, spread 3) on the lanes, with a noise of .02."""
    gram = make_kernel(kernel, 9.0, 0.8)(LANES, LANES) + 1e-7 * torch.eye(len(LANES)).double()
    generator = torch.Generator().manual_seed(3)
    normal = torch.randn(len(LANES), 2, dtype=torch.float64, generator=generator)
    return 20.0 + torch.linalg.cholesky(gram) @ normal[:, :1] + 0.02 * normal[:, 1:]


def samples(first, last):
    stamp = torch.arange(len(LANES)).double()
    return Samples(LANES[first:last], values()[first:last], stamp=stamp[first:last])


@pytest.fixture
def misled(monkeypatch):
    """The first cells say that a smooth field is rough; it is looked at again at 145 cells."""
    monkeypatch.setattr(starts, "likeliest_kernel", lambda *_: "matern32")
    monkeypatch.setattr(smoothness, "_LOOKS", (145,))


def test_a_kernel_that_the_first_cells_got_wrong_is_replaced(misled):
    """Afterwards the map is the exact GP of its cells with the other kernel, and goes on so."""
    session = MapSession(SETTINGS)
    session.ingest(samples(0, 140))
    assert session.started_settings.kernel == "matern32"
    session.ingest(samples(140, 158))
    assert session.shown.smoothness.search is not None, "it is saved in the middle of a look"
    again = MapSession.from_state_dict(session.state_dict())
    for each in (session, again):
        each.ingest(samples(158, 176))
        each.finish()

    kernel = session.started_settings.kernel
    assert kernel in ("matern72", "matern92") and session.report()["kernel"] == kernel
    gathered = session.gathered
    assert {kernel} == {each.settings.kernel for each in (gathered, gathered.drift, session.scores)}
    assert session.renderer.settings.kernel == kernel
    places = 5.0 * torch.rand(50, 2, generator=torch.Generator().manual_seed(1)).double()
    assert torch.equal(again.predict(places).mean, session.predict(places).mean)

    field, theta = session.map, session.map.learned().theta
    field.use_budget()
    own, memory = field.current_map.theta, field.current_map.memory
    names = "lengthscale", "signal_stddev", "noise_stddev", "constant_stddev"
    exact = create_map(
        "exact",
        **({name: getattr(own, name) for name in names} | AS_GIVEN),
        kernel=kernel,
        centre=field.centre,
    )
    assert own.kernel_name == theta.kernel_name == field.kernel_name == kernel
    exact.update(Samples(memory.x + field.current_map.scaling.origin, memory.y + field.centre))
    found, right = field.predict(places), exact.predict(places)
    assert float(((found.mean - right.mean) / right.stddev).abs().max()) < 0.1
    assert float((found.stddev / right.stddev).log().abs().max()) < 0.1


def test_a_kernel_that_is_right_stays_bit_for_bit(monkeypatch):
    monkeypatch.setattr(smoothness, "_LOOKS", (140,))
    few = replace(SETTINGS, max_inducing=40)
    looked, not_looked = MapSession(few), MapSession(few)
    not_looked.shown.smoothness.stop()
    for session in (looked, not_looked):
        session.ingest(samples(0, 170))
    assert looked.shown.smoothness.is_over
    assert torch.equal(looked.predict(LANES).mean, not_looked.predict(LANES).mean)


@pytest.mark.parametrize("given", [{"learn_smoothness": False}, {"kernel": "matern32"}])
def test_what_is_given_is_not_looked_at(given):
    assert SmoothnessWatch(replace(SETTINGS, **given)).is_over


def test_cells_of_a_robot_that_stands_are_one(monkeypatch):
    monkeypatch.setattr(smoothness, "_LOOKS", (20,))
    asked, watch = [], SmoothnessWatch(SETTINGS)

    class Asked:
        def kernel_search(self):
            asked.append(place.tolist())

    for place in [LANES[:1]] * 100 + [LANES[i : i + 1] for i in range(40)]:
        watch.add(Samples(place, torch.zeros(1, 1)))
        watch.look(Asked())
    assert asked == [LANES[19:20].tolist()]


def tiles_of(session):
    return {tile.map.kernel_name for tile in session.map.tiles.values()}


def test_tiles_follow_where_the_robot_is(misled):
    """Also where the ground has been divided into tiles before it is looked at again.

    The map's kernel is the new one at once, and does not go to and fro at the borders of tiles
    that have yet to take it over.
    """
    session = MapSession(replace(SETTINGS, max_inducing=50, map_tile_side=3.0))
    session.ingest(samples(0, 176))
    assert session.map.layout is not None
    session.finish()
    kernel = session.map.kernel_name
    assert kernel in ("matern52", "matern72", "matern92") and tiles_of(session) == {kernel}

    session.map.use_kernel(replace(session.map.learned().theta, kernel_name="matern32"))
    assert session.map.kernel_name == "matern32" and kernel in tiles_of(session)
    drawn = []
    for i in range(0, 60, 3):
        back = samples(i, i + 3)
        session.ingest(replace(back, stamp=back.stamp + 200.0))
        assert session.map.kernel_name == session.started_settings.kernel == "matern32"
        drawn.append(session.renderer)
    assert all(each is drawn[0] for each in drawn), "a drawing is begun anew once"
    session.finish()
    assert session.map.tiles[session.map.current].map.kernel_name == "matern32"


def test_a_map_that_takes_the_kernel_of_others_looks_for_no_other():
    session = MapSession(SETTINGS)
    session.ingest(samples(0, 140))
    assert not session.shown.smoothness.is_over
    theta = replace(session.map.learned().theta, kernel_name="matern32")
    assert session.agree_on(theta)
    assert session.started_settings.kernel == session.map.kernel_name == "matern32"
    assert session.shown.smoothness.is_over
