"""What bags are called on a page: one name each, and no folder of this machine that is not needed for that."""

import argparse

import pytest

from gp_mapping.commands.fleet.arguments import connected_engine
from gp_mapping.commands.report.names import short_names, without_folders
from gp_mapping.errors import UsageError


def test_a_name_is_as_long_as_it_has_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = ["one/robot1/bag", "one/robot2/bag", "two/robot2/bag", "two/robot3/drive.mcap"]
    assert list(short_names(paths).values()) == [
        "robot1/bag",
        "one/robot2/bag",
        "two/robot2/bag",
        "drive.mcap",
    ]
    assert short_names([tmp_path / "bag"]) == {str(tmp_path / "bag"): "bag"}
    assert short_names(["."]) == {".": tmp_path.name} and short_names([]) == {}
    assert short_names(["a\nb"]) == {"a\nb": "a b"}


def test_one_bag_in_two_spellings_has_a_name(tmp_path, monkeypatch):
    """Nothing tells them apart."""
    monkeypatch.chdir(tmp_path)
    told = short_names(["bag", "./bag"])
    assert told["bag"] == told["./bag"]


def test_paths_in_a_text_become_names_and_words_stay():
    names = {"/data/a": "one/a", "x/a": "two/a", "/data/a/b.mcap": "b.mcap"}
    assert without_folders("/data/a: as a whole; x/a, /data/a/b.mcap", names) == (
        "one/a: as a whole; two/a, b.mcap"
    )
    assert without_folders("drives at data/ad-1, ad.a", {"ad": "x/ad"}) == (
        "drives at data/ad-1, ad.a"
    )
    assert without_folders("bag: bag/bag_0.mcap is short", {"bag": "r/bag"}) == (
        "r/bag: r/bag/bag_0.mcap is short"
    )
    assert without_folders("nothing", {}) == "nothing"


def test_a_bag_in_two_spellings_is_given_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = argparse.Namespace(
        bags=["bag", "other/../bag/"], workers=1, scheduler=None, calibration_cells=60
    )
    with pytest.raises(UsageError, match="given twice"), connected_engine(given, tmp_path):
        pass
