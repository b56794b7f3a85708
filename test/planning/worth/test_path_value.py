"""The exact worth of a path: against fantasies of the map itself, in order, conditioned, permuted, weighted."""

from dataclasses import replace

import planning_scene as scene
import pytest
import torch

from gp_mapping import Samples
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.planning.worth.path_value import PathValue
from gp_mapping.planning.worth.weights import OBJECTIVES, cell_weights, why_all_alike

MODELS = ["exact", "dual_svgp"]


def setting(model="dual_svgp", weights=None):
    field = scene.measured_map(
        model, **({"inducing_tolerance": 1e-5} if model == "dual_svgp" else {})
    )
    cells = scene.grid_of(field, 18, 15, 0.17).centres()
    places = scene.grid_of(field).centres()
    return field, cells, places, PathValue.from_map(field, places, cells, weights)


def successive(field, cells, places, path, weights=None):
    """What the map itself says: fantasize place by place, and look at the cells each time."""
    weights = torch.ones(len(cells)).double() if weights is None else weights
    drops = []
    left = float(weights @ field.predict(cells).variance[:, 0])
    for place in path:
        field = field.fantasize(places[place : place + 1])
        now = float(weights @ field.predict(cells).variance[:, 0])
        drops.append(left - now)
        left = now
    return torch.tensor(drops, dtype=torch.float64), left


@pytest.mark.parametrize("model", MODELS)
def test_gain_of_a_path_is_that_of_successive_fantasies(model):
    field, cells, places, value = setting(model)
    path = [3, 4, 17, 16, 60, 61, 73, 85, 3, 119]
    drops, left = successive(field, cells, places, path)
    gains = value.gains([path])[0]
    assert float((gains.sum() - drops.sum()).abs()) < 1e-8 * float(drops.sum())
    torch.testing.assert_close(gains, drops, rtol=1e-8, atol=1e-11 * float(drops.sum()))
    assert value.total - float(gains.sum()) == pytest.approx(left, rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_after_is_the_value_of_the_map_that_was_conditioned(model):
    field, cells, places, value = setting(model)
    first, second = [0, 13, 26, 39], [40, 41, 90, 7]
    conditioned = value.after_measuring(first)
    fantasy = PathValue.from_map(field.fantasize(places[first]), places, cells)
    scale = float(value.C.abs().max())
    assert float((conditioned.C - fantasy.C).abs().max()) < 1e-8 * scale
    assert float((conditioned.S - fantasy.S).abs().max()) < 1e-8 * float(value.S.abs().max())
    assert conditioned.total == pytest.approx(fantasy.total, rel=1e-9)
    torch.testing.assert_close(
        value.remaining_gains(first),
        conditioned.gains_at(range(len(value))),
        rtol=1e-7,
        atol=1e-10 * float(value.gains_at(first).max()),
    )
    torch.testing.assert_close(value.remaining_gains([]), value.gains_at(range(len(value))))
    together = value.gains([first + second])[0]
    torch.testing.assert_close(
        torch.cat([value.gains([first])[0], conditioned.gains([second])[0]]),
        together,
        rtol=1e-8,
        atol=1e-10 * float(together.sum()),
    )


def test_batches_of_unequal_lengths_are_each_valued_as_if_alone():
    _, _, _, value = setting()
    generator = torch.Generator().manual_seed(0)
    paths = [
        torch.randint(len(value), (n,), generator=generator) for n in (1, 40, 2, 0, 39, 17, 33, 1)
    ]
    for alone, batched in zip(paths, value.gains(paths)):
        assert len(batched) == len(alone)
        torch.testing.assert_close(
            batched, value.gains([alone])[0], rtol=1e-9, atol=1e-12 * value.total
        )
    torch.testing.assert_close(value.gains([[5]])[0], value.gains_at([5]))
    single = torch.stack([g[0] for g in value.gains([[i] for i in range(len(value))])])
    torch.testing.assert_close(single, value.gains_at(range(len(value))))


def test_gains_are_what_an_update_of_the_map_takes_off():
    """Not only fantasies: real measurements, with noise as assumed, leave the variance that was foretold."""
    field, cells, places, value = setting("exact")
    path = [30, 31, 44, 58]
    before = float(field.predict(cells).variance.sum())
    noise = field.predict(places[:1]).noise_variance[0].expand(len(path))
    field.update(Samples(places[path], torch.full((len(path),), 47e-6), noise_variance=noise))
    dropped = before - float(field.predict(cells).variance.sum())
    assert float(value.gains([path])[0].sum()) == pytest.approx(dropped, rel=1e-8)


def test_worth_made_in_blocks_is_the_worth(monkeypatch):
    """Of the symmetric product only one half is computed, in blocks of places."""
    field, cells, places, value = setting("exact")
    monkeypatch.setattr("gp_mapping.planning.worth.path_value._BLOCK", 5)
    assert len(places) > 11, "more blocks than two, the last one smaller"
    cross = field.covariance_with(places)(cells)[0].double()
    wanted = cross.mT @ cross
    for S in (PathValue.from_map(field, places, cells).S, value.S):
        assert float((S - wanted).abs().max() / wanted.max()) < 1e-12


def test_permuting_places_changes_nothing():
    field, cells, places, value = setting()
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(1))
    other = PathValue.from_map(field, places[order], cells)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    path = torch.tensor([4, 50, 51, 99])
    torch.testing.assert_close(
        other.gains([back[path]])[0], value.gains([path])[0], rtol=1e-9, atol=0.0
    )


