"""Constants of passes in a fleet's map: what one tile tells, the others know, as in one process."""

import copy

import numpy as np
import pytest
import torch
from fleet_bags import HELD
from small_drive import lanes, write_drive
from test_fleet_map import cells_of_sessions, fleet_map, matern52

from gp_mapping.core.models.tiled.shared_constants import exchange_all
from gp_mapping.core.types import Samples
from gp_mapping.fleet.engine import LocalEngine

BIAS, LENGTH, SPREAD, NOISE, LEVEL = 4.0, 0.3, 8.0, 0.3, 30.0  # m, else µT
BANDS = {
    **HELD,
    "lengthscale": LENGTH,
    "max_inducing": 60,
    "map_tile_side": 5.0,
    "bias_stddev": BIAS * 1e-6,
}


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """Bands of one pass each, of which neighbours share a lane; each reads another constant."""
    folder = tmp_path_factory.mktemp("bands")
    for i, constant in enumerate((5e-6, -4e-6, 2e-6)):
        shift = constant * np.array([0.6, 0.0, 0.8])
        write_drive(
            folder / f"band{i}",
            lanes(0.8 * i, 3, 2.0),
            1000.0 * (i + 1),
            rate=10.0,
            seed=i,
            spoil=lambda _, vector, place, shift=shift: (vector + shift, place),
        )
    return [str(folder / f"band{i}") for i in range(3)]


@pytest.fixture(scope="module")
def made(bags):
    return fleet_map(LocalEngine(), bags, BANDS)


@pytest.fixture(scope="module")
def tiles(made):
    """Every tile's map."""
    tiled = copy.deepcopy(made.session.map)
    tiled.load_tiles([tile.key for tile in made.sums])
    return tiled


def of_tile(model, cells, centre):
    """In µT: prior of the field at cells and inducing inputs, noise, values, and who is of which pass."""
    z, p = model.inducing_inputs().numpy(), cells.x.numpy()
    prior, cross = matern52(z, z, LENGTH, SPREAD), matern52(z, p, LENGTH, SPREAD)
    field = cross.T @ np.linalg.solve(prior, cross) + LEVEL**2
    noise = NOISE**2 + cells.sensor_variance.numpy() * 1e12 / cells.count.numpy()
    return field + np.diag(noise), (cells.y.numpy()[:, 0] - centre) * 1e6, prior, cross, z


def told_by(covariance, y, member, fraction):
    """N and v of the differences between constants, from the dense covariance of a tile's cells."""
    solved = np.linalg.solve(covariance, np.column_stack([member, y]))
    precision, linear = member.T @ solved[:, :-1], member.T @ solved[:, -1]
    common, level = precision.sum(1), precision.sum()
    return (
        fraction * (precision - np.outer(common, common) / level),
        fraction * (linear - common * linear.sum() / level),
    )


def test_each_tile_is_the_formula_with_what_all_others_say(bags, made, tiles):
    bands, centre = [cells_of_sessions([bag], BANDS) for bag in bags], float(tiles.centre[0])
    cells, passes = Samples.concatenate(bands), np.repeat(np.arange(3), list(map(len, bands)))
    parts, said = {}, {}
    for key in tiles.tiles:
        which = tiles.layout.covers(key, cells.x).numpy()
        member = np.eye(3)[passes[which]]
        parts[key] = *of_tile(tiles.tiles[key].map, cells[torch.from_numpy(which)], centre), member
        covariance, y = parts[key][:2]
        if len(set(passes[which])) > 1:
            said[key] = told_by(covariance, y, member, tiles.layout.core_fraction(key))
    assert len(said) > 1 and any(not np.diag(n).all() for n, _ in said.values())

    for key, (covariance, y, prior, cross, z, member) in parts.items():
        others = [said[other] for other in said if other != key]
        known = np.linalg.inv(sum(n for n, _ in others) + np.eye(3) / BIAS**2)
        mean = known @ sum(v for _, v in others)

        low, high = tiles.layout.core(key)
        x = torch.from_numpy(np.random.default_rng(1).uniform(low, high, (10, 2)))
        here = matern52(z, x.numpy(), LENGTH, SPREAD)
        reach = here.T @ np.linalg.solve(prior, cross) + LEVEL**2
        solved = np.linalg.solve(
            covariance + member @ known @ member.T, np.column_stack([y - member @ mean, reach.T])
        )
        variance = SPREAD**2 + LEVEL**2 - (reach * solved[:, 1:].T).sum(1)

        report = tiles.tiles[key].map.predict(x)
        stddev = np.sqrt(variance)
        assert np.abs(report.stddev[:, 0].numpy() * 1e6 / stddev - 1.0).max() < 1e-6
        wrong = (report.mean[:, 0].numpy() - centre) * 1e6 - reach @ solved[:, 0]
        assert np.abs(wrong).max() < 1e-6 * stddev.min()


def test_tiles_of_one_process_have_nothing_to_tell_them(tiles):
    x = torch.rand(200, 2, dtype=torch.float64) * torch.tensor([2.0, 2.4])
    before = tiles.predict(x)
    for tile in tiles.tiles.values():
        tile.evidence_samples = -1
    exchange_all(tiles)
    after = tiles.predict(x)
    assert float(((after.mean - before.mean) / before.stddev).abs().max()) < 1e-6
    assert float((after.stddev / before.stddev - 1.0).abs().max()) < 1e-6
