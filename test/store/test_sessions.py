"""A saved map goes on only with what it is a map of."""

import pytest
import torch
from small_drive import GIVEN, lanes, write_drive

from gp_mapping import MapSettings, Samples, cli
from gp_mapping.core.stored import StoredState
from gp_mapping.errors import UserError
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint
from gp_mapping.store.sessions import (
    Requirements,
    Snapshot,
    open_session,
    take_snapshot,
    write_snapshot,
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("of_one_axis")
    write_drive(folder / "bag", lanes(count=2))
    write_drive(folder / "next_day", lanes(0.2, count=2), 2000.0, seed=1)
    assert (
        cli.main(
            [
                "map",
                str(folder / "bag"),
                "--output",
                str(folder / "x"),
                "--suggest",
                "0",
                "--set",
                "field_component=x",
                *GIVEN,
            ]
        )
        == 0
    )
    return folder


def test_one_axis_is_not_continued_by_the_norm(saved, capsys):
    """Both are in µT, of one sensor and one number: only the name tells them apart."""
    path = saved / "x" / "map.gpm"
    same, norm = (
        Requirements(MapSettings(), quantity=IntakeSettings(field_component=name).quantity)
        for name in ("x", "norm")
    )
    assert open_session(same, path).cell_count > 10
    with pytest.raises(
        ValueError, match="map of 'magnetic_field, x', and what comes is 'magnetic_field, norm'"
    ):
        open_session(norm, path)

    capsys.readouterr()
    again = [
        "map",
        str(saved / "next_day"),
        "--output",
        str(saved / "more"),
        "--suggest",
        "0",
        "--resume",
        str(path),
    ]
    assert cli.main(again) == 2
    error = capsys.readouterr().err
    assert (
        "'magnetic_field, x'" in error
        and len(error.splitlines()) == 1
        and not (saved / "more").exists()
    )
    assert cli.main([*again, "--set", "field_component=x"]) == 0


@pytest.mark.parametrize(
    "name, other, saved_one",
    [("kernel", "rbf", "matern52"), ("anisotropy", 2.0, 1.0), ("long_share", 0.3, 0.0)],
)
def test_a_map_does_not_go_on_with_another_prior(saved, name, other, saved_one):
    """It took the other one without a word, for numbers that are in terms of its own."""
    path = saved / "x" / "map.gpm"
    with pytest.raises(UserError, match=f"made with {name} {saved_one!r}, .* not for {other!r};"):
        open_session(Requirements(MapSettings(**{name: other}), frozenset({name})), path)
    same = Requirements(MapSettings(**{name: saved_one}), frozenset({name}))
    assert open_session(same, path).cell_count > 10
    not_given = Requirements(MapSettings(**{name: other}))
    assert getattr(open_session(not_given, path).settings, name) == saved_one


def test_a_map_that_does_not_say_what_it_is_of_is_taken(saved):
    """As those that were saved before maps said so."""
    state = load_checkpoint(saved / "x" / "map.gpm")
    del state["about"]["quantity"]
    path = save_checkpoint(saved / "older.gpm", state)
    assert (
        open_session(Requirements(MapSettings(), quantity="magnetic_field, norm"), path).cell_count
        > 10
    )


def test_a_snapshot_counts_an_open_cell_as_finished_only_where_that_is_asked_for():
    """What is saved beside a drive leaves the map as it is; what is asked for holds all that was measured."""
    session = MapSession(MapSettings(learn_hyperparameters=False, lengthscale=0.5))
    x = torch.stack([torch.linspace(0.0, 1.0, 50), torch.zeros(50)], 1).double()
    session.ingest(Samples(x, 45e-6 + 1e-6 * x[:, :1], stamp=0.1 * torch.arange(50).double()))
    key, cells = (3, session.revision, session.raw_count), session.cell_count
    beside = take_snapshot(session, key)
    assert (beside.key, beside.cells, beside.samples, session.cell_count) == (key, cells, 50, cells)
    asked = take_snapshot(session, key, flush=True)
    assert asked.cells == cells + 1 == session.cell_count and asked.samples == 50
    assert asked.key == (3, session.revision, 50) != key


def test_a_save_says_which_tile_it_had_to_leave_out(tmp_path):
    gone = StoredState("0 1", {"n": 1})
    save_checkpoint(tmp_path / "before.gpm", {"tile": gone})
    gone.source.path.unlink()
    snapshot = Snapshot({"tile": gone, "n": 2}, (0, 0, 0), 1, 1, 0.0)
    written = write_snapshot(snapshot, tmp_path, {}, exports=False)
    assert written.problem.startswith("tile 0 1 of the map is left out: ")
    assert written.problem in str(written) and load_checkpoint(tmp_path / "map.gpm")["n"] == 2
