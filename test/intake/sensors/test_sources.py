"""One of several that share a topic is chosen by its name; where none is, a sentence says so."""

from types import SimpleNamespace

import numpy as np
import pytest
from intake_messages import header

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.sensors.adaptor import make_adaptor
from gp_mapping.intake.sensors.value_field import number_at
from gp_mapping.settings.intake import IntakeSettings

NAMES = ["de:ad:00", "be.ef:01", "ca fe:02"]


class Point(SimpleNamespace):
    """An access point; the class attribute is where rosbags' messages have their fields."""

    __dataclass_fields__ = dict.fromkeys(["bssid", "band", "rssi"])


class Message(Point):
    """As rosbags has it."""

    __dataclass_fields__ = dict.fromkeys(["header", "points", "bssid", "state", "rssi"])


def adaptor_of(path):
    return make_adaptor(IntakeSettings(sensor="scalar", value_field=path))


def scans(rng, count=60, ordered=False):
    """Access points by strength, each only where it is heard; and the strength of each."""
    for i in range(count):
        rssi = dict(zip(NAMES, rng.integers(-90, -40, 3).tolist()))
        heard = sorted(
            [name for name in NAMES if rssi[name] > -80], key=lambda n: 0 if ordered else -rssi[n]
        )
        points = [Point(bssid=n, band="5 GHz", rssi=rssi[n]) for n in heard]
        yield Message(header=header(i, "wifi"), points=points), rssi


@pytest.mark.parametrize("name", NAMES)
def test_an_element_is_chosen_by_what_it_is_called(name):
    adaptor = adaptor_of(f"points[bssid={name}].rssi")
    for message, rssi in scans(np.random.default_rng(1)):
        read = adaptor.read(message, 0)
        expected = DropReason.NOT_CHOSEN if rssi[name] <= -80 else (rssi[name],)
        assert (read if isinstance(read, DropReason) else read.values) == expected
    assert not adaptor.notes


@pytest.mark.parametrize("name", NAMES)
def test_of_messages_that_take_turns_those_of_one_are_chosen(name):
    adaptor = adaptor_of(f"rssi[bssid={name}]")
    for i in range(30):
        message = Message(bssid=NAMES[i % 3], rssi=i, state="ok", points=[])
        read = adaptor.read(message, 0)
        chosen = NAMES[i % 3] == name
        assert read.values == (i,) if chosen else read is DropReason.NOT_CHOSEN
    assert not adaptor.notes


def test_a_name_that_never_comes_is_answered_with_those_that_do():
    adaptor = adaptor_of("points[bssid=other].rssi")
    for message, _ in scans(np.random.default_rng(2)):
        assert adaptor.read(message, 0) is DropReason.NOT_CHOSEN
    (note,) = adaptor.notes
    assert "has bssid 'other'" in note and all(repr(name) in note for name in NAMES)


def test_whichever_stands_first_in_an_array_is_said_to_be_of_several():
    adaptor = adaptor_of("points.0.rssi")
    for message, _ in scans(np.random.default_rng(3)):
        if message.points:
            adaptor.read(message, 0)
    (note,) = adaptor.notes
    assert note.startswith("value_field points.0.rssi takes what stands there")
    # what the sentence advises can be written
    path = note.split("value_field: ")[1].split(" takes")[0]
    IntakeSettings(sensor="scalar", value_field=path)
    assert path in {f"points[bssid={name}].rssi" for name in NAMES}


def test_messages_of_several_in_turn_are_said_to_be():
    adaptor = adaptor_of("rssi")
    for i in range(60):
        adaptor.read(Message(bssid=NAMES[i % 3], rssi=i, state="ok", points=[]), 0)
    (note,) = adaptor.notes
    assert "several bssid in turn" in note and "value_field: rssi[bssid=de:ad:00]" in note


@pytest.mark.parametrize("kind", ["state", "unique", "one", "fixed places", "alike"])
def test_texts_that_name_no_source_are_none(kind):
    """A state that lasts, a number of each message, one name, a fixed order, elements that read alike."""
    in_array = kind in ("fixed places", "alike")
    adaptor = adaptor_of("points.0.rssi" if in_array else "rssi")
    states = ["low", "ok"]
    for i in range(200):
        text = {"state": states[i // 20 % 2], "unique": str(i), "one": "ok"}.get(kind, "")
        bands = states if kind == "fixed places" else [states[i % 2]] * 2
        points = [Point(bssid=band, band="", rssi=i) for band in bands]
        adaptor.read(Message(bssid=text, rssi=i, state="ok", points=points), 0)
    assert not adaptor.notes


@pytest.mark.parametrize(
    "path", ["a[", "a[b]", "a[b=]", "[b=c]", "a[b=c]d", "a.[b=c]", "a..b", "a[b=c][d=e]"]
)
def test_brackets_that_do_not_choose_are_refused(path):
    with pytest.raises(ValueError, match="value_field: .* brackets that do not choose"):
        IntakeSettings(sensor="scalar", value_field=path)


def test_a_field_that_is_not_there_is_none():
    assert number_at(Message(points=[Point(rssi=1)]), "points[name=a].rssi") is None
    assert number_at(Message(rssi=1), "rssi[name=a]") is None
