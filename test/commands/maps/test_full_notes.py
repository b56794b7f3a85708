"""A map whose budget or bound does not suffice says so in each command, and in numbers as well as in text."""

import json

import pytest
from small_drive import GIVEN, lanes, write_drive

from gp_mapping import cli

BUDGET = [*GIVEN, "--set", "learn_hyperparameters=false", "--set", "max_inducing=4"]
BOUND = [*GIVEN, "--model", "exact", "--set", "max_exact_samples=12"]


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    path = tmp_path_factory.mktemp("full") / "drive"
    write_drive(path, lanes(count=2), rate=10.0)
    return path


@pytest.mark.parametrize(
    ("settings", "words"), [(BUDGET, "raise max_inducing"), (BOUND, "the map is full")]
)
def test_map_says_it_in_json_and_text(drive, tmp_path, capsys, settings, words):
    options = [str(drive), "--suggest", "0", "--output", str(tmp_path / "out"), *settings]
    assert cli.main(["map", *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(words in text for text in told["warnings"]) == 1
    assert (
        json.loads((tmp_path / "out" / "report.json").read_text())["warnings"] == told["warnings"]
    )
    assert cli.main(["map", *options]) == 0
    assert capsys.readouterr().out.count(words) == 1

    # a saved map's page
    page = tmp_path / "page.html"
    assert cli.main(["report", str(tmp_path / "out"), "--suggest", "0", "-o", str(page)]) == 0
    assert page.read_text().count(words) == 1


def test_so_do_check_and_fit(drive, tmp_path, capsys):
    options = [str(drive), "--output", str(tmp_path / "out"), *BUDGET]
    assert cli.main(["check", *options, "--no-refits"]) == 0
    assert capsys.readouterr().out.count("raise max_inducing") == 1
    assert cli.main(["fit", *options, "--iterations", "1", "--json"]) == 0
    assert "raise max_inducing" in " ".join(json.loads(capsys.readouterr().out)["warnings"])
