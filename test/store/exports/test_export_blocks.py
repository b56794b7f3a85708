"""All of a map at full resolution: the blocks fit together, lie where they say, and none is where nobody drove."""

import json
import math
import sys

import numpy as np
import pytest
import torch
import yaml
from matplotlib.image import imread

from gp_mapping import Samples, cli
from gp_mapping.commands import export
from gp_mapping.mapping import atlas
from gp_mapping.mapping.drawing.levels import HIGHEST, LOWEST
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.checkpoint import save_checkpoint
from gp_mapping.store.exports.geotiff import Datum
from gp_mapping.store.exports.map_server import UNKNOWN

SETTINGS = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "lengthscale": 0.6,
    "signal_stddev": 4e-6,
    "noise_stddev": 1e-7,
    "constant_stddev": 2e-5,
    "max_inducing": 120,
    "resolution": 0.1,
}


@pytest.fixture(scope="module")
def session():
    """Along x from -3 to 27 m, then up y to 12 m."""
    along, up = torch.arange(-3.0, 27.0, 0.1).double(), torch.arange(0.0, 12.0, 0.1).double()
    x = torch.cat([torch.stack([along, 0 * along], 1), torch.stack([27 + 0 * up, up], 1)])
    session = MapSession(MapSettings(**SETTINGS))
    y = (
        45e-6
        + 4e-6 * torch.sin(0.8 * x[:, :1])
        + 1e-7 * torch.randn(len(x), 1, generator=torch.Generator().manual_seed(0)).double()
    )
    session.ingest(Samples(x, y, stamp=torch.arange(len(x)).double() * 0.1))
    session.flush()
    return session


@pytest.fixture(scope="module")
def saved(session, tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("saved") / "map.gpm", session.state_dict())


@pytest.fixture(scope="module")
def little(tmp_path_factory):
    """A map of ten samples, of which nothing is written."""
    session, x = MapSession(MapSettings(**SETTINGS)), torch.rand(10, 2).double()
    session.ingest(Samples(x, 45e-6 + 4e-6 * x[:, :1], stamp=torch.arange(10).double() * 0.1))
    session.flush()
    return save_checkpoint(tmp_path_factory.mktemp("little") / "map.gpm", session.state_dict())


def test_blocks_are_the_whole_drawing_cut_up(session):
    whole = session.render()
    height, width = whole.shape
    first = [round(v / 0.1) for v in whole.origin]
    seen = np.zeros((height, width), dtype=bool)
    blocks = list(atlas.blocks(session, 64))
    assert (
        8 <= len(blocks) <= 14 < math.ceil(width / 64) * math.ceil(height / 64)
    )  # of the whole drawing
    for (i, j), grid in blocks:
        assert grid.shape == (64, 64) and grid.resolution == 0.1
        assert grid.origin == pytest.approx((6.4 * i, 6.4 * j))
        row, column = j * 64 - first[1], i * 64 - first[0]
        rows, columns = (
            slice(max(0, at), min(size, at + 64)) for at, size in ((row, height), (column, width))
        )
        mine = (
            slice(rows.start - row, rows.stop - row),
            slice(columns.start - column, columns.stop - column),
        )
        both = grid.known[mine] & whole.known[rows, columns]
        assert float((grid.mean[mine] - whole.mean[rows, columns])[both].abs().max()) < 5e-8
        seen[rows, columns] |= grid.known[mine].numpy()
    missing = whole.known.numpy() & ~seen
    assert missing.sum() < 0.01 * whole.known.sum()


