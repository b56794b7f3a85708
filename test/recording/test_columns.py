"""Messages read as columns are what rosbags reads of each, and the samples of them are the same to the bit."""

import math
import random

import numpy as np
import pytest
from any_bag import header, make, write_bag

from gp_mapping.intake import Intake
from gp_mapping.intake.sensors.adaptor import ScalarAdaptor
from gp_mapping.intake.sensors.magnetic import MagneticField
from gp_mapping.intake.topics import feed
from gp_mapping.recording.bag import MAGNETIC_FIELD, ODOMETRY, STORE, read_messages
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.recording.cdr import columns_of
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.settings.intake import IntakeSettings

SECOND = 10**9
START = 1_700_000_000 * SECOND
NAMES = {"measurement": None, "pose": None}


def filled(kind, chance, text):
    """A message of that type with numbers by chance in every field."""
    values = []
    for _, (node, what) in STORE.fielddefs[kind][1]:
        if node.name == "NAME":
            values.append(filled(what, chance, text))
        elif node.name == "ARRAY":
            values.append(np.array([chance.uniform(-1e3, 1e3) for _ in range(what[1])]))
        elif what[0] == "string":
            values.append(text)
        else:
            values.append(
                chance.uniform(-1e3, 1e3) if "float" in what[0] else chance.randrange(256)
            )
    return STORE.types[kind](*values)


def fields(message, prefix=""):
    """Dotted name -> number, array or text of a message."""
    out = {}
    for name, _ in STORE.fielddefs[message.__msgtype__][1]:
        value = getattr(message, name)
        out |= (
            fields(value, f"{prefix}{name}.")
            if hasattr(value, "__msgtype__")
            else {prefix + name: value}
        )
    return out


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize(
    "kind",
    [
        MAGNETIC_FIELD,
        ODOMETRY,
        "sensor_msgs/msg/Range",
        "sensor_msgs/msg/Temperature",
        "geometry_msgs/msg/PoseWithCovarianceStamped",
        "std_msgs/msg/Float64",
    ],
)
def test_columns_are_what_each_message_says(kind, little):
    for length in range(
        10
    ):  # a frame's length shifts all that follows, by another padding each time
        chance, text = random.Random(length), "/ödom_frame"[:length]
        stored = [
            bytes(STORE.serialize_cdr(filled(kind, chance, text), kind, little_endian=little))
            for _ in range(5)
        ]
        columns = columns_of(stored, kind, STORE)
        for i, data in enumerate(stored):
            for name, value in fields(STORE.deserialize_cdr(data, kind)).items():
                mine = columns.texts[name] if isinstance(value, str) else columns.rows[name][i]
                assert np.array_equal(mine, value), (name, length)


def test_what_has_no_common_layout_is_not_read_together():
    def stored(frame, kind=MAGNETIC_FIELD):
        return bytes(STORE.serialize_cdr(filled(kind, random.Random(1), frame), kind))

    good = stored("imu")
    assert columns_of([good, good], MAGNETIC_FIELD, STORE) is not None
    assert (
        columns_of([good, stored("emu")], MAGNETIC_FIELD, STORE) is None
    )  # as long, another frame
    assert columns_of([good, stored("imu_link")], MAGNETIC_FIELD, STORE) is None
    assert (
        columns_of([good, b"\x00\x00" + good[2:]], MAGNETIC_FIELD, STORE) is None
    )  # another byte order
    assert (
        columns_of([b"\x00\x03" + good[2:]] * 2, MAGNETIC_FIELD, STORE) is None
    )  # a parameter list
    assert columns_of([good[:-1]] * 2, MAGNETIC_FIELD, STORE) is None  # cut off
    assert columns_of([good + bytes(4)] * 2, MAGNETIC_FIELD, STORE) is None
    assert columns_of([good + bytes(3)] * 2, MAGNETIC_FIELD, STORE) is not None  # padding
    for wrong in (b"imu!", b"\xff\xff\xff\x00"):  # no final zero; not UTF-8
        assert columns_of([good.replace(b"imu\x00", wrong)] * 2, MAGNETIC_FIELD, STORE) is None
    assert columns_of([good], "tf2_msgs/msg/TFMessage", STORE) is None
    assert columns_of([good], "my_msgs/msg/Unknown", STORE) is None


