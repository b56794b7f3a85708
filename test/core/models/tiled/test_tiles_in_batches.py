"""On a card the tiles predict in one batched computation: what they say one after the other, without more calls."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from core_data import posterior_about
from pretended_card import CARD, pretended_card
from tiled_data import SETTINGS, long_road, road

from gp_mapping import Prediction, create_map
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.factoring import factor_together
from gp_mapping.core.models.tiled import blended
from gp_mapping.core.models.tiled.layout import Layout
from gp_mapping.core.models.tiled.snapshot import TiledSnapshot

LAYOUT = Layout((0.0, 0.0), (1.0, 1.0), 1.0, 0.3, 0.2)
THETA = Theta(0.3, 1.5, 0.1, 1.0)


def tiles_of(side: int, device: str = "cpu", dtype=torch.float64) -> TiledSnapshot:
    """side² tiles with 20 to 24 inducing inputs each."""
    tiles = {
        (i, j): posterior_about(
            (float(i), float(j)), 20 + (i + j) % 5, THETA, dtype, side * i + j, device
        )
        for i in range(side)
        for j in range(side)
    }
    prior = Prediction(*(torch.ones(1, 1, dtype=torch.float64, device=device) for _ in range(3)))
    return TiledSnapshot(LAYOUT, tiles, prior)


def places_on(side: int, count: int) -> torch.Tensor:
    """Places on the tiles, and half a metre about them."""
    generator = torch.Generator().manual_seed(0)
    return (side + 1.0) * torch.rand(count, 2, dtype=torch.float64, generator=generator) - 0.5


def forced(together: bool):
    """Tiles predict together, or one after the other, whatever their device."""
    return mock.patch.object(blended, "predicts_together", lambda device: together)


def assert_same(told: Prediction, wanted: Prediction, sd: float, tolerance: float) -> None:
    for name in ("mean", "stddev", "noise_variance"):
        pair = [getattr(one, name).cpu() for one in (told, wanted)]
        torch.testing.assert_close(*pair, rtol=0, atol=tolerance * sd, msg=name)


@pytest.mark.parametrize(
    ("most", "chunk", "times"),
    [(blended.MOST_NUMBERS, 256, 1), (2000, 16, 6)],
    ids=["at once", "few at a time"],
)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str
)
def test_they_say_what_they_say_one_after_the_other(dtype, tolerance, most, chunk, times):
    x, tiles = places_on(4, 900), tiles_of(4, dtype=dtype)
    with forced(False):
        wanted = tiles.predict(x)
    bounds = mock.patch.multiple(blended, MOST_NUMBERS=most, chunk_size=lambda *_: chunk)
    seen = mock.patch.object(blended, "batches", wraps=blended.batches)
    with forced(True), bounds, seen as asked:
        told = tiles.predict(x)
    assert asked.call_count == times  # 16 tiles with 441 to 625 numbers in a factor
    assert_same(told, wanted, 2.0 * THETA.signal_stddev, tolerance)


@pytest.mark.parametrize(
    ("places", "sides"), [("cpu", (2, 4)), (CARD, (4, 6))], ids=["places here", "places there"]
)
def test_of_more_tiles_a_card_is_asked_no_more(places, sides):
    """It is not waited for, copied to, or asked to compute more often; tile after tile it is."""
    spent, one_by_one = [], []
    with pretended_card() as counts:
        for side in sides:
            x, there = places_on(side, 60 * side**2).to(places), tiles_of(side, CARD)
            counts.clear()
            launched = counts.launches
            told = there.predict(x)
            spent.append((counts.launches - launched, dict(counts)))
            launched = counts.launches
            with forced(False):
                wanted = there.predict(x)
            one_by_one.append(counts.launches - launched)
            assert told.mean.device.type == CARD
            assert_same(told, wanted, 2.0 * THETA.signal_stddev, 1e-9)
    assert spent[0] == spent[1] and one_by_one[1] > 2 * one_by_one[0] > 2 * spent[0][0]
    launches, others = spent[0]
    assert launches <= 210 and others["waits"] <= 20, spent
    assert not blended.predicts_together(torch.device("cpu"))


def maps_of(counts, device: str = "cpu") -> list:
    """Maps that have seen a road, each of so many metres and other noise, and are not factored."""
    maps = [create_map("dual_svgp", device=device, **(SETTINGS | {"tiles": False})) for _ in counts]
    for one, metres in zip(maps, counts):
        samples = road(0.0, metres)
        noise = torch.linspace(0.0, SETTINGS["noise_stddev"] ** 2, len(samples)).double()
        one.update(replace(samples, sensor_variance=noise))
        one.mark_changed()
    return maps


def test_posteriors_made_together_are_those_made_one_after_the_other():
    together, alone = maps_of((0.5, 1.0, 4.0)), maps_of((0.5, 1.0, 4.0))
    together[0].sites.precision[0, 0] = alone[0].sites.precision[0, 0] = -1.0
    factor_together(together)
    assert [m.is_factored for m in together] == [False, True, True], "one does not factor"
    x = torch.stack([torch.linspace(-1.0, 5.0, 60), torch.zeros(60)], 1).double()
    for one, other in zip(together[1:], alone[1:]):
        assert_same(one.predict(x), other.predict(x), SETTINGS["signal_stddev"], 1e-9)
        assert one.posterior.R.is_contiguous() and one.posterior.R.storage_offset() == 0


def test_a_card_is_waited_for_once_for_all_posteriors():
    with pretended_card() as counts:
        for lengths in ((2.0, 2.1), (2.0, 2.1, 2.2, 2.3)):
            maps = maps_of(lengths, CARD)
            counts.clear()
            factor_together(maps)
            assert counts["waits"] == 1 and all(m.is_factored for m in maps)


def test_a_map_of_tiles_says_the_same_and_its_snapshot():
    """Of a robot that passes them, with tiles on the shelf, and beyond them all."""
    field = long_road()
    assert len(field.shelf) and len(field.tiles) > 1
    x = torch.stack([torch.linspace(-2.0, 20.0, 300), torch.zeros(300)], 1).double()
    velocity = torch.tensor([[0.5, 0.1]]).double().expand(300, 2)
    for asked in (field, field.snapshot()):
        for passing in ((), (velocity,)):
            with forced(False):
                wanted = asked.predict(x, *passing)
            if asked is field:  # their posteriors are made together, too
                for tile in field.tiles.values():
                    tile.map.mark_changed()
            with forced(True):
                told = asked.predict(x, *passing)
            assert_same(told, wanted, SETTINGS["signal_stddev"], 1e-9)
