"""Each member is its textbook formula to 1e-8, however the samples come; and the exact GP where theory says so."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from anytime_oracle import THETA, anytime, gamma, labels
from core_data import SETTINGS, UT, close, covariance, drive, exact_gp, feed, lattice, samples

import gp_mapping.core.models.anytime.model as anytime_module
import gp_mapping.core.models.anytime.tiles as anytime_tiles
from gp_mapping import create_map
from gp_mapping.core.models.anytime.model import MEMBERS
from gp_mapping.offline.combine import combine

C, N, SIDE = 48.0, 150, 1.0  # the given centre; samples; a tile's side in metres: 2 lengthscales
X, Y = drive(N)
Z = lattice(0.8, margin=0.2)  # coarse, so that K − Q matters
XS = np.random.default_rng(1).uniform(-0.4, 3.4, (50, 2))
NOISE = np.random.default_rng(2).uniform(0.5, 2.0, N)
BATCH = samples(X, Y, noise_variance=NOISE)
BLOCK, BLOCK_OF_XS = labels(X - X[0].round(), SIDE), labels(XS - X[0].round(), SIDE)
NAMES = tuple(MEMBERS)


def built(name, batch=BATCH, size=20, **settings):
    field = create_map(
        name, centre=[C * UT], **(SETTINGS | {"inducing_inputs": Z, "tile_samples": 500} | settings)
    )
    feed(field, batch, size)
    return field


def agrees(field, expected, tolerance=1e-8, xs=XS):
    """Mean about the centre, variance and covariance."""
    prediction = field.predict(torch.from_numpy(xs))
    close(prediction.mean.cpu().numpy() / UT - C, expected[0], tolerance, "mean")
    variance = prediction.variance.cpu().numpy()[:, 0] / UT**2
    error = np.abs(variance / np.diag(expected[1]) - 1).max()
    assert error <= tolerance, f"variance: relative error {error:.3g}"
    joint = field.covariance(torch.from_numpy(xs), torch.from_numpy(xs)).cpu().numpy() / UT**2
    close(joint, expected[1], tolerance, "covariance")


def expected_of(name, block=BLOCK, which=slice(None), z=Z, noise=NOISE, **theta):
    return anytime(
        name,
        X[which],
        Y[which] - C,
        noise[which],
        z,
        XS,
        block[which],
        BLOCK_OF_XS,
        theta=THETA | theta,
    )


def inducing_of(field):
    return (field.basis.z + field.scaling.origin).cpu().numpy()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 17, N])
def test_streaming_equals_batch_in_any_order(name, size):
    order = np.random.default_rng(size).permutation(N)
    agrees(built(name, BATCH[torch.from_numpy(order)], size), expected_of(name))


def test_the_members_differ_here():
    """The yardstick itself: at these inputs no two of the six agree, and none is the exact GP."""
    found = {name: expected_of(name) for name in NAMES}
    exact = exact_gp(X, Y - C, NOISE, XS, **THETA)
    for i, a in enumerate(NAMES):
        for b in NAMES[i + 1 :]:
            assert max(np.abs(p - q).max() for p, q in zip(found[a], found[b])) > 0.1, f"{a} is {b}"
        assert np.abs(found[a][0] - exact[0]).max() > 0.1


@pytest.mark.parametrize("z", [Z, Z[:3]])
def test_pic_of_one_block_is_the_exact_gp(z):
    agrees(built("pic", tile_side=1e2, inducing_inputs=z), exact_gp(X, Y - C, NOISE, XS, **THETA))


@pytest.mark.parametrize("name", NAMES)
def test_with_u_at_the_samples_all_are_exact(name):
    apart = torch.arange(0, N, 4)
    some = BATCH[apart]
    xs = X[::4] if name == "sor" else XS  # SoR's variance is right at u alone
    exact = exact_gp(X[::4], Y[::4] - C, NOISE[::4], xs, **THETA)
    field = built(name, some, inducing_inputs=some.x)
    prediction = field.predict(torch.from_numpy(xs))
    close(prediction.mean.numpy() / UT - C, exact[0], 1e-8, "mean")
    variance = prediction.variance.numpy()[:, 0] / UT**2
    assert np.abs(variance / np.diag(exact[1]) - 1).max() < 1e-8


@pytest.mark.parametrize("name", ["pitc", "pic"])
def test_a_full_tile_closes_its_older_half(name):
    """Blocks of at most 8: 4 leave for a block of their own each time, and x* is in the tile's newest."""
    field = built(name, tile_samples=8)
    block = np.empty(N, dtype=object)
    for tile in np.unique(BLOCK):
        here = np.flatnonzero(BLOCK == tile)
        closed = max(0, -(-(len(here) - 8) // 4))
        for i, sample in enumerate(here):
            block[sample] = tile if i >= 4 * closed else f"{tile} closed {i // 4}"
    assert field.closed == sum("closed" in b for b in np.unique(block.astype(str))) > 20
    agrees(field, expected_of(name, block.astype(str)))


def joined(tiles: dict, numbers: range, block: np.ndarray, most: int) -> None:
    """The definition: each sample joins its tile's last block; of more than `most` the older half closes."""
    for i in numbers:
        blocks = tiles.setdefault(block[i], [[]])
        blocks[-1].append(i)
        if len(blocks[-1]) > most:
            blocks[-1:] = blocks[-1][: most // 2], blocks[-1][most // 2 :]


def named(tiles: dict, count: int) -> np.ndarray:
    """Labels (count,): of a tile's last block its tile's, of others a name of their own; "gone" of no block."""
    block = np.array([f"gone {i}" for i in range(count)], dtype=object)
    for tile, blocks in tiles.items():
        for number, part in enumerate(blocks, 1):
            block[part] = tile if number == len(blocks) else f"{tile} closed {number}"
    return block.astype(str)


@pytest.mark.parametrize("name", ["pitc", "pic"])
def test_new_inputs_open_no_closed_block(name):
    """New inputs behind a border: a tile's closed block lies there, its open one far from both."""
    parts = [0.0], (1.9, 1.4, 12), (-1.4, -1.9, 12), (2.1, 3.0, 5), (-1.9, -1.4, 3)
    along = np.concatenate([p if len(p) == 1 else np.linspace(*p) for p in parts])
    x = np.stack([along, np.zeros_like(along)], 1)
    y, noise = 48.0 + 10.0 * np.sin(1.7 * x[:, :1]), np.ones(len(x))
    xs, theta = np.stack([np.linspace(-2.4, 3.0, 28), np.full(28, 0.1)], 1), THETA | {"name": "rbf"}
    tiles = {}
    joined(tiles, range(len(x)), labels(x, 4.0), 10)
    field = built(
        name,
        samples(x, y, noise_variance=noise),
        size=1,
        kernel="rbf",
        tile_side=8.0,
        tile_samples=10,
        inducing_inputs=None,
        inducing_tolerance=0.2,
        inducing_information=0.0,
    )
    z, block = inducing_of(field), named(tiles, len(x))
    agrees(
        field, anytime(name, x, y - C, noise, z, xs, block, labels(xs, 4.0), theta=theta), 1e-5, xs
    )


@pytest.mark.parametrize("name", ["pitc", "pic"])
def test_what_leaves_the_memory_opens_no_closed_block(name):
    tiles, field = {}, built(name, BATCH[:0], tile_samples=8, memory_size=40)
    for start in range(0, N, 5):
        field.update(BATCH[start : start + 5])
        kept = {tuple(np.round(x, 9)) for x in field.remembered_places().tolist()}
        for tile, blocks in tiles.items():
            left = [[i for i in part if tuple(np.round(X[i], 9)) in kept] for part in blocks]
            tiles[tile] = [part for part in left if part] or [[]]
        joined(tiles, range(start, min(start + 5, N)), BLOCK, 8)
    agrees(field, expected_of(name, named(tiles, N)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [5, 60])
def test_what_leaves_the_memory_is_a_block_of_its_own(name, size):
    field = built(name, size=size, memory_size=40)
    remembered = {tuple(np.round(x, 9)) for x in (field.memory.x + field.scaling.origin).tolist()}
    assert len(remembered) == 40
    gone = [tuple(np.round(x, 9)) not in remembered for x in X]
    agrees(field, expected_of(name, np.where(gone, [f"gone {i}" for i in range(N)], BLOCK)))


@pytest.mark.parametrize("name", NAMES)
def test_growing_inducing_inputs_change_what_is_remembered(name, monkeypatch):
    """Old samples are put in again with the K − Q of the new z: exactly where nothing is too small to matter."""
    for module in (anytime_module, anytime_tiles):
        monkeypatch.setattr(module, "STALE", 0.0)
    grown = built(name, inducing_inputs=None, inducing_tolerance=0.2, inducing_information=0.0)
    assert 10 < len(grown.basis) < 80
    agrees(grown, expected_of(name, z=inducing_of(grown)))
    monkeypatch.undo()
    rough = built(name, inducing_inputs=None, inducing_tolerance=0.2, inducing_information=0.0)
    agrees(rough, expected_of(name, z=inducing_of(rough)), 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_new_hyperparameters(name):
    """After adoption the map is the batch model there; tiles keep their side in lengthscales."""
    field = built(name, memory_size=500)
    assert field.adopt(replace(field.theta, lengthscale=0.4, signal_stddev=12.0))
    theta = {"length": 0.4, "signal": 12.0}
    block, of_xs = labels(X - X[0].round(), 0.8), labels(XS - X[0].round(), 0.8)
    agrees(field, anytime(name, X, Y - C, NOISE, Z, XS, block, of_xs, theta=THETA | theta))


@pytest.mark.parametrize("name", NAMES)
def test_forgetting_a_place_and_all(name):
    """What is near a place leaves exactly; what is left counts half."""
    field = built(name)
    near = np.hypot(*(X - X[40]).T) <= 0.5
    assert field.forget_near(torch.from_numpy(X[40:41]), 0.5, 0) == near.sum() > 5
    agrees(field, expected_of(name, which=~near))
    field.forget(0.5)
    agrees(field, expected_of(name, which=~near, noise=2.0 * NOISE))


@pytest.mark.parametrize("name", NAMES)
def test_merge_is_the_union(name):
    left, right = built(name, BATCH[:70]), built(name, BATCH[70:])
    left.merge(right)
    agrees(left, expected_of(name))


@pytest.mark.parametrize("name", ["fitc", "pitc", "pic"])
def test_a_fantasy_keeps_the_mean_and_is_a_measurement(name):
    """Where it is asked for, the variance is that of a measurement more, or less: the others help."""
    field, at = built(name), torch.from_numpy(XS)
    old, new = field.predict(at), field.fantasize(at[:3]).predict(at)
    close(new.mean, old.mean, 1e-9)
    v, noise = old.variance[:3], old.noise_variance
    assert bool((new.variance <= old.variance * (1 + 1e-9)).all())
    assert bool((new.variance[:3] <= v * noise / (v + noise) * (1 + 1e-6)).all())


@pytest.mark.parametrize("shares", [(0.3, 0.7), (1.0, 0.0), (0.5, 0.4)])
def test_linear_combinations_are_members(shares):
    """Remark 2: θ₁, θ₂ of DTC and PITC mixed; both have the test conditional p(f*|u)."""
    mixed = combine([built(name).posterior for name in ("dtc", "pitc")], list(shares))
    k_uu = np.block(
        [
            [np.full((1, 1), 400.0), np.zeros((1, len(Z)))],
            [np.zeros((len(Z), 1)), covariance(Z, Z, **THETA)],
        ]
    )
    k_uf, k_us = (
        np.vstack([np.full((1, len(p)), 400.0), covariance(Z, p, **THETA)]) for p in (X, XS)
    )
    first, second = (
        np.zeros((len(k_uu), 1)),
        np.zeros_like(k_uu),
    )  # of u' = K_uu⁻¹u, so that K_uu stands for K_uu⁻¹
    for share, name in zip(shares, ("dtc", "pitc")):
        solved = np.linalg.solve(gamma(name, X, NOISE, Z, BLOCK), np.hstack([Y - C, k_uf.T]))
        first += share * k_uf @ solved[:, :1]
        second += share * (k_uu + k_uf @ solved[:, 1:])
    mean = k_us.T @ np.linalg.solve(second, first)
    variance = (
        500.0
        - (k_us * np.linalg.solve(k_uu, k_us)).sum(0)
        + (k_us * np.linalg.solve(second, k_us)).sum(0)
    )
    found = mixed.predict(torch.from_numpy(XS))
    close(found.mean.numpy() / UT - C, mean, 1e-8, "mean")
    close(found.variance.numpy()[:, 0] / UT**2, variance, 1e-8, "variance")


def test_combinations_that_make_no_sense_are_refused():
    dtc, sor, other = (
        built("dtc").posterior,
        built("sor").posterior,
        built("dtc", inducing_inputs=Z[:5]).posterior,
    )
    for members, shares, words in (
        ([dtc, sor], [0.5, 0.5], "one test conditional"),
        ([dtc, other], [0.5, 0.5], "inducing inputs"),
        ([dtc, dtc], [1.0], "one share for each"),
        ([dtc], [-1.0], "positive precision"),
    ):
        with pytest.raises(ValueError, match=words):
            combine(members, shares)
