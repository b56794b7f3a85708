"""What a session says of its map: of its file, and of what was measured since."""

from types import SimpleNamespace as Namespace

import pytest

from gp_mapping.intake.sensors.setup import SETUP
from gp_mapping.intake.sensors.sketch import MEASURED
from gp_mapping.runtime.origin import Origin


class Intake:
    """What Origin asks of an intake, and what it told it."""

    def __init__(self):
        self.about = {"frame": "odom", "sensor": "field", SETUP: "as read now"}
        self.sketch = Namespace(as_text=lambda: "a sketch")
        self.told = []

    def expect_none_of(self, text):
        self.told.append(("none of", text))

    def expect(self, frame, sensor_frame):
        self.told.append(("frame", frame, sensor_frame))

    def make_final(self):
        self.told.append("final")


@pytest.mark.parametrize(
    ("about", "cells", "told"),
    [
        ({}, 0, []),
        ({}, 5, ["final"]),
        ({"frame": "map", "sensor_frame": "nose"}, 5, [("frame", "map", "nose")]),
        ({"frame": "map"}, 5, [("frame", "map", "")]),
    ],
)
def test_a_map_that_is_in_a_frame_stays_in_it(about, cells, told):
    intake = Intake()
    Origin(intake).expect(Namespace(about=about, cell_count=cells))
    assert intake.told == [("none of", ""), *told]
    intake = Intake()
    Origin(intake).expect(Namespace(about=about | {MEASURED: "its sketch"}, cell_count=cells))
    assert intake.told == [("none of", "its sketch"), *told]


def test_a_file_is_right_but_for_the_setup_of_what_comes_first():
    intake = Intake()
    origin, session = Origin(intake), Namespace(about={"frame": "map", SETUP: "of the file"})
    origin.add_samples(session)
    assert session.about == {"frame": "map", "sensor": "field", SETUP: "as read now"}

    intake.about = intake.about | {"sensor": "another", SETUP: "of later"}
    origin.add_samples(session)
    assert session.about["sensor"] == "field" and session.about[SETUP] == "as read now"

    session.about = {}  # cleared
    origin.add_samples(session)
    assert session.about == intake.about


def test_what_was_measured_is_noted_once_and_not_before_it_is():
    origin, session = Origin(Intake()), Namespace(about={"frame": "odom"}, cell_count=0)
    origin.note_measured(session)
    assert MEASURED not in session.about
    origin.add_samples(session)
    origin.note_measured(session)
    assert session.about.pop(MEASURED) == "a sketch"
    origin.note_measured(session)
    assert MEASURED not in session.about

    origin.add_samples(session)
    origin.expect(session)  # another session has measured nothing more yet
    origin.note_measured(session)
    assert MEASURED not in session.about
