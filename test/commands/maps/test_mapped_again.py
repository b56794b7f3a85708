"""A bag that is in a map already is not added to it by --resume, and is no held-out test of it."""

import json
import shutil

import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from small_drive import GIVEN, lanes, write_drive
from split_bag import joined

from gp_mapping import cli
from gp_mapping.commands import map as map_command
from gp_mapping.mapping.scoring.change import Change
from gp_mapping.recording.bag import STORE, BagError, read_raw
from gp_mapping.recording.mapped import mapped_before, note_mapped, require_distinct
from gp_mapping.recording.replay import plan_bags
from gp_mapping.settings.intake import IntakeSettings

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


def test_where_the_field_has_changed_since_is_said(tmp_path, capsys, monkeypatch):
    """Of these bags: what a day before has found is in the map already."""
    ingest_remaining = map_command.ingest_remaining

    def changed(session, drops):
        found = Change(float(session.scores.change_count), 0.4, 2003.0, 3e-6)
        session.scores.changes.append(found)
        session.scores.change_count += 1
        ingest_remaining(session, drops)

    monkeypatch.setattr(map_command, "ingest_remaining", changed)
    said, more = [], [*SETTINGS]
    for i, name in enumerate("ab"):
        write_drive(tmp_path / name, lanes(count=1), 1000.0 * (i + 1), rate=4.0, seed=i)
        words = ["map", str(tmp_path / name), "--output", str(tmp_path / f"day_{name}"), *more]
        assert cli.main(words) == 0
        said += [line for line in capsys.readouterr().out.splitlines() if "changed" in line]
        more = ["--resume", str(tmp_path / "day_a"), "--suggest", "0"]
    assert said == [
        f"field changed while mapping: 1 times, at ({x}, 0.4) +3.0 µT" for x in ("0.0", "1.0")
    ]
    report = json.loads((tmp_path / "day_b" / "report.json").read_text())
    (change,) = report["changes"]
    assert change.pop("sure") is True
    assert change == {"x": 1.0, "y": 0.4, "stamp": 2003.0, "error": 3.0}
    assert report["map"]["changes"] == 2


def test_a_check_says_that_its_bag_is_in_the_map(tmp_path, capsys):
    a = str(tmp_path / "a")
    write_drive(tmp_path / "a", lanes(count=1), rate=5.0)
    given = [*GIVEN, "--set", "learn_hyperparameters=false", "--json"]
    words = ["check", a, "--against", a, "--no-refits", "--output", str(tmp_path / "out"), *given]
    assert cli.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert any(text.startswith(f"--against: {a} is in the map") for text in told["explained"])


@pytest.mark.parametrize("words", [["map", "--workers", "1"], ["fit", "--workers", "1"], ["fit"]])
def test_every_command_that_maps_a_bag_notes_it(tmp_path, capsys, words):
    write_drive(tmp_path / "a", lanes(count=2), rate=5.0)
    a, first = (str(tmp_path / name) for name in ("a", "first"))
    command, *options = words
    given = SETTINGS if command == "map" else [*GIVEN, "--iterations", "1"]
    assert cli.main([command, a, "--output", first, "--test", a, *options, *given]) == 0
    assert f"warning: --test: {a} is in the map" in capsys.readouterr().out

    more = ["--resume", first, "--output", str(tmp_path / "second"), "--suggest", "0"]
    assert cli.main(["map", a, *more]) == 2
    error = capsys.readouterr().err
    assert "would count twice" in error and len(error.splitlines()) == 1


