"""Samples of several bags: where most messages are in another frame than the first bag's, its samples are void."""

import numpy as np
import pytest
import torch
from any_bag import NS, header, make, transform
from any_bag import write_bag as write_any

from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.session import MapSession
from gp_mapping.recording.bag import BagError, read_messages
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings

NAMES = {"measurement": None, "pose": None}
HELD = {"learn_hyperparameters": False, "lengthscale": 0.6}


def write_bag(path, start, count, frame, sensor="magnetometer"):
    """A straight drive at 20 Hz; poses in this frame, measurements in that of the sensor."""
    with BagWriter(path) as bag:
        for i in range(count):
            stamp = round((start + i / 20.0) * 1e9)
            bag.odometry(stamp, (0.02 * i, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), frame=frame)
            bag.magnetic_field(stamp, (0.0, 0.0, (45.0 + 3.0 * np.sin(0.1 * i)) * 1e-6), sensor)
    return path


@pytest.fixture(params=["poses", "measurements"])
def bags(request, tmp_path):
    """60 samples, then 150 of which poses or measurements are in another frame."""
    first, then = (
        (("elsewhere", "imu"), ("odom", "imu"))
        if request.param == "poses"
        else (("odom", "elsewhere"), ("odom", "imu"))
    )
    return [
        write_bag(tmp_path / "short", 1000.0, 60, *first),
        write_bag(tmp_path / "long", 2000.0, 150, *then),
    ]


def rows(batches):
    return [
        (new_pass, samples.stamp.tolist(), samples.x.tolist(), samples.y.tolist())
        for new_pass, samples in batches
    ]


def mapped(bags, settings):
    """The map of the bags, read as the commands read them, and its intake."""
    intake, session = Intake(), MapSession(settings)
    for _ in ingest_batches(
        samples_of(plan_bags(bags, intake.settings, NAMES), intake, ""), session, intake.drops
    ):
        pass
    ingest_remaining(session, intake.drops)
    return session, intake


def test_samples_in_the_frame_of_the_few_are_not_handed_out(bags):
    intake, alone = Intake(), Intake()
    found = rows(samples_of(plan_bags(bags, intake.settings, NAMES), intake, ""))
    expected = rows(samples_of(plan_bags(bags[1:], alone.settings, NAMES), alone, ""))
    assert found == expected and intake.samples == alone.samples == 150
    assert intake.drops.measurements == 60 and any(
        "most are in" in text for text in intake.warnings
    )


def test_a_worker_that_goes_on_with_the_reading_has_no_void_samples_either(bags):
    """`taken` says that the caller has had everything; while samples are kept back, it has not."""
    intake, told, had = Intake(), [], []
    for _, samples in samples_of(
        plan_bags(bags, intake.settings, NAMES),
        intake,
        "",
        together=50,
        taken=lambda seen: told.append((seen, sum(had), intake.samples)),
    ):
        had.append(len(samples))
    assert sum(had) == 150 and all(got == given for _, got, given in told)


def test_a_live_map_of_the_same_messages_is_the_same(bags):
    settings = MapSettings(max_inducing=60, resolution=0.1, **HELD)
    offline, intake = mapped(bags, settings)

    live = MapSession(settings)
    worker = MapWorker(live, Intake(IntakeSettings()), queue_size=10_000)
    worker.start()
    for bag in bags:
        (plan,) = plan_bags(bag, intake.settings, NAMES)
        for topic, stamp, message in read_messages(bag, list(plan.roles)):
            assert worker.put(plan.roles[topic], message, stamp)
    assert worker.stop(timeout=60)

    x = torch.rand(30, 2, dtype=torch.float64) * 3
    told, other = offline.predict(x), live.predict(x)
    assert torch.equal(told.mean, other.mean) and torch.equal(told.variance, other.variance)
    reports = [session.report() | {"revision": 0} for session in (offline, live)]
    assert reports[0] == reports[1] and reports[0]["samples"] == 150
    assert worker.status.drops == intake.drops.as_dict()
    assert worker.status.used == intake.samples


def test_what_the_map_refuses_is_counted_after_a_change_of_frame(bags):
    """An exact map that is full; the counter that was handed out before is the intake's to the end."""
    settings = MapSettings(model="exact", max_exact_samples=10, resolution=0.1, **HELD)
    session, intake = mapped(bags, settings)
    assert session.refused > 0 and intake.drops[DropReason.REFUSED] == session.refused
    assert session.raw_count + session.refused == intake.samples == 150


def test_bags_that_end_before_the_frames_are_settled_are_handed_out(tmp_path):
    intake, bag = Intake(), write_bag(tmp_path / "short", 1000.0, 60, "odom")
    samples = [len(s) for _, s in samples_of(plan_bags(bag, intake.settings, NAMES), intake, "")]
    assert sum(samples) == 60 and intake.is_final


def test_a_bag_that_is_given_twice_is_refused(tmp_path):
    """By another spelling, too: it was a second pass, and its measurements counted twice."""
    bag = write_bag(tmp_path / "drive", 1000.0, 3, "odom")
    settings = IntakeSettings()
    assert len(plan_bags([bag], settings, NAMES)) == 1
    for again in (bag, str(bag), bag / ".." / "drive"):
        with pytest.raises(BagError, match="given twice"):
            plan_bags([bag, again], settings, NAMES)


