"""What a saved map must be for a node, where it lies, and what a save leaves beside it."""

import re

import numpy as np
import pytest

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.store.checkpoint import about_checkpoint, load_checkpoint
from gp_mapping.store.resume import foreign_exports
from gp_mapping.store.sessions import (
    Requirements,
    map_folder,
    odometry_frame_of,
    open_session,
    take_snapshot,
    write_snapshot,
)
from gp_mapping.store.wording import quantity

STATE = {
    "settings": {"field_unit": "uT"},
    "channels": 1,
    "about": {"quantity": "magnetic_field, norm", "frame": "map"},
}
WANTED = {"settings": MapSettings(), "quantity": "magnetic_field, norm", "frame": "map"}


@pytest.mark.parametrize(
    "wanted, state",
    [
        ({}, {}),
        ({"quantity": "", "frame": ""}, {}),
        ({"quantity": "temperature", "given": frozenset({"field_unit"})}, {}),
        ({"frame": "odom", "any_frame": True}, {}),
        ({"settings": MapSettings(field_unit="ppm"), "given": frozenset({"field_unit"})}, {}),
        # a map that does not say what it is
        ({}, {"settings": None, "channels": None, "about": None}),
        ({}, {"settings": {}, "about": {}}),
    ],
)
def test_a_map_that_fits_is_taken(wanted, state):
    Requirements(**{**WANTED, **wanted}).check({**STATE, **state})


@pytest.mark.parametrize(
    "wanted, state, said",
    [
        ({"settings": MapSettings(field_unit="ppm")}, {}, "a map in 'uT', and the node maps 'ppm'"),
        ({}, {"channels": 3}, "has 3 numbers .* maps 1; set field_component to xyz"),
        ({"channels": 3}, {}, "has 1 numbers .* maps 3; set field_component to norm, x, y or z"),
        (
            {"quantity": "temperature"},
            {},
            "'magnetic_field, norm', and what comes is 'temperature'",
        ),
        ({"frame": "odom"}, {}, "in frame 'map', and poses are in 'odom'; .* allow_frame_change"),
    ],
)
def test_a_map_of_something_else_is_refused(wanted, state, said):
    with pytest.raises(ValueError, match=said):
        Requirements(**{**WANTED, **wanted}).check({**STATE, **state})


@pytest.mark.parametrize(
    "frame, source, odometry",
    [
        ("odom", "odometry", True),
        ("robot1/odom", "odometry", True),
        ("robot1/Odom_combined", "pose", True),
        ("start", "odometry", True),
        ("map", "odometry", False),
        ("robot1/map", "odometry", False),
        ("odom/UTM", "odometry", False),
        ("start", "pose", False),
        ("", "odometry", False),
    ],
)
def test_a_frame_that_begins_anew_with_each_start_is_known(frame, source, odometry):
    about = {"frame": frame, "pose_source": source}
    assert odometry_frame_of(about) == (frame if odometry else "")
    assert odometry_frame_of({"frame": None}) == ""


def test_a_map_lies_inside_its_directory(tmp_path):
    base = tmp_path / "maps"
    (base / "inside").mkdir(parents=True)
    assert map_folder(str(base), "hall/north") == base / "hall" / "north"
    (base / "link").symlink_to(base / "inside")
    assert map_folder(str(base), "link") == base / "link"
    (base / "out").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=f"'out' leads out of {re.escape(str(base))} by a link"):
        map_folder(str(base), "out")
    with pytest.raises(ValueError, match="map_name"):
        map_folder(str(base), "../out")


def driven():
    session = MapSession(MapSettings(learn_hyperparameters=False, lengthscale=0.5))
    x = [[0.1 * i, 0.0] for i in range(30)]
    y = [[45e-6 + 1e-7 * i] for i in range(30)]
    session.ingest(Samples(x, y, stamp=[0.2 * i for i in range(30)]))
    session.about["frame"] = "odom"
    return session


