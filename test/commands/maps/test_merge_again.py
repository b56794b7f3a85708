"""`gp-mapping merge`: what a map holds already, as a sum or by --resume, is not added to it again."""

import shutil

import pytest
from small_drive import GIVEN, lanes, write_drive

from gp_mapping import cli

SETTINGS = [*GIVEN, "--set", "learn_hyperparameters=false", "--suggest", "0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Maps of two drives, their sum, and the first one gone on with a third drive."""
    folder = tmp_path_factory.mktemp("weeks")
    for i, name in enumerate("abc"):
        write_drive(folder / name, lanes(0.3 * i, count=1), 1000.0 * (i + 1), rate=5.0, seed=i)
    for words in (
        ["map", "a", "--output", "of_a", *SETTINGS],
        ["map", "b", "--output", "of_b", *SETTINGS],
        ["map", "c", "--output", "of_c", *SETTINGS],
        ["merge", "of_a", "of_b", "--output", "sum"],
        ["map", "c", "--output", "went_on", "--resume", "of_a/map.gpm", "--suggest", "0"],
    ):
        places = [str(folder / w) if (folder / w.split("/")[0]).exists() else w for w in words]
        at = places.index("--output") + 1
        places[at] = str(folder / words[at])
        assert cli.main(places) == 0
    return folder


@pytest.mark.parametrize(
    "pair", [("sum", "of_b"), ("of_a", "sum"), ("went_on", "of_a"), ("went_on", "sum")]
)
def test_a_part_is_not_added_to_its_sum(folder, pair, capsys):
    """It was, and the map was surer of it than the measurements are."""
    capsys.readouterr()
    maps = [str(folder / name) for name in pair]
    assert cli.main(["merge", *maps, "--output", str(folder / "none")]) == 2
    error = capsys.readouterr().err
    assert "would count twice" in error and pair[0] in error and pair[1] in error
    assert not (folder / "none").exists()


def test_two_maps_of_one_bag_are_not_added(folder, capsys):
    """Also where one of them is a sum, which holds the bags of its parts."""
    other = str(folder / "of_a_again")
    drawn = ["--set", "resolution=0.1"]
    assert cli.main(["map", str(folder / "a"), "--output", other, *SETTINGS, *drawn]) == 0
    for first in ("of_a", "sum"):
        capsys.readouterr()
        words = ["merge", str(folder / first), other, "--output", str(folder / "none")]
        assert cli.main(words) == 2
        assert "of one recording" in capsys.readouterr().err
    assert not (folder / "none").exists()


def test_the_same_line_again_adds_nothing(folder, capsys):
    """With a map's own folder as --output."""
    shutil.copytree(folder / "of_a", folder / "grows")
    words = ["merge", *(str(folder / name) for name in ("grows", "of_b")), "--output"]
    assert cli.main([*words, str(folder / "grows")]) == 0
    once = (folder / "grows" / "map.gpm").read_bytes()
    capsys.readouterr()
    assert cli.main([*words, str(folder / "grows")]) == 2
    assert "would count twice" in capsys.readouterr().err
    assert (folder / "grows" / "map.gpm").read_bytes() == once
    # another day's map goes on being added
    more = ["merge", str(folder / "grows"), str(folder / "of_c"), "--output", str(folder / "more")]
    assert cli.main(more) == 0
