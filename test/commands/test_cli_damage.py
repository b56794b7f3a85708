"""What is damaged in a bag costs itself alone, and names are any bytes."""

import json
import os
import re

import pytest
from pictures import full_pictures
from small_drive import GIVEN, lanes, write_drive

from benchmark.faults.command import run_command
from gp_mapping import cli
from gp_mapping.recording.bag import pass_over, read_raw

# ---- one damaged message costs one message --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(bag, tmp_path_factory):
    """The drive with three fields and one pose whose bytes end too soon, and where it is."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    from gp_mapping.recording.bag import STORE, read_raw

    path, made, seen = tmp_path_factory.mktemp("damaged") / "drive", {}, {}
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for raw in read_raw(bag):
            if raw.topic not in made:
                made[raw.topic] = writer.add_connection(raw.topic, raw.type, typestore=STORE)
            seen[raw.topic] = n = seen.get(raw.topic, 0) + 1
            cut = n in (20, 50, 80) if raw.topic == "/magnetic_field" else n == 100
            writer.write(
                made[raw.topic], raw.stamp_ns, bytes(raw.data)[:11] if cut else bytes(raw.data)
            )
    return path, seen


def test_messages_that_cannot_be_read_are_counted_and_named_and_the_others_are_mapped(
    damaged, tmp_path, capfd
):
    path, seen = damaged
    assert (
        cli.main(["map", str(path), "--output", str(tmp_path / "o"), "--suggest", "0", *GIVEN]) == 0
    )
    said = capfd.readouterr().out
    report = json.loads((tmp_path / "o" / "report.json").read_text())
    assert report["dropped"]["unreadable"] == 3 and report["dropped"]["pose_unreadable"] == 1
    assert report["received"] == {
        "magnetic_field": seen["/magnetic_field"],
        "odometry": seen["/odometry"],
    }
    assert report["samples"] + report["dropped_measurements"] == seen["/magnetic_field"]
    assert report["samples"] >= seen["/magnetic_field"] - 3 - 4, (
        "a missing pose costs its own bracket at most"
    )
    assert "dropped 3: measurement whose recorded bytes" in said
    assert "/magnetic_field at " in said and "cannot be read" in said, "the first ones are named"

    assert (
        cli.main(["check", str(path), "--no-refits", "--output", str(tmp_path / "c"), *GIVEN]) == 0
    )
    assert "cannot be read" in capfd.readouterr().out
    assert cli.main(["calibrate", str(path), "--output", str(tmp_path / "i.yaml")]) in (0, 2)
    assert "messages left out: 3, the first because" in capfd.readouterr().err


def test_a_bag_of_nothing_but_damage_is_refused_in_one_bounded_line(bag, tmp_path):
    """Many of them, of a topic with a long name: counted all, named a few, and no text grows with them."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    from gp_mapping.recording.bag import STORE

    topic = "/" + "m" * 5000
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        field = writer.add_connection(topic, "sensor_msgs/msg/MagneticField", typestore=STORE)
        odometry = writer.add_connection("/odometry", "nav_msgs/msg/Odometry", typestore=STORE)
        for i in range(400):
            for connection in (field, odometry):
                writer.write(connection, 10**18 + i, b"\x00\x01\x00\x00\xff")
    ending = run_command(["map", str(tmp_path / "bag"), "--output", str(tmp_path / "o")])
    assert ending.refused and ending.code == 2, ending
    said = ending.said
    assert "400 unreadable" in said and "400 pose_unreadable" in said and len(said) < 2500, len(
        said
    )


@pytest.mark.parametrize("command", ["report", "fit"])
def test_a_recording_whose_robot_lost_its_power_is_read_as_far_as_it_goes(tmp_path, capfd, command):
    path = tmp_path / "cut.mcap"
    write_drive(tmp_path / "whole", lanes(count=2), rate=20.0)
    stored = next((tmp_path / "whole").glob("*.mcap")).read_bytes()
    path.write_bytes(stored[: len(stored) * 2 // 3])
    output = tmp_path / ("o.html" if command == "report" else "o")
    more = ["--suggest", "0", "--no-refits"] if command == "report" else []
    assert cli.main([command, str(path), "--output", str(output), *more, *GIVEN]) == 0
    said = output.read_text() if command == "report" else capfd.readouterr().out
    (n,) = {int(n) for n in re.findall(r"damaged, (\d+) messages of it were read, the last", said)}
    assert (
        n == sum(1 for _ in read_raw(path, on_loss=pass_over)) and said.count("cut off in a") == 1
    )


# ---- names are any bytes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"drive_\xff\xfe a$\\frac{b$", b"$a_{b", "漢字 $x$_^".encode()])
def test_names_of_any_bytes_end_in_pictures(bag, tmp_path, name):
    """A title that is no UTF-8, or that looks like mathematics, is a title."""
    odd = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    write_drive(odd, lanes(0.1, count=1), 2000.0, rate=20.0, seed=1)
    for words in (
        # the bag that tests is named in the picture
        ["check", bag, "--against", odd, "--no-refits", "--output", tmp_path / "c"],
        ["report", odd, "--no-refits", "--suggest", "0", "--output", tmp_path / "r.html"],
    ):
        with full_pictures():
            ending = run_command([*words, *GIVEN])
        assert ending.code == 0 and not ending.wrong, ending
    (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_unit_is_a_name_as_well(bag, tmp_path):
    ending = run_command(
        [
            "map",
            bag,
            "--output",
            tmp_path / "o",
            "--suggest",
            "0",
            "--set",
            "field_unit=$a_{b$",  # one $ alone is no mathematics
            *GIVEN,
        ]
    )
    assert ending.code == 0 and not ending.wrong, ending
