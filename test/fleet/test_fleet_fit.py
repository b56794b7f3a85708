"""θ of a fleet from all cells at once: no worse than what was agreed on, and the same wherever it is raised."""

import json
import shutil

import pytest
from fleet_bags import parameters, write_fleet

from gp_mapping import cli
from gp_mapping.fleet.bags import agreed_by, read_bags
from gp_mapping.fleet.cells import cells_of
from gp_mapping.fleet.engine import LocalEngine
from gp_mapping.fleet.evidence import maximise_evidence
from gp_mapping.offline.objectives import CollapsedBound
from gp_mapping.offline.stored_cells import StoredCells


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    return write_fleet(tmp_path_factory.mktemp("fit"), 3)


def test_the_sum_over_bags_is_raised(bags):
    given = parameters(learn_time_offset=False, heading_stddev=0.0, cell_length=0.2)
    read, engine = read_bags(LocalEngine(), bags, given, {}, most=60), LocalEngine()
    agreed, heard = agreed_by(read, given.map), []
    found = maximise_evidence(
        engine, read, agreed, 10, 0.05, lambda what, value: heard.append(value)
    )
    assert (
        found.after > found.before
        and len(heard) == found.iterations
        and "bound of Titsias" in found.objective
    )

    total = 0.0
    for made in read.cells:
        stored = StoredCells.from_batches(
            [cells_of(engine.result(made))], given.map.field_scale, agreed.theta
        )
        bound = CollapsedBound(stored, given.map.max_inducing)
        bound.renew(found.agreed.theta)
        total += bound.value(found.agreed.theta)
    assert total == pytest.approx(found.after, abs=0.05 * len(bags))


def test_fit_with_workers_prints_what_was_gained(bags, tmp_path, capsys):
    words = [
        "fit",
        *bags[:2],
        str(tmp_path / "nowhere"),
        "--workers",
        "1",
        "--calibration-cells",
        "60",
        "--set",
        "cell_length=0.2",
        "--iterations",
        "3",
        "--output",
        str(tmp_path / "out"),
    ]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "report.json").read_text())
    # and the table of the fleet, as `check` prints it
    assert [row["bag"] for row in result["table"]] == bags[:2] and "delay     scale" in printed
    assert result["mend"][0]["figure"] == "failed" and result["notes"][0] in printed
    assert "lengthscale m" in printed and f"mend first:\n  {tmp_path / 'nowhere'}" in printed
    fit = result["fit"]
    assert fit["nats_after"] >= fit["nats_before"] and fit["cells"] == result["map"]["cells"]
    assert fit["after"]["lengthscale"] == pytest.approx(result["hyperparameters"]["lengthscale"])
    assert (
        list(result["fleet"]["failed"]) == [str(tmp_path / "nowhere")]
        and (tmp_path / "out" / "map.gpm").is_file()
    )


def test_report_with_workers_has_the_table(bags, tmp_path):
    """Bags of one name are told apart by the folders that they lie in."""
    page, bags = tmp_path / "fleet.html", list(bags)
    for i in (0, 1):
        bags[i] = shutil.copytree(bags[i], tmp_path / f"robot{i}" / "drive").as_posix()
    words = ["--workers", "1", "--calibration-cells", "60", "--set", "cell_length=0.2"]
    assert cli.main(["report", *bags, *words, "-o", str(page)]) == 0
    text, names = page.read_text(), ("robot0/drive", "robot1/drive", "robot2")
    assert (
        "The fleet" in text
        and all(text.count(f'<th scope="row">{bag}</th>') == 2 for bag in names)
        and str(tmp_path.parent) not in text
        and all(f"<code>{bag}</code>" in text for bag in names)
    )
    assert "compared with the map of all others" in text