def test_worth_is_never_negative_and_variance_never_rises():
    _, _, _, value = setting()
    assert float(torch.linalg.eigvalsh(value.S).min()) > -1e-9 * float(value.S.abs().max())
    left = value
    for start in range(0, 120, 10):
        after = left.after_measuring(range(start, start + 10))
        assert after.total <= left.total and bool(
            (after.C.diagonal() <= left.C.diagonal() * (1 + 1e-12)).all()
        )
        left = after
    assert 0.0 < left.total < 0.2 * value.total
    assert float(left.C.diagonal().min()) >= 0.0


def test_weights_are_of_the_same_worth():
    field, cells, places, plain = setting()
    weights = torch.rand(len(cells), generator=torch.Generator().manual_seed(2)).double()
    value = PathValue.from_map(field, places, cells, weights)
    path = [10, 22, 34, 46]
    drops, _ = successive(field, cells, places, path, weights)
    torch.testing.assert_close(value.gains([path])[0], drops, rtol=1e-6, atol=0.0)
    doubled = PathValue.from_map(field, places, cells, torch.full((len(cells),), 2.0).double())
    torch.testing.assert_close(doubled.gains([path])[0], 2 * plain.gains([path])[0])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives_look_where_they_should(objective):
    mean, stddev = torch.tensor([50e-6, 45e-6, 40e-6]).double(), torch.full((3,), 1e-6).double()
    areas = torch.tensor([1.0, 2.0, 3.0]).double()
    scale = torch.tensor([1.0, 4.0, 1.0]).double()
    w = cell_weights(objective, areas, mean, stddev, level=45e-6, scale=scale) / areas
    expected = {
        "area": [1, 1, 1],
        "level_set": [0.01, 0.6827, 0.01],
        "hotspot": [1.0, 0.5, 0.01],
        "local_scale": [1, 4, 1],
    }[objective]
    torch.testing.assert_close(w, torch.tensor(expected).double(), rtol=1e-3, atol=1e-6)
    assert why_all_alike(objective, 45e-6, areas, w * areas, mean) == ""

    for level in (45.0, 0.0):  # in microtesla, or none at all
        w = cell_weights(objective, areas, mean, stddev, level=level, scale=scale)
        said = why_all_alike(objective, level, areas, w, mean)
        if objective not in ("level_set", "hotspot"):
            assert said == ""
            continue
        assert f"{objective} about the level {level:g} makes no place count more" in said
        assert "expects 4e-05 to 5e-05" in said


def test_errors_say_what_was_expected():
    field, cells, places, value = setting("exact")
    with pytest.raises(ValueError, match="expected one per cell"):
        PathValue.from_map(field, places, cells, torch.ones(3))
    with pytest.raises(ValueError, match="positive variance"):
        PathValue.from_map(field, places, cells, noise_variance=0.0)
    with pytest.raises(ValueError, match="expected one of 'area'"):
        cell_weights("profit", value.noise, value.noise, value.noise)
    with pytest.raises(ValueError, match="finite"):
        cell_weights("hotspot", value.noise, value.noise, value.noise, level=float("nan"))


def test_slices_ask_a_map_once_for_each_cell_and_place(monkeypatch):
    """Forty slices: with two triangular solves for every place in each of them they cost many times their cells'."""
    field, _, places, _ = setting()
    cells = torch.rand((400, 2), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    asked, white = [], Posterior.whitened
    monkeypatch.setattr(
        Posterior, "whitened", lambda self, x, *rest: asked.append(len(x)) or white(self, x, *rest)
    )
    whole = PathValue.from_map(field, places, cells)
    *_, sliced = PathValue.steps(field, places, cells, chunk=10)
    assert sum(asked) <= 2 * (len(cells) + 2 * len(places) + 1), "the noise is asked of one place"
    assert float((sliced.S - whole.S).abs().max()) <= 1e-12 * float(whole.S.abs().max())
    assert sliced.total == pytest.approx(whole.total, rel=1e-12)


def test_a_noise_that_vanishes_beside_the_field_is_no_reason_to_have_no_plan():
    """K = C + N does not factor: 1e-3 lx beside 1e5 lx, say."""
    field, cells, places, value = setting()
    loud = replace(value, C=value.C * 1e20, S=value.S * 1e20)
    path = [60, 61, 60, 62, 61, 60, 3, 3]
    for gains in loud.gains([path, path[:6]]):
        assert torch.isfinite(gains).all()
    assert (
        torch.isfinite(loud.remaining_gains(path)).all()
        and torch.isfinite(loud.after_measuring(path).C).all()
    )