def write_drive(path, seed, n=1200, trouble=0.0005, covariance=False):
    """A drive at 50 and 30 Hz in which, now and then, something is out of the ordinary."""
    chance, nan = random.Random(seed), math.nan
    entries, shift = [], 0

    def odd(*choices):
        return chance.choice(choices) if chance.random() < trouble else None

    for i in range(n):
        shift += odd(3 * SECOND, SECOND // 3, -20 * SECOND) or 0
        stamp = START + i * SECOND // 50 + shift
        spoiled = trouble and chance.random() < 0.01
        value = chance.choice([nan, 1.0, math.inf]) if spoiled else chance.gauss(3e-5, 1e-6)
        wrong = odd(0, -SECOND // 5, 50 * SECOND, -90 * SECOND)
        spread = odd((nan,) * 9, (-1.0,) + (0.0,) * 8) or (
            (1e-14,) * 9 if covariance else (0.0,) * 9
        )
        entries.append(
            (
                stamp + chance.randrange(2 * 10**7),
                "field",
                stamp + (wrong or 0) if wrong != 0 else stamp - 1,
                (value, 1e-6 * math.sin(0.01 * i), 2e-5),
                odd("other", "") or "magnetometer",
                spread,
            )
        )
    shift, quiet = 0, 0
    for i in range(n * 3 // 5):
        shift += odd(3 * SECOND, -20 * SECOND) or 0
        quiet = max(quiet - 1, odd(20, 60) or 0)
        stamp, t = START + i * SECOND // 30 + shift, i / 30
        place = (odd(nan, 1e9) or 2.0 * math.cos(0.1 * t), math.sin(0.17 * t), 0.0)
        turn = odd((0.0,) * 4, (nan,) * 4, (2e3, 0.0, 0.0, 0.0)) or (
            0.02 * math.sin(t),
            0.0,
            math.sin(t),
            math.cos(t),
        )
        spread = odd((nan,) * 6, (1e9,) * 6, (2.0,) * 6) or (1e-4, 3e-4, 0.0, 0.0, 0.0, 0.0)
        if not quiet:
            entries.append(
                (
                    stamp + chance.randrange(4 * 10**7),
                    "pose",
                    stamp + (odd(1 - SECOND // 30, -SECOND) or 0),
                    place,
                    odd("map") or "odom",
                    spread,
                    turn,
                )
            )
    with BagWriter(path) as bag:
        last = 0
        for recorded, kind, stamp, values, frame, spread, *turn in sorted(
            entries, key=lambda e: e[0]
        ):
            last = max(last, recorded)
            if kind == "field":
                bag.magnetic_field(stamp, values, frame, spread)
            else:
                bag.odometry(stamp, values, turn[0], frame=frame, pose_covariance=spread)
    return path


def one_by_one(bag, intake, plan):
    """What each message by itself comes to: rows of (begins a pass, numbers)."""
    for topic, recorded, message in read_messages(bag, list(plan.roles)):
        feed(intake, plan.roles[topic], message, recorded)
    return rows(intake.batches(finish=True))


def rows(batches):
    out = []
    for new_pass, samples in batches:
        names = ("x", "y", "stamp", "sensor_variance", "position_variance", "heading")
        columns = [getattr(samples, name) for name in names]
        marks = [new_pass] + [False] * (len(samples) - 1)
        out += zip(
            marks, *([None] * len(samples) if c is None else map(str, c.tolist()) for c in columns)
        )
    return out


def outcome(intake):
    return (
        intake.drops.as_dict(),
        dict(intake.received),
        intake.warnings,
        intake.samples,
        intake.waiting,
        intake.about,
    )


@pytest.fixture
def stretches(monkeypatch):
    """How often messages were taken in together."""
    counted, original = [], Intake.add_recorded

    def take_together(self, *streams):
        found = original(self, *streams)
        counted.append(found is not None)
        return found

    monkeypatch.setattr(Intake, "add_recorded", take_together)
    return counted


SETTINGS = [
    {},
    {"field_component": "x", "sensor_offset_x": 0.3},
    {"max_speed": 5.0, "hard_iron_x": 1e-6},
    {"queue_size": 30, "max_wait": 0.5},
    {"pose_buffer_size": 400},
    {"field_component": "xyz"},
    {"use_heading": False, "use_pose_covariance": False},
    {"max_extrapolation": 0.2, "pass_gap": 0.1},
]


@pytest.mark.parametrize("seed", range(len(SETTINGS)))
def test_together_is_as_one_by_one(tmp_path, stretches, seed):
    """Whatever goes wrong in a drive: the same samples to the bit, the same drops, counts and warnings."""
    settings = IntakeSettings(**SETTINGS[seed])
    bag = write_drive(tmp_path / "bag", seed, covariance=seed % 2 == 1)
    (plan,) = plan_bags([bag], settings, NAMES)
    alone = Intake(settings)
    expected = one_by_one(bag, alone, plan)
    for together in (17, 250):
        intake = Intake(settings)
        assert rows(samples_of([plan], intake, "test", together)) == expected
        assert outcome(intake) == outcome(alone)
    assert len(expected) > 200 and sum(stretches) > 20


def test_an_orderly_drive_is_read_together(tmp_path, stretches):
    bag = write_drive(tmp_path / "bag", 0, trouble=0.0)
    (plan,) = plan_bags([bag], IntakeSettings(), NAMES)
    list(samples_of([plan], Intake(), "test", 300))
    assert stretches[2:] == [True] * 5  # after the first messages, which decide on frames


def late(stamp):
    """By how much a measurement is recorded after its stamp, s: late, on time for a while, and late again."""
    return 3.0 - 0.75 * min(max(stamp - 5.0, 0.0), 4.0) if stamp < 11.1 else 3.0


def test_streams_that_meet_within_a_stretch_have_met(tmp_path, stretches):
    """A measurement that leaps to where the poses are is a stray one by one, and so it is after a stretch."""
    recorded = [(i / 50, i / 50, ODOMETRY) for i in range(1100)]
    recorded += [(i / 50 + late(i / 50) + 1e-3, i / 50, MAGNETIC_FIELD) for i in range(950)]
    recorded += [(19.9805, 20.0, MAGNETIC_FIELD)]
    entries = []
    for when, t, kind in recorded:
        content: dict = (
            {"pose": {"pose": {"position": {"x": 0.1 * t}, "orientation": {"w": 1.0}}}}
            if kind == ODOMETRY
            else {"magnetic_field": {"z": 45e-6}}
        )
        message = make(kind, header=header(START + round(t * SECOND), "frame"), **content)
        entries.append((kind.rsplit("/")[-1], kind, START + round(when * SECOND), message))
    (plan,) = plan_bags([write_bag(tmp_path / "bag", entries)], IntakeSettings(), NAMES)
    alone, intake = Intake(), Intake()
    expected = one_by_one(tmp_path / "bag", alone, plan)
    assert rows(samples_of([plan], intake, "test", 600)) == expected
    assert outcome(intake) == outcome(alone)
    assert alone.drops.as_dict() == {"stray_stamp": 1} and len(expected) == 950
    assert any(stretches)


def test_an_adaptor_of_somebody_else_is_asked_for_each_message(tmp_path, stretches, monkeypatch):
    """Also one that takes over much of ours: what it changes must count."""

    class Halved(MagneticField):
        def values(self, readings, turn):
            y, noise = super().values(readings, turn)
            return 0.5 * y, noise

    monkeypatch.setattr(
        "gp_mapping.intake.pairing.make_adaptor", lambda settings, judge: Halved(settings)
    )
    bag = write_drive(tmp_path / "bag", 1, n=900, trouble=0.0)
    (plan,) = plan_bags([bag], IntakeSettings(), NAMES)
    found = rows(samples_of([plan], Intake(), "test", 100))
    assert not any(stretches) and found == one_by_one(bag, Intake(), plan)


@pytest.mark.parametrize(
    "sensor, kind",
    [
        ("range", "sensor_msgs/msg/Range"),
        ("scalar", "std_msgs/msg/Float64"),
        ("temperature", "sensor_msgs/msg/Temperature"),
    ],
)
def test_scalars_as_columns(sensor, kind):
    """Every value, range and variance that a message may say, good or not."""
    settings, chance = IntakeSettings(sensor=sensor), random.Random(3)
    odd = [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e30, 3.0, 20.0]
    stored = []
    for _ in range(300):
        message = filled(kind, chance, "frame")
        for name in ("data", "range", "temperature", "min_range", "max_range", "variance"):
            if hasattr(message, name):
                object.__setattr__(message, name, chance.choice(odd))
        stored.append(bytes(STORE.serialize_cdr(message, kind)))
    from gp_mapping.settings.sensors import SENSOR_TYPES

    adaptor = ScalarAdaptor(SENSOR_TYPES[sensor], settings)
    read = adaptor.read_columns(columns_of(stored, kind, STORE))
    for i, data in enumerate(stored):
        alone = adaptor.read(STORE.deserialize_cdr(data, kind), i)
        assert read.refused.get(i) == alone if i in read.refused else read.row(i, i) == alone
    assert 20 < len(read.refused) < 290


def test_measurements_are_known_however_they_are_read(tmp_path, stretches):
    """By one message after the other, or by columns: else a map would not know its own recording."""
    bag = write_drive(tmp_path / "bag", 1, n=900, trouble=0.0)
    (plan,) = plan_bags([bag], IntakeSettings(), NAMES)
    together, apart = Intake(), Intake()
    rows(samples_of([plan], together, "test", 100))
    assert any(stretches)
    one_by_one(bag, apart, plan)
    assert together.sketch.as_text() == apart.sketch.as_text() != ""