TF = "tf2_msgs/msg/TFMessage"


def mounted(path, *links, count=120):
    """A drive of 6 s along x; links: (record time after its start in s, lever arm in m)."""
    mag, odom = "sensor_msgs/msg/MagneticField", "nav_msgs/msg/Odometry"
    entries = []
    for i in range(count):
        stamp = 1000 * NS + i * NS // 20
        at = {"position": {"x": 0.02 * i}, "orientation": {"w": 1.0}}
        pose = make(
            odom, header=header(stamp, "odom"), child_frame_id="base_link", pose={"pose": at}
        )
        value = make(mag, header=header(stamp, "imu"), magnetic_field={"z": 45e-6 + i * 1e-8})
        entries += [("/odom", odom, stamp, pose), ("/mag", mag, stamp + 1, value)]
    for after, lever in links:
        stamp = round((1000 + after) * NS) + 2
        link = transform(stamp, "base_link", "imu", (lever, 0.0, 0.0))
        entries.append(("/tf_static", TF, stamp, make(TF, transforms=[link])))
    return write_any(path, entries)


def placed(bags):
    """Stamps after the start and places along x, (N,) each, and the intake that gave them."""
    intake = Intake(IntakeSettings(mounting="tf"))
    plans = plan_bags(bags, intake.settings, NAMES)
    parts = [samples for _, samples in samples_of(plans, intake, "")]
    stamps = np.concatenate([part.stamp.numpy() for part in parts])
    return stamps - 1000.0, np.concatenate([part.x.numpy()[:, 0] for part in parts]), intake


def test_a_static_link_that_was_recorded_late_holds_from_the_start(tmp_path):
    """A recorder gets /tf_static, which is transient local, when it has found its publisher."""
    early = placed(mounted(tmp_path / "early", (-1.0, 0.5)))
    late = placed(mounted(tmp_path / "late", (7.0, 0.5)))
    np.testing.assert_array_equal(late[:2], early[:2])
    assert len(late[0]) > 115 and not late[2].drops.measurements
    # each message is counted once, where it was recorded
    assert late[2].received["tf"] == 1


def test_a_static_link_that_changes_holds_from_where_it_changes(tmp_path):
    first, second = mounted(tmp_path / "bag", (2.0, 0.5), (4.0, 0.9)), mounted(tmp_path / "next")
    stamps, places, _ = placed([first])
    levers = places - 0.4 * stamps
    np.testing.assert_allclose(levers[stamps < 3.99], 0.5, atol=1e-9)
    np.testing.assert_allclose(levers[stamps > 4.01], 0.9, atol=1e-9)

    # the next bag has none of its own, and the robot is as it was
    _, places, intake = placed([first, second])
    assert not intake.drops[DropReason.NO_TRANSFORM] and len(places) > len(stamps)


def test_each_bag_begins_with_its_own_static_links(tmp_path):
    """Of two days: in between the sensor was moved, and the second recorder got /tf_static late."""
    bags = [mounted(tmp_path / "one", (0.0, 0.5)), mounted(tmp_path / "two", (3.0, 0.9))]
    stamps, places, _ = placed(bags)
    levers = (places - 0.4 * stamps)[np.argmax(np.diff(stamps) < 0) + 1 :]
    np.testing.assert_allclose(levers, 0.9, atol=1e-9)


def test_a_static_link_that_is_no_transform_leaves_the_one_after_it(tmp_path):
    _, places, intake = placed(mounted(tmp_path / "bag", (2.0, float("nan")), (4.0, 0.5)))
    assert len(places) > 115 and intake.drops[DropReason.POSE_NOT_FINITE] == 1
    np.testing.assert_allclose(places[0], 0.5, atol=1e-9)


@pytest.mark.parametrize(
    ("field_topic", "pose_topic", "said"),
    [
        ("/robot1/mag", "/robot1/odom", False),
        ("/robot1/mag", "/robot2/odom", True),
        ("/mag", "/robot2/odom", False),
        ("/robot3/mag", "/robot2/odom", False),
    ],
)
def test_one_robots_measurements_with_anothers_poses(tmp_path, field_topic, pose_topic, said):
    """Whose own poses are in the bag, too: nothing was said."""
    stamp, field, pose = 10 * NS, "sensor_msgs/msg/MagneticField", "nav_msgs/msg/Odometry"
    entries = [
        (topic, kind, stamp, make(kind, header=header(stamp, "f")))
        for topic, kind in [
            ("/robot1/odom", pose),
            ("/robot2/odom", pose),
            *((f"{robot}/mag", field) for robot in ("/robot1", "", "/robot3")),
        ]
    ]
    names = {"measurement": field_topic, "pose": pose_topic}
    plans = plan_bags(write_any(tmp_path / "two", entries), IntakeSettings(), names)
    intake = Intake(IntakeSettings())
    list(samples_of(plans, intake, "map"))
    notes = [text for text in intake.warnings if "of two robots?" in text]
    assert len(notes) == said and all("--odometry-topic /robot1/odom" in text for text in notes)
