"""`gp-mapping map` and `calibrate` on bags with other poses and other sensors than odometry and a magnetic field."""

import json
import math

import numpy as np
import pytest
import yaml
from any_bag import NS, header, make, transform, write_bag
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from scipy.spatial.transform import Rotation
from small_drive import GIVEN, field, lanes, write_drive

from gp_mapping import cli
from gp_mapping.recording.bag_writer import BagWriter

FAST = ["--set", "max_inducing=60", "--set", "resolution=0.1", "--set", "cell_length=0.2"]
FAST += ["--suggest", "0"]
START = 1000 * NS
LEFT = (0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5))


def drive(rate=20.0, speed=0.4):
    """Stamps (N,) ns and positions (N, 2) of a short drive."""
    corners = lanes(count=3)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    times = np.arange(0.0, along[-1] / speed, 1.0 / rate)
    return (START + np.round(times * NS).astype(int)).tolist(), np.stack(
        [np.interp(times * speed, along, corners[:, k]) for k in (0, 1)], 1
    )


def magnetic(stamp, value, frame="imu"):
    kind = "sensor_msgs/msg/MagneticField"
    return (
        "/mag",
        kind,
        stamp,
        make(
            kind,
            header=header(stamp, frame),
            magnetic_field={"x": 0.0, "y": 0.0, "z": float(value)},
        ),
    )


def odometry(stamp, place):
    kind = "nav_msgs/msg/Odometry"
    return (
        "/odometry",
        kind,
        stamp,
        make(
            kind,
            header=header(stamp, "odom"),
            child_frame_id="base_link",
            pose={
                "pose": {
                    "position": {"x": float(place[0]), "y": float(place[1]), "z": 0.0},
                    "orientation": {"w": 1.0},
                }
            },
        ),
    )


def run(capfd, *arguments):
    code = cli.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out, err


def mapped(capfd, bag, output, *options):
    code, out, err = run(capfd, "map", bag, "--output", output, "--json", *FAST, *options)
    assert code == 0, err
    with np.load(output / "map.npz") as grid:
        xs, ys = np.meshgrid(grid["x"], grid["y"])
        return json.loads(out), xs, ys, grid["mean"].copy()


def inside(xs, ys):
    return (xs > 0.2) & (xs < 1.8) & (ys > 0.1) & (ys < 0.7)


