"""A bag that is in a map already is not added to it by --resume, and is no held-out test of it."""

import json
import shutil

from small_drive import GIVEN, lanes, write_drive

from gp_mapping import cli

SETTINGS = [*GIVEN, "--set", "learn_hyperparameters=false", "--suggest", "0"]


def test_a_mapped_bag_is_refused_by_resume_and_named_by_test(tmp_path, capsys):
    """It counted twice, unsaid; also as a copy under another name."""
    for i, name in enumerate("ab"):
        write_drive(tmp_path / name, lanes(0.3 * i, count=1), 1000.0 * (i + 1), rate=5.0, seed=i)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    a, b, copy, first = (str(tmp_path / name) for name in ("a", "b", "copy", "first"))

    words = ["--output", first, *SETTINGS, "--json"]
    assert cli.main(["map", a, "--test", copy, *words]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("copy is in the map" in text for text in warnings)

    more = ["--resume", first + "/map.gpm", "--output", str(tmp_path / "second"), "--json"]
    assert cli.main(["map", copy, *more, "--suggest", "0"]) == 2
    assert "would count twice" in capsys.readouterr().err and not (tmp_path / "second").exists()

    # another day's bag goes on, and the first one is remembered
    own = ["--resume", first, "--output", first, "--json", "--suggest", "0"]
    assert cli.main(["map", b, "--test", a, *own]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("is in the map" in text for text in warnings)
    # its own folder: nothing is lost there
    assert not any("held another map" in text for text in warnings)

    # over it goes what does not hold it, and that is said
    assert cli.main(["map", a, *words]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any(text.startswith(f"{first}/map.gpm held another map, ") for text in warnings)
    assert warnings == json.loads((tmp_path / "first" / "report.json").read_text())["warnings"]


def test_fitted_maps_those_of_workers_and_checks_know_their_bags_too(tmp_path, capsys):
    """`map --resume` of what `fit` or `--workers` had written counted the bag twice, and a check on it was a test."""
    a, again = str(tmp_path / "a"), str(tmp_path / "again")
    write_drive(tmp_path / "a", lanes(count=1), rate=5.0)
    given = [*GIVEN, "--set", "learn_hyperparameters=false", "--json"]

    for words in (["fit", a, "--iterations", "1"], ["map", a, "--workers", "1", "--suggest", "0"]):
        folder = str(tmp_path / words[0])
        test = ["--test", a, "--output", folder]
        assert cli.main([*words, *test, *GIVEN, "--json"]) == 0
        warnings = json.loads(capsys.readouterr().out)["warnings"]
        assert any(text.startswith(f"--test: {a} is in the map") for text in warnings)
        assert cli.main(["map", a, "--resume", folder, "--output", again, "--suggest", "0"]) == 2
        assert "would count twice" in capsys.readouterr().err

    words = ["check", a, "--against", a, "--no-refits", "--output", again, *given]
    assert cli.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert any(text.startswith(f"--against: {a} is in the map") for text in told["explained"])
