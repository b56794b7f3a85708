"""The table of all models: runs in parts, merges, writes between its markers, and every registered model has a row."""

import json

import pytest
from recordings import invensense

from benchmark.__main__ import main
from benchmark.all_models import models
from benchmark.all_models.models_rows import ROWS
from gp_mapping.core.registry import model_names


def test_every_registered_model_has_a_row():
    assert list(ROWS)[: len(model_names())] == list(model_names())
    assert all(
        ROWS[name].settings == {"model": name} and ROWS[name].build is None
        for name in model_names()
    )
    told = [name for name, row in ROWS.items() if name not in model_names() and row.build is None]
    assert (
        told == ["curl_free_axle"]
        and ROWS["curl_free_axle"].three_axes
        and not ROWS["curl_free_axle"].costs
    )


def test_parts_are_merged_and_written_between_the_markers(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{models.BEGIN}\nold\n{models.END}\nbelow\n")
    shared = [
        "models",
        "--quick",
        "--what",
        "cost",
        "--output",
        str(tmp_path),
        "--document",
        str(page),
    ]
    assert main([*shared, "--only", "dual_svgp"]) == 0
    assert main([*shared, "--only", "dtc,local_gps,gpytorch_exact"]) == 0
    stored = json.loads((tmp_path / "models_quick.json").read_text())
    assert list(stored) == ["dual_svgp", "dtc", "local_gps", "gpytorch_exact"]
    for name, cells in stored.items():
        cost = cells["cost"]
        assert cost["where"]["quick"] and cost["grid_ms"] > 0 and cost["grid_ratio"] > 0
        assert (cost["batch_ms"] is None) == (name == "gpytorch_exact"), (
            "what is stored and fitted has no batch"
        )
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n") and "old" not in text
    assert capsys.readouterr().out.strip().splitlines()[-1] in text
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert [line.split(" | ")[0] for line in lines] == ["| `dual_svgp`", "| `dtc`"]


def test_protocol_of_a_map_and_a_baseline(tmp_path):
    invensense()
    run = ["models", "--quick", "--only", "dual_svgp,local_gps", "--output", str(tmp_path)]
    assert main([*run, "--what", "protocol"]) == 0
    stored = json.loads((tmp_path / "models_quick.json").read_text())
    for name in ("dual_svgp", "local_gps"):
        found = stored[name]["protocol"]
        assert 0 < found["rmse_ut"] < 15 and 0.5 < found["coverage"] <= 1 and found["seconds"] > 0


def test_met_and_not_met():
    where = {"where": {}}
    rows = {
        "dual_svgp": {
            "protocol": {"rmse_ut": 2.0, "nlpd": 1.5, "coverage": 0.95, "inducing": 3} | where
        },
        "sor": {"protocol": {"rmse_ut": 2.0, "nlpd": 1.5, "coverage": 0.87, "inducing": 3} | where},
        "osgpr": {
            "protocol": {"rmse_ut": 60.0, "nlpd": 9.5, "coverage": 0.1, "inducing": 3} | where
        },
    }
    assert [row[6] for row in models.tables(rows)[0].rows] == ["met", "**not met**", ""]


def test_a_row_names_the_commits_of_its_parts():
    cell = {"rmse_ut": 2.0, "nlpd": 1.5, "coverage": 0.95, "inducing": 3, "seconds": 1.0}
    old, new = ({"where": {"commit": name}} for name in ("1389faf", "0579f33"))
    rows = {
        "dual_svgp": {"protocol": cell | new, "leave_one_out": cell | old},
        "dtc": {"protocol": cell | new, "leave_one_out": cell | new},
    }
    (scores,) = models.tables(rows)
    assert scores.columns[-1][0] == "commit"
    assert [row[-1] for row in scores.rows] == ["0579f33, 1389faf", "0579f33"]


def test_what_is_wrong_is_said(tmp_path, capsys):
    assert main(["models", "--only", "krige", "--output", str(tmp_path)]) == 2
    assert "krige" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no <!--"):
        models.page_with("a page without markers", "table")
    assert models.BEGIN in models.PAGE.read_text() and models.END in models.PAGE.read_text()
