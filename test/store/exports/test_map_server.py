"""map_server's files: cells as map_server would publish them, and errors of one line."""

import os

import numpy as np
import pytest
from PIL import Image

from gp_mapping.errors import UsageError
from gp_mapping.planning import FreeSpace
from gp_mapping.store.exports.map_server import read_map_server

YAML = """image: hall.{ending}
resolution: 0.05
origin: [1.0, -2.0, 0.5]
negate: {negate}
occupied_thresh: 0.65
free_thresh: 0.25
mode: {mode}
"""


def write(folder, picture: Image.Image, ending="pgm", negate="0", mode="trinary"):
    picture.save(folder / f"hall.{ending}")
    (folder / "hall.yaml").write_text(YAML.format(ending=ending, negate=negate, mode=mode))
    return folder / "hall.yaml"


# brightness; the first row of the picture is at the largest y
PIXELS = np.array([[0, 254, 205], [128, 100, 255]], np.uint8)


@pytest.mark.parametrize(
    ("mode", "negate", "cells"),
    [
        # 0.65 < p is occupied, p < 0.25 free: 205 is p = 0.196, and 100 is p = 0.61
        ("trinary", "0", [[-1, -1, 0], [100, 0, 0]]),
        ("trinary", "1", [[-1, -1, 100], [0, 100, 100]]),
        ("trinary", "false", [[-1, -1, 0], [100, 0, 0]]),
        # (p - 0.25) / 0.4
        ("scale", "0", [[62, 89, 0], [100, 0, 0]]),
        # what is above 100 is unknown
        ("raw", "0", [[-1, 100, -1], [0, -1, -1]]),
    ],
)
@pytest.mark.parametrize("ending", ["pgm", "png", "bmp"])
def test_cells_are_those_that_map_server_publishes(tmp_path, mode, negate, cells, ending):
    """By the rules of nav2_map_server's loadMapFromFile."""
    grid = read_map_server(write(tmp_path, Image.fromarray(PIXELS), ending, negate, mode))
    np.testing.assert_array_equal(grid.cells, cells)
    assert grid.resolution == 0.05 and grid.origin == (1.0, -2.0, 0.5)


def test_colours_are_averaged_and_opacity_counts_as_map_server_counts_it(tmp_path):
    pixels = np.zeros((1, 4, 4), np.uint8)
    pixels[0, :, 3] = 255
    pixels[0, 1, :3] = 255  # white
    pixels[0, 2] = 0  # transparent
    pixels[0, 3, :3] = 70  # p = 0.54 with the opacity, 0.73 without
    picture = Image.fromarray(pixels)
    assert read_map_server(write(tmp_path, picture, "png")).cells.tolist() == [[100, 0, 100, -1]]
    scale = read_map_server(write(tmp_path, picture, "png", mode="scale"))
    assert scale.cells.tolist() == [[100, 0, -1, 100]]
    plain = Image.fromarray(pixels[..., :3])
    assert read_map_server(write(tmp_path, plain, "png")).cells.tolist() == [[100, 0, 100, 100]]


@pytest.mark.parametrize("head", ["P5\n# by hand\n2 1\n{most}\n", "P2\n2 1\n{most}\n"])
@pytest.mark.parametrize("most", [200, 255, 1000])
def test_brightness_is_relative_to_the_largest_value_of_a_pgm(tmp_path, head, most):
    path = write(tmp_path, Image.fromarray(PIXELS))
    values = np.array([most, 0])
    wide = values.astype(">u2" if most > 255 else np.uint8).tobytes()
    body = wide if head.startswith("P5") else b"%d 0" % most
    (tmp_path / "hall.pgm").write_bytes(head.format(most=most).encode() + body)
    assert read_map_server(path).cells.tolist() == [[0, 100]]


def test_free_space_lies_where_the_file_says(tmp_path):
    """Row 0 at the origin, and turned about it by the yaw."""
    free = FreeSpace.from_occupancy_grid(read_map_server(write(tmp_path, Image.fromarray(PIXELS))))
    cos, sin = np.cos(0.5), np.sin(0.5)
    u, v = np.array([[0.125, 0.025], [0.075, 0.075], [0.125, 0.075]]).T
    expected = np.stack([1.0 + cos * u - sin * v, -2.0 + sin * u + cos * v], 1)
    np.testing.assert_allclose(free.centres(), expected, atol=1e-12)
    corners = read_map_server(tmp_path / "hall.yaml").corners()
    np.testing.assert_allclose(corners[0], [1.0, -2.0])
    np.testing.assert_allclose(
        corners[2], [1 + cos * 0.15 - sin * 0.1, -2 + sin * 0.15 + cos * 0.1]
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("image: hall.pgm\n", "", "it has no 'image'"),
        ("0.05", "-1", "resolution is -1, expected 0.001 to 1000 metres"),
        ("0.05", "1e-300", "resolution is 1e-300, expected 0.001"),
        ("0.05", "fine", "resolution is 'fine', expected a finite number"),
        ("[1.0, -2.0, 0.5]", "[1.0, -2.0]", "expected [x, y, yaw]"),
        ("[1.0, -2.0, 0.5]", "[1.0, .nan, 0.5]", "origin is 'nan'"),
        ("negate: 0", "negate: 2", "negate is 2, expected 0 or 1"),
        ("0.65", "0.1", "free_thresh < occupied_thresh"),
        ("trinary", "fuzzy", "mode is 'fuzzy', expected one of trinary, scale, raw"),
        ("hall.pgm", "other.pgm", "other.pgm: the picture cannot be read (No such file"),
        ("hall.pgm", "hall.yaml", "hall.yaml: the picture cannot be read (cannot identify"),
        ("image", "\timage", "not a YAML file"),
    ],
)
def test_a_wrong_yaml_is_one_line(tmp_path, old, new, words):
    path = write(tmp_path, Image.fromarray(PIXELS))
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError) as error:
        read_map_server(path)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"P5\n300 200\n255\n" + bytes(10), "truncated"),
        (b"P5\n0 0\n255\n", "cannot be read"),
        (b"P5\n90000 90000\n255\n", "exceeds limit"),
        (b"", "cannot identify"),
    ],
)
def test_a_picture_that_is_not_what_its_head_says_is_one_line(tmp_path, content, words):
    path = write(tmp_path, Image.fromarray(PIXELS))
    (tmp_path / "hall.pgm").write_bytes(content)
    with pytest.raises(UsageError, match=words) as error:
        read_map_server(path)
    assert "hall.pgm: the picture" in str(error.value) and "\n" not in str(error.value)


def test_files_that_are_none(tmp_path):
    (tmp_path / "large.yaml").write_bytes(b"#" * 200_000)
    (tmp_path / "list.yaml").write_text("- 1\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "piped.yaml").write_text("image: pipe\nresolution: 1\norigin: [0, 0, 0]\n")
    for name, words in (
        ("no.yaml", "No such file"),
        ("large.yaml", "larger than"),
        ("list.yaml", "no names and values"),
        ("", "not a regular file"),
        ("piped.yaml", "pipe: not a regular file"),
        ("pipe", "not a regular file"),
    ):
        with pytest.raises(UsageError, match=words):
            read_map_server(tmp_path / name)