@pytest.fixture
def tf_bag(tmp_path):
    """Only TF: map→odom (turned left, far away) at 5 Hz, odom→base between the measurements, base→imu static."""
    stamps, places = drive()
    tf, entries = "tf2_msgs/msg/TFMessage", []

    def add(topic, stamp, *link):
        entries.append((topic, tf, stamp, make(tf, transforms=[transform(stamp, *link)])))

    add("/tf_static", START - NS, "base_link", "imu", (0.3, 0.0, 0.1))
    step = 50_000_000
    for k in range(-1, len(stamps) // 4 + 2):
        add("/tf", START + k * 4 * step, "map", "odom", (5.0, -3.0, 0.0), LEFT)
    for stamp, (x, y) in zip(stamps, places):
        # the imu is to be at (x, y): in odom's turned axes that is (y + 3, 5 - x), and the lever arm comes off
        add("/tf", stamp, "odom", "base_link", (y + 3.0 - 0.3, 5.0 - x, 0.0))
    entries += [
        magnetic(stamp + step // 2, field(*((a + b) / 2)))
        for stamp, a, b in zip(stamps, places, places[1:])
    ]
    return write_bag(tmp_path / "tf", entries), len(stamps) - 1


def test_a_bag_with_tf_only(tf_bag, tmp_path, capfd):
    bag, n = tf_bag
    result, xs, ys, mean = mapped(
        capfd, bag, tmp_path / "out", "--set", "pose_source=tf", "--set", "mounting=tf"
    )
    assert (
        result["samples"] == n
        and result["dropped"] == {}
        and result["received"]["magnetic_field"] == n
    )
    assert np.abs(mean - field(xs, ys))[inside(xs, ys)].max() < 0.5e-6
    code, _, err = run(
        capfd,
        "map",
        bag,
        "--output",
        tmp_path / "o",
        "--set",
        "pose_source=tf",
        "--set",
        "base_frame=body",
    )
    assert (
        code == 2
        and "does not connect 'map' and 'body'" in err
        and "'base_link', 'imu', 'map', 'odom'" in err
    )
    code, _, err = run(capfd, "map", bag, "--output", tmp_path / "o")
    assert code == 2 and "no messages of type nav_msgs/msg/Odometry" in err


def test_tf_that_was_not_recorded_is_said_before_the_work(tmp_path, capfd):
    bag = tmp_path / "drive"
    write_drive(bag, lanes(count=1))
    code, _, err = run(capfd, "map", bag, "--output", tmp_path / "o", "--set", "pose_source=tf")
    assert code == 2 and "there is no topic /tf" in err and not (tmp_path / "o").exists()


@pytest.mark.parametrize("source", ["pose", "pose_with_covariance"])
def test_pose_messages(source, tmp_path, capfd):
    stamps, places = drive()
    entries = [magnetic(s, field(*p)) for s, p in zip(stamps, places)]
    for s, (x, y) in zip(stamps, places):
        pose = {"position": {"x": float(x), "y": float(y), "z": 0.0}, "orientation": {"w": 1.0}}
        kind, content = (
            ("geometry_msgs/msg/PoseStamped", pose)
            if source == "pose"
            else ("geometry_msgs/msg/PoseWithCovarianceStamped", {"pose": pose})
        )
        entries.append(("/pose", kind, s, make(kind, header=header(s, "map"), pose=content)))
    bag = write_bag(tmp_path / "bag", entries)
    options = ["--set", f"pose_source={source}", "--pose-topic", "pose"]
    result, xs, ys, mean = mapped(capfd, bag, tmp_path / "out", *options)
    assert result["samples"] == len(stamps) and result["received"] == {
        "magnetic_field": len(stamps),
        source: len(stamps),
    }
    assert np.abs(mean - field(xs, ys))[inside(xs, ys)].max() < 0.5e-6


def test_poses_that_are_used_without_their_covariance_are_not_said_to_be_dropped(tmp_path, capfd):
    stamps, places = drive()
    entries = [magnetic(s, field(*p)) for s, p in zip(stamps, places)]
    kind = "geometry_msgs/msg/PoseWithCovarianceStamped"
    for s, (x, y) in zip(stamps, places):
        pose = {"position": {"x": float(x), "y": float(y), "z": 0.0}, "orientation": {"w": 1.0}}
        content = {"pose": pose, "covariance": np.full(36, np.nan)}
        entries.append(("/pose", kind, s, make(kind, header=header(s, "map"), pose=content)))
    bag = write_bag(tmp_path / "bag", entries)
    options = [*GIVEN, "--set", "pose_source=pose_with_covariance", "--suggest", "0"]
    code, said, _ = run(capfd, "map", bag, "--output", tmp_path / "out", *options)
    assert code == 0 and f"  used in part {len(stamps)}: pose whose covariance is NaN" in said


def warmth(x, y):
    return 20.0 + 2.0 * np.sin(1.5 * x) + y


@pytest.fixture
def temperature_bag(tmp_path):
    stamps, places = drive()
    kind, entries = "sensor_msgs/msg/Temperature", [odometry(s, p) for s, p in zip(*drive())]
    entries += [
        (
            "/thermometer",
            kind,
            s,
            make(kind, header=header(s, "probe"), temperature=float(warmth(*p)), variance=0.01),
        )
        for s, p in zip(stamps, places)
    ]
    return write_bag(tmp_path / "warm", entries)


def test_a_map_of_temperature_in_degrees(temperature_bag, tmp_path, capfd):
    result, xs, ys, mean = mapped(
        capfd,
        temperature_bag,
        tmp_path / "out",
        "--set",
        "sensor=temperature",
        "--test",
        temperature_bag,
    )
    assert np.abs(mean - warmth(xs, ys))[inside(xs, ys)].max() < 0.3
    assert (
        result["unit"] == "°C"
        and result["sensor"] == "temperature"
        and result["settings"]["field_scale"] == 1.0
    )
    assert result["rmse_ut"] < 0.3 and result["hyperparameters"]["heading_stddev"] == 0.0
    code, _, err = run(
        capfd, "map", temperature_bag, "--output", tmp_path / "o", "--set", "sensor=temperature"
    )
    assert code == 0
    write_drive(tmp_path / "drive", lanes(count=1))
    code, _, err = run(
        capfd, "map", tmp_path / "drive", "--output", tmp_path / "p", "--resume", tmp_path / "out"
    )
    assert code == 2 and "is a map in °C" in err and "--set sensor=temperature" in err


def test_the_whole_manual_with_another_sensor_maps_that_sensor(temperature_bag, tmp_path, capfd):
    """A copy of config/mapping.yaml names every parameter of a magnetic field; `sensor` alone was changed in it."""
    manual = (cli.__file__.rsplit("/", 2)[0]) + "/config/mapping.yaml"
    (tmp_path / "params.yaml").write_text(
        open(manual).read().replace("sensor: 'magnetic_field'", "sensor: 'temperature'")
    )
    result, xs, ys, mean = mapped(
        capfd, temperature_bag, tmp_path / "out", "--params", tmp_path / "params.yaml"
    )
    assert result["unit"] == "°C" and np.abs(mean - warmth(xs, ys))[inside(xs, ys)].max() < 0.3


def test_the_summary_names_the_sensors_unit(temperature_bag, tmp_path, capfd):
    code, out, _ = run(
        capfd,
        "map",
        temperature_bag,
        "--output",
        tmp_path / "out",
        "--set",
        "sensor=temperature",
        "--test",
        temperature_bag,
        *FAST,
    )
    assert code == 0 and "RMSE °C" in out and " °C\n" in out and "µT" not in out


@pytest.mark.parametrize("stamped", [False, True])
def test_scalars_with_and_without_a_stamp(stamped, tmp_path, capfd):
    """Float64 is placed by its record time; a type that only the bag knows is read from the definition in the bag."""
    stamps, places = drive()
    store, kind = get_typestore(Stores.ROS2_JAZZY), "std_msgs/msg/Float64"
    if stamped:
        kind = "my_gas_msgs/msg/Concentration"
        store.register(get_types_from_msg("std_msgs/Header header\nfloat64 value\n", kind))
    entries = [odometry(s, p) for s, p in zip(stamps, places)]
    for s, p in zip(stamps, places):
        content = (
            {"header": header(s, "nose"), "value": float(warmth(*p))}
            if stamped
            else {"data": float(warmth(*p))}
        )
        entries.append(("/gas", kind, s + 200_000_000 * stamped, make(kind, store, **content)))
    bag = write_bag(tmp_path / "bag", entries, store)
    options = ["--set", "sensor=scalar", "--set", "learn_time_offset=false"]
    result, xs, ys, mean = mapped(capfd, bag, tmp_path / "out", *options, "--field-topic", "gas")
    assert (
        result["samples"] == len(stamps)
        and np.abs(mean - warmth(xs, ys))[inside(xs, ys)].max() < 0.3
    )


def spin_bag(path, rotations, hard=(10e-6, -5e-6, 8e-6), distort=None):
    """A magnetometer that is turned; beside it odometry, which nobody needs."""
    distort = np.diag([1.08, 0.95, 1.0]) if distort is None else distort
    readings = rotations.inv().apply([20e-6, 0.0, 43e-6]) @ distort.T + hard
    with BagWriter(path) as bag:
        for i, reading in enumerate(
            readings + 0.1e-6 * np.random.default_rng(0).standard_normal(readings.shape)
        ):
            bag.magnetic_field(START + i * 20_000_000, reading)
    return path


def test_calibrate_writes_parameters_that_map_takes(tmp_path, capfd):
    bag = spin_bag(tmp_path / "spin", Rotation.random(1500, random_state=3))
    code, out, err = run(capfd, "calibrate", bag, "--output", tmp_path / "iron.yaml")
    assert (
        code == 0
        and "hard iron" in out
        and "not observable" in out
        and f"--params {tmp_path}/iron.yaml" in out
    ), err
    values = yaml.safe_load((tmp_path / "iron.yaml").read_text())["/**"]["ros__parameters"]
    found = [values[f"hard_iron_{a}"] for a in "xyz"]
    np.testing.assert_allclose(found, [10e-6, -5e-6, 8e-6], atol=0.15e-6)
    assert all(type(v) is float for v in values.values()) and len(values) == 12

    write_drive(tmp_path / "drive", lanes(count=3))
    result, *_ = mapped(
        capfd, tmp_path / "drive", tmp_path / "out", "--params", tmp_path / "iron.yaml"
    )
    assert result["settings"]["hard_iron_x"] == values["hard_iron_x"]


def test_calibrate_says_what_a_planar_robot_cannot_know(tmp_path, capfd):
    bag = spin_bag(tmp_path / "spin", Rotation.from_euler("z", np.linspace(0, 12, 800)[:, None]))
    code, out, err = run(capfd, "calibrate", bag)
    values = yaml.safe_load(out)["/**"]["ros__parameters"]
    assert code == 0 and "planar: the sensor turned about one axis only" in err
    np.testing.assert_allclose(
        [values["hard_iron_x"], values["hard_iron_y"]], [10e-6, -5e-6], atol=0.2e-6
    )
    assert abs(values["hard_iron_z"]) < 1e-6 and values["soft_iron_xx"] / values[
        "soft_iron_yy"
    ] == pytest.approx(0.95 / 1.08, rel=0.01)


def test_calibrate_refuses_a_drive_without_turns(tmp_path, capfd):
    bag = spin_bag(tmp_path / "still", Rotation.from_euler("z", np.linspace(0, 1.0, 500)[:, None]))
    code, out, err = run(capfd, "calibrate", bag, "--output", tmp_path / "iron.yaml")
    assert code == 2 and out == "" and "turn" in err and "two full turns" in err
    assert not (tmp_path / "iron.yaml").exists()


@pytest.mark.parametrize(("number", "value"), [("std_msgs/msg/Int32", 7), ("std_msgs/msg/Bool", 1)])
def test_a_number_in_any_message_is_found_and_named(tmp_path, capfd, number, value):
    """A counter's Int32, say, or a contact's Bool: what to write is in the error, and does it."""
    stamps, places = drive()
    entries = [odometry(stamp, place) for stamp, place in zip(stamps, places)]
    entries += [("/clicks", number, stamp + 1, make(number, data=value)) for stamp in stamps[:-1]]
    bag = write_bag(tmp_path / "counter", entries)
    for given, wanted in (
        ((), "--set sensor=scalar --field-topic /clicks"),
        (("--set", "sensor=scalar"), "write --field-topic /clicks"),
        (("--set", "sensor=temperature", "--field-topic", "clicks"), "--set sensor=scalar"),
    ):
        code, _, err = run(capfd, "map", bag, "--output", tmp_path / "o", *given)
        assert code == 2 and err.count("\n") == 1 and wanted in err
    code, _, err = run(
        capfd,
        "map",
        bag,
        "--output",
        tmp_path / "o",
        "--set",
        "sensor=scalar",
        "--field-topic",
        entries[0][0],
    )
    assert code == 2 and "nav_msgs/msg/Odometry, which has no number called data or value" in err
    result, *_ = mapped(
        capfd, bag, tmp_path / "out", "--set", "sensor=scalar", "--field-topic", "/clicks"
    )
    assert result["samples"] == len(stamps) - 1


AIR = {
    "air_msgs/msg/Gas": "string name\nfloat32 ppm\n",
    "air_msgs/msg/Air": "std_msgs/Header header\nair_msgs/Gas[] gases\nfloat64[2] wind\nstring data\n",
}


@pytest.fixture(scope="module")
def air(tmp_path_factory):
    """A bag of a type that only its own definition tells: nested, in an array, and `data` is a text."""
    stamps, places = drive()
    store = get_typestore(Stores.ROS2_JAZZY)
    for name, text in AIR.items():
        store.register(get_types_from_msg(text, name))
    kind, entries = "air_msgs/msg/Air", [odometry(s, p) for s, p in zip(stamps, places)]
    for s, p in zip(stamps, places):
        gases = [
            make("air_msgs/msg/Gas", store, name=name, ppm=ppm)
            for name, ppm in (("CO", 1.0), ("CO2", float(warmth(*p))))
        ]
        message = make(
            kind, store, header=header(s, "nose"), gases=gases, wind=np.zeros(2), data="400.0"
        )
        entries.append(("/air", kind, s, message))
    return write_bag(tmp_path_factory.mktemp("air") / "bag", entries, store)


@pytest.mark.parametrize("path", ["gases.1.ppm", "gases[name=CO2].ppm"])
def test_any_number_of_any_message_is_mapped_by_where_it_is(air, tmp_path, capfd, path):
    options = ("--set", "sensor=scalar", "--field-topic", "/air")
    result, xs, ys, mean = mapped(
        capfd, air, tmp_path / "out", *options, "--set", f"value_field={path}"
    )
    assert result["samples"] == result["received"]["scalar"] and not result["dropped"]
    assert np.abs(mean - warmth(xs, ys))[inside(xs, ys)].max() < 0.3
    # the map says which number it is of: another one does not go on in it
    other = ("--set", "value_field=wind.0", "--resume", tmp_path / "out")
    code, _, err = run(capfd, "map", air, "--output", tmp_path / "o", *options, *other)
    assert code == 2 and f"a map of 'scalar, {path}', and this is 'scalar, wind.0'" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            (),
            "write --set sensor=scalar --field-topic /air --set 'value_field=gases[name=…].ppm' (or one of wind.0)",
        ),
        (
            ("sensor=scalar",),
            "write --field-topic /air --set 'value_field=gases[name=…].ppm' (or one of wind.0)",
        ),
        (
            ("sensor=scalar", "value_field=wind.1"),
            "/air has a number at wind.1: write --field-topic /air",
        ),
        (
            ("sensor=scalar", "value_field=wind"),
            "write --field-topic /air --set 'value_field=gases[name=…].ppm' (or one of wind.0)",
        ),
    ],
)
def test_where_no_topic_fits_a_message_with_numbers_is_named(air, tmp_path, capfd, given, said):
    options = [word for value in given for word in ("--set", value)]
    code, _, err = run(capfd, "map", air, "--output", tmp_path / "o", *options)
    assert code == 2 and err.count("\n") == 1 and err.rstrip().endswith(said), err


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "",
            "which has no number called data or value; write as value_field one of 'gases[name=…].ppm'",
        ),
        (
            "gases.ppm",
            "which has no number at gases.ppm; write as value_field one of 'gases[name=…].ppm'",
        ),
        (
            "data",
            "which has no number at data; write as value_field one of 'gases[name=…].ppm', wind.0",
        ),
        ("gases.5.ppm", "IndexError: `gases.5.ppm`: the array holds 2 numbers"),
        ("gases[who=CO2].ppm", "which has no number at gases[who=CO2].ppm"),
        ("wind[name=CO2].x", "which has no number at wind[name=CO2].x"),
        ("gases[name=…].ppm", "which value_field chooses; what came has 'CO', 'CO2'"),
        ("gases..ppm", "'gases..ppm' has an empty part"),
    ],
)
def test_a_number_that_is_not_there_is_answered_with_those_that_are(
    air, tmp_path, capfd, path, said
):
    options = ("--set", "sensor=scalar", "--set", f"value_field={path}", "--field-topic", "/air")
    code, _, err = run(capfd, "map", air, "--output", tmp_path / "o", *options)
    assert code == 2 and err.count("\n") == 1 and said in err, err
