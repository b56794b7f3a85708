"""A session whose map has all the tiles it may have: it goes on, counts what is left out, and says what mends it."""

import json

import numpy as np
import pytest
import torch
from small_drive import field, write_drive

from gp_mapping import Samples, cli
from gp_mapping.intake.drops import DropCounter
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.notes.fullness import left_out_note
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

UT = 1e-6
GIVEN = {
    "lengthscale": 0.6,
    "signal_stddev": 8 * UT,
    "noise_stddev": 0.3 * UT,
    "constant_stddev": 24 * UT,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "learn_bias": False,
    "max_inducing": 60,
    "memory_size": 300,
    "map_tile_side": 5.0,
    "tiles_in_memory": 9,
    "max_tiles": 9,
    "cell_length": 0.2,
}

EXACT = {"model": "exact", "max_exact_samples": 30, "cell_length": 0.1}


def road(start, stop, stamp=100.0):
    """20 measurements a metre."""
    along = torch.arange(start, stop, 0.05).double()
    x = torch.stack([along, torch.zeros_like(along)], 1)
    noise = 0.2 * UT * torch.randn(len(x), 1, generator=torch.Generator().manual_seed(1)).double()
    y = torch.from_numpy(field(x[:, :1].numpy(), x[:, 1:].numpy())) + noise
    return Samples(x, y, stamp=stamp + 0.05 * torch.arange(len(x)).double())


def poured(session, drops, samples, size=7):
    batches = [
        (start == 0, samples[start : start + size]) for start in range(0, len(samples), size)
    ]
    for _ in ingest_batches(batches, session, drops):
        pass
    ingest_remaining(session, drops)
    return session


@pytest.mark.parametrize("cells", [True, False])
def test_received_is_used_and_dropped(cells):
    drops, samples = DropCounter(), road(0.0, 60.0)
    session = poured(MapSession(MapSettings(**GIVEN, cells=cells)), drops, samples)
    report = session.report()
    assert report["tiles"] == 9 and report["left_out"] > 50
    assert (
        report["samples"] + drops.measurements == len(samples)
        and drops.measurements == report["refused_samples"]
    )
    assert drops.measurements > 200 and "max_tiles" in drops.explain()[0]
    assert "raise max_tiles" in report["last_refusal"] and any(
        "raise max_tiles" in text for text in session.warnings
    )
    assert (
        f"{report['left_out']} cells or measurements on ground beyond its 9 tiles"
        in left_out_note(report)
    )


def test_saved_and_resumed_it_is_as_full_as_before_and_with_more_tiles_it_goes_on():
    drops, samples = DropCounter(), road(0.0, 50.0)
    session = poured(MapSession(MapSettings(**GIVEN)), drops, samples)
    state, left = session.state_dict(), session.left_out
    same, more = MapSession.from_state_dict(state), MapSession.from_state_dict(state, max_tiles=100)
    ends = float(max(t.map.remembered_places()[:, 0].max() for t in session.map.tiles.values()))
    on = road(ends - 1.0, 55.0, 2000.0)
    for one in (same, more):
        counted = DropCounter()
        used = one.raw_count
        poured(one, counted, on)
        assert one.raw_count - used + counted.measurements == len(on)
    assert more.left_out == left < same.left_out and more.report()["tiles"] > 9
    told = more.predict(on.x)
    assert float((told.mean - torch.from_numpy(field(on.x[:, :1].numpy(), 0.0))).abs().max()) < UT


def test_a_day_on_ground_that_is_left_out_changes_nothing_of_what_is_known():
    """Neither the map nor how sure it is: nobody scores it where it knows nothing."""
    session = poured(MapSession(MapSettings(**GIVEN)), DropCounter(), road(0.0, 30.0))
    x = road(1.0, 15.0).x[::5]
    before, noise = session.predict(x), session.noise_variance
    assert session.left_out > 0
    poured(session, DropCounter(), road(30.0, 45.0, 1000.0))
    after = session.predict(x)
    assert torch.equal(before.mean, after.mean) and session.noise_variance == noise
    assert torch.allclose(before.variance, after.variance, rtol=1e-6, atol=0.0)


def test_an_exact_map_that_is_full_drops_what_it_leaves_out():
    drops, samples = DropCounter(), road(0.0, 8.0)
    session = poured(MapSession(MapSettings(**GIVEN | EXACT)), drops, samples)
    assert (
        session.report()["samples"] + drops.measurements == len(samples) and drops.measurements > 40
    )
    assert "raise max_exact_samples" in left_out_note(session.report())


def test_time_goes_on_for_samples_without_stamps():
    """They count as 50 a second, those that are left out as well."""
    samples = road(0.0, 8.0)
    session = MapSession(MapSettings(**GIVEN | EXACT))
    for start in range(0, len(samples), 7):
        part = slice(start, start + 7)
        session.ingest(Samples(samples.x[part], samples.y[part]))
    session.flush()
    assert session.left_out > 20 and session.newest_stamp == pytest.approx(
        0.02 * len(samples), abs=0.05
    )


def test_the_command_says_it(tmp_path, capsys):
    write_drive(tmp_path / "bag", np.array([(0.0, 0.0), (60.0, 0.0)]), speed=2.0, rate=40.0)
    given = [
        word for name, value in GIVEN.items() for word in ("--set", f"{name}={str(value).lower()}")
    ]
    wanted = [
        "map",
        str(tmp_path / "bag"),
        "--output",
        str(tmp_path / "out"),
        *given,
        "--set",
        "resolution=0.5",
    ]
    assert cli.main(wanted) == 0
    out = capsys.readouterr().out
    assert (
        "on ground beyond its 9 tiles are left out; raise max_tiles" in out and "[refused]" in out
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    received, dropped = report["received"]["magnetic_field"], report["dropped_measurements"]
    assert report["samples"] + dropped == received and report["dropped"]["refused"] > 200
    assert report["map"]["tiles"] == 9 and report["map"]["left_out"] > 100