def split(bag, path):
    """The bag as a recorder splits it, with the first half of its messages in the first file."""
    messages = list(read_raw(bag))
    middle = messages[len(messages) // 2].stamp_ns
    for number, half in enumerate(
        (
            [m for m in messages if m.stamp_ns < middle],
            [m for m in messages if m.stamp_ns >= middle],
        )
    ):
        with Writer(
            path.parent / f"half{number}", version=9, storage_plugin=StoragePlugin.MCAP
        ) as writer:
            connections = {
                topic: writer.add_connection(topic, kind, typestore=STORE)
                for topic, kind in {m.topic: m.type for m in messages}.items()
            }
            for message in half:
                writer.write(connections[message.topic], message.stamp_ns, message.data)
    return joined(path, [path.parent / f"half{number}" for number in (0, 1)])


@pytest.mark.parametrize("first, then", [(0, None), (1, None), (None, 0), (None, 1)])
def test_one_file_of_a_bag_that_was_split_is_recognised(tmp_path, first, then):
    """None stands for the whole bag."""
    write_drive(tmp_path / "a", lanes(count=2), rate=5.0)
    bag = split(tmp_path / "a", tmp_path / "bag")
    files = sorted(bag.glob("*.mcap"))
    assert len(files) == 2
    one, other = (
        plan_bags([bag if k is None else files[k]], IntakeSettings(), {}) for k in (first, then)
    )
    about = {}
    note_mapped(one, about)
    assert mapped_before(other, about) == other
    assert not mapped_before(plan_bags([tmp_path / "half0"], IntakeSettings(), {}), {})


@pytest.mark.parametrize("command", ["map", "fit", "check"])
def test_a_copy_beside_its_bag_is_refused(tmp_path, capsys, command):
    write_drive(tmp_path / "a", lanes(count=1), rate=5.0)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    a, copy = (str(tmp_path / name) for name in ("a", "copy"))
    assert cli.main([command, a, copy, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"{copy}: its measurements are those of {a}" in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_copies_in_a_fleet_count_once_and_that_is_said(tmp_path, capsys):
    for i, name in enumerate("ab"):
        write_drive(tmp_path / name, lanes(0.3 * i, count=1), 1000.0 * (i + 1), rate=5.0, seed=i)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    bags = [str(tmp_path / name) for name in ("a", "copy", "b")]
    words = ["--output", str(tmp_path / "out"), "--workers", "1", *SETTINGS, "--json"]
    assert cli.main(["map", *bags, *words]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert result["fleet"]["mapped"] == 2 and list(result["fleet"]["failed"]) == [bags[1]]
    assert f"left out: {bags[1]}: its measurements are those of {bags[0]}" in shown.err


def cut(path, messages, late_ns=0, storage=StoragePlugin.MCAP):
    """A bag of some messages, as another machine receives them."""
    with Writer(path, version=9, storage_plugin=storage) as writer:
        types = {raw.topic: raw.type for raw in messages}
        connections = {
            topic: writer.add_connection(topic, kind, typestore=STORE)
            for topic, kind in types.items()
        }
        for raw in messages:
            writer.write(connections[raw.topic], raw.stamp_ns + late_ns, bytes(raw.data))
    return path


@pytest.mark.parametrize("storage", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_recorders_that_have_run_at_once_are_noticed(tmp_path, storage):
    """The second began within the first: what both hold counted twice, unsaid."""
    write_drive(tmp_path / "whole", lanes(0.0, count=2), 1000.0, rate=5.0)
    stored = list(read_raw(tmp_path / "whole"))
    middle = len(stored) // 2

    first = cut(tmp_path / "first", stored[: middle + 40], storage=storage)
    # as another machine receives it
    within = cut(tmp_path / "within", stored[middle:], 3 * 10**8, storage)
    after = cut(tmp_path / "after", stored[middle + 40 :], storage=storage)

    def plans(*bags):
        return plan_bags(list(bags), IntakeSettings(), {})

    require_distinct(plans(first, after))
    for bags in ((first, within), (within, first)):
        with pytest.raises(BagError, match=r"within: its first measurements are in .*first, too"):
            require_distinct(plans(*bags))


@pytest.fixture
def two_recorders(tmp_path):
    """Bags of recorders that have run at once for a while, of what came after the first, and a part of that."""
    write_drive(tmp_path / "whole", lanes(0.0, count=4), 1000.0, rate=5.0)
    stored = list(read_raw(tmp_path / "whole"))
    middle = len(stored) // 2
    parts = {
        "one": stored[: middle + 40],
        "two": stored[middle:],
        "rest": stored[middle + 40 :],
        "part": stored[middle + 80 :],
    }
    return [str(cut(tmp_path / name, part)) for name, part in parts.items()]


def test_what_two_recorders_have_counts_once_in_a_fleet(tmp_path, capsys, two_recorders):
    words = ["--output", str(tmp_path / "out"), "--workers", "1", *SETTINGS, "--json"]
    one, two, rest, part = two_recorders
    assert cli.main(["map", one, two, rest, *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["bag"] for row in result["fleet"]["bags"]] == [one, rest]
    assert f"measurements of it are in {one}, too" in result["fleet"]["failed"][two]

    # the map knows the measurements of all its bags
    more = ["--resume", str(tmp_path / "out"), "--output", str(tmp_path / "more")]
    assert cli.main(["map", part, *more, "--suggest", "0"]) == 2
    assert f"{part}: measurements of it are in the map already" in capsys.readouterr().err


def test_what_two_recorders_have_counts_once_from_day_to_day(tmp_path, capsys, two_recorders):
    """By --resume, in a test, and where maps are merged."""
    one, two, rest, part = two_recorders
    words = [*SETTINGS, "--json"]
    first, other = str(tmp_path / "first"), str(tmp_path / "other")
    assert cli.main(["map", one, "--output", first, *words]) == 0
    assert not any("count twice" in t for t in json.loads(capsys.readouterr().out)["warnings"])

    more = ["--resume", first, "--output", str(tmp_path / "second"), "--suggest", "0", "--json"]
    assert cli.main(["map", two, *more]) == 2
    error = capsys.readouterr().err
    assert f"{two}: measurements of it are in the map already" in error
    assert len(error.splitlines()) == 1 and not (tmp_path / "second").exists()

    assert cli.main(["map", rest, "--test", one, *more]) == 0  # held by the map that goes on
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert not any("count twice" in text for text in warnings)
    assert any(f"--test: {one} is in the map" in text for text in warnings)

    assert cli.main(["map", two, "--test", one, "--output", other, *words]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("some of its measurements are in the map" in text for text in warnings)
    both = str(tmp_path / "sum")
    assert cli.main(["merge", first, other, "--output", both]) == 2
    assert "hold measurements of one recording" in capsys.readouterr().err

    assert cli.main(["map", rest, "--output", other, *SETTINGS]) == 0
    assert cli.main(["merge", first, other, "--output", both]) == 0
    more = ["--resume", both, "--output", str(tmp_path / "third"), "--suggest", "0"]
    assert cli.main(["map", part, *more]) == 2
    assert f"{part}: measurements of it are in the map already" in capsys.readouterr().err


def test_robots_that_measured_at_once_are_two_recordings(tmp_path):
    for seed, name in enumerate("ab"):
        write_drive(tmp_path / name, lanes(0.3 * seed, count=1), 1000.0, rate=5.0, seed=seed)
    require_distinct(plan_bags([tmp_path / "a", tmp_path / "b"], IntakeSettings(), {}))