def test_map_server_files_lie_where_they_say(saved, session, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(export, "BLOCK_CELLS", 64)
    assert (
        cli.main(["export", str(saved), "--output", str(tmp_path / "out"), "--resolution", "0.2"])
        == 0
    )
    assert "cells of 0.2 m" in capfd.readouterr().out
    errors = []
    for path in sorted((tmp_path / "out").glob("mean_*.yaml")):
        about, text = yaml.safe_load(path.read_text()), path.read_text()
        low, high = (
            float(text.split(f"# pixel {level} = ")[1].split("\n")[0])
            for level in (LOWEST, HIGHEST)
        )
        image = imread(path.parent / about["image"])[::-1].astype(int)
        rows, columns = np.nonzero(image != UNKNOWN)
        x = np.stack(
            [about["origin"][0] + (columns + 0.5) * 0.2, about["origin"][1] + (rows + 0.5) * 0.2],
            1,
        )
        value = low + (image[rows, columns] - LOWEST) / (HIGHEST - LOWEST) * (high - low)
        told = session.published(torch.from_numpy(x)).mean[:, 0].numpy()
        errors.append(np.abs(value - np.clip(told, low, high)).max() / (high - low))
    assert len(errors) >= 2 and max(errors) < 0.6 / (HIGHEST - LOWEST) + 0.005


def test_a_geotiff_lies_on_the_earth_where_its_datum_says(saved, session, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    from rasterio.warp import transform

    heading = 0.4
    assert (
        cli.main(
            [
                "export",
                str(saved),
                "--output",
                str(tmp_path),
                "--format",
                "geotiff",
                "--datum",
                f"52.0,4.5,{heading}",
            ]
        )
        == 0
    )
    with rasterio.open(tmp_path / "map.tif") as file:
        x = np.array([[0.05, 0.05], [10.05, 0.15], [26.95, 8.05]])  # middles of cells
        east = x[:, 0] * math.cos(heading) - x[:, 1] * math.sin(heading)
        north = x[:, 0] * math.sin(heading) + x[:, 1] * math.cos(heading)
        values = np.array(list(file.sample(zip(east, north))))
        told = session.published(torch.from_numpy(x))
        assert values[:, 0] == pytest.approx(told.mean[:, 0].numpy(), abs=2e-8)
        assert values[:, 1] == pytest.approx(told.stddev[:, 0].numpy(), rel=0.02)
        assert file.descriptions[0].endswith("SI") and file.nodata != file.nodata
        longitude, latitude = transform(file.crs, "EPSG:4326", east.tolist(), north.tolist())
        metre = math.radians(1.0) * 6.39e6  # of a degree of latitude there, m, to half a percent
        assert (np.array(latitude) - 52.0) * metre == pytest.approx(north, abs=0.006 * 30)
        assert (np.array(longitude) - 4.5) * metre * math.cos(math.radians(52.0)) == pytest.approx(
            east, abs=0.006 * 30
        )
        band = file.read(1)
    assert np.isnan(band).mean() > 0.5
    assert (tmp_path / "map.tif").stat().st_size < 4 * band.size


@pytest.mark.parametrize(
    "text", ["52", "52,4", "91,0,0", "-91,18.4,0", "a,b,c", "52,4.5,nan", "52,4.5,0,1"]
)
def test_a_datum_that_is_no_place_is_said_so(little, tmp_path, capfd, text):
    assert (
        cli.main(
            [
                "export",
                str(little),
                "--output",
                str(tmp_path),
                "--format",
                "geotiff",
                "--datum",
                text,
            ]
        )
        == 2
    )
    said = capfd.readouterr().err
    assert json.dumps(text)[1:-1] in said and "expected latitude and longitude in degrees" in said
    assert Datum.parse("52.5,-4.5,3.1") == (52.5, -4.5, 3.1)


def test_cells_too_large_to_know_anything_are_said(little, tmp_path, capfd):
    """It said "0 blocks" and ended with 0."""
    assert cli.main(["export", str(little), "--output", str(tmp_path), "--resolution", "1000"]) == 2
    said = capfd.readouterr().err
    assert "nothing is written: with cells of 1000 m none of the map is known" in said


def test_without_rasterio_it_says_what_to_install(little, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "rasterio", None)
    folder = tmp_path / "new"  # an empty one stayed behind
    assert cli.main(["export", str(little), "--output", str(folder), "--format", "geotiff"]) == 2
    assert "pip install rasterio" in capfd.readouterr().err and not folder.exists()


def test_of_another_map_in_the_folder_no_block_stays(session, tmp_path):
    """The second map's ground is other ground: map_server would have got blocks of both."""
    (tmp_path / "mean_of_mine.yaml").write_text("mine")
    first = [((i, 7), grid) for i, (_, grid) in enumerate(atlas.blocks(session, 64))][:2]
    second = [((-3, -12), first[0][1])]

    assert export.write_blocks(session, first, tmp_path) == 2
    assert export.write_blocks(session, second, tmp_path) == 1
    names = {f"{what}_-3_-12.{end}" for what in ("mean", "stddev") for end in ("yaml", "pgm")}
    assert {path.name for path in tmp_path.iterdir()} == names | {"mean_of_mine.yaml"}

    assert export.write_blocks(session, [], tmp_path) == 0  # nothing comes: nothing goes
    assert (tmp_path / "mean_-3_-12.pgm").exists()