def test_a_save_has_a_checkpoint_and_exports_of_one_map(tmp_path):
    session, asked = driven(), []

    def suggest(own, grid):
        asked.append((own, grid.shape))
        raise OSError("no place")

    snapshot = take_snapshot(session, (1, session.revision, session.raw_count), flush=True)
    with pytest.raises(ValueError, match="the map is empty"):
        write_snapshot(take_snapshot(MapSession(MapSettings()), (0, 0, 0)), tmp_path / "n", {})
    assert not (tmp_path / "n").exists()

    bare = write_snapshot(snapshot, tmp_path / "bare", {}, exports=False)
    assert list(bare.paths) == ["checkpoint"] and not bare.problem
    assert str(bare) == f"saved checkpoint {tmp_path / 'bare' / 'map.gpm'}"

    failed = write_snapshot(snapshot, tmp_path / "failed", {}, suggest)
    assert list(failed.paths) == ["checkpoint"]
    assert failed.problem == "pictures and exports were not written (no place)"
    ((own, shape),) = asked
    assert own is not session and own.cell_count == session.cell_count and min(shape) > 5

    whole = write_snapshot(snapshot, tmp_path / "whole", {"by": "a test"})
    assert not whole.problem and {"checkpoint", "npz", "png"} <= set(whole.paths)
    assert all(path.is_absolute() and path.exists() for path in whole.paths.values())
    number = about_checkpoint(whole.paths["checkpoint"])["id"]
    assert f"# map: {number}" in whole.paths["mean_yaml"].read_text()
    assert f"map: {number}".encode() in whole.paths["png"].read_bytes()[:4096]
    # each says to which map it belongs, and what does not is of another one
    path = whole.paths["checkpoint"]
    assert foreign_exports(path) == []
    other = {"mean_yaml": b"# map: 0123456789ab", "png": b"map: ba9876543210", "stddev_yaml": b"x"}
    for name, text in other.items():
        whole.paths[name].write_bytes(text)
    np.savez(whole.paths["npz"], map_id=np.array("0123456789ab"))
    assert foreign_exports(path) == ["mean.yaml", "map.png", "map.npz"]
    whole.paths["npz"].write_bytes(b"damaged")
    whole.paths["png"].unlink()
    assert foreign_exports(path) == ["mean.yaml"]


def test_a_node_goes_on_with_a_map_in_its_own_way(tmp_path):
    session = driven()
    snapshot = take_snapshot(session, (1, 0, 0), flush=True)
    assert snapshot.metres == pytest.approx(2.9, rel=0.02) and snapshot.samples == 30
    path = write_snapshot(snapshot, tmp_path, {}, exports=False).paths["checkpoint"]
    assert load_checkpoint(path)["about"]["frame"] == "odom"

    def notes(about):
        return [f"of {about['frame']}"]

    other = MapSettings(lengthscale=0.9, resolution=0.2)
    kept = open_session(Requirements(other, frozenset({"resolution"}), notes=notes), path)
    assert (kept.settings.resolution, kept.settings.lengthscale) == (0.2, 0.5)
    assert "of odom" in kept.resume_notes and kept.about["frame"] == "odom"
    assert "frame" not in open_session(Requirements(other, any_frame=True), path).about

    # the robot was carried: what comes is a pass of its own
    kept.ingest(Samples([[3.0, 0.0], [3.1, 0.0]], [[48e-6]] * 2, stamp=[6.0, 6.2]))
    assert kept.path_starts.sum() == session.path_starts.sum() + 1
    fresh = open_session(Requirements(other), "")
    assert fresh.cell_count == 0 and fresh.settings == other


@pytest.mark.parametrize(
    "settings, said",
    [
        ({}, "field"),
        ({"likelihood": "bernoulli", "threshold": 0.25}, "probability of more than 0.25"),
        ({"likelihood": "bernoulli", "published": "latent"}, "latent field"),
        ({"likelihood": "poisson"}, "rate"),
        ({"likelihood": "softmax"}, "probability of the most likely class"),
        ({"likelihood": "dirichlet", "model": "exact"}, "probability of the most likely class"),
    ],
)
def test_what_the_mean_of_a_map_is(settings, said):
    assert quantity(MapSettings(**settings)) == said
