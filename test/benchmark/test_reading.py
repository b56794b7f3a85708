"""The benchmark of reading and averaging finds the cells where a session hands them over."""

import json

from benchmark.costs import reading, reading_run
from gp_mapping.mapping.beginning.renewing import RenewableMap


def test_cells_are_counted_in_place_of_a_map(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(RenewableMap, "admit", RenewableMap.admit)  # put back afterwards
    reading_run.main(str(reading.write_drive(tmp_path / "bag", 4, "mcap")))
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["samples"] == 199 and 5 < len(found["cells"]) < 30
