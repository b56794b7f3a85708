"""A datum from fixes: where it was, how it was turned; one place is not enough, and that is said."""

import json
import math

import numpy as np
import pytest
import torch
from any_bag import header, make, write_bag
from rosbags.rosbag2 import StoragePlugin, Writer
from small_drive import GIVEN

from gp_mapping import Samples, cli
from gp_mapping.commands.saved import open_session
from gp_mapping.intake.fixes import FIX
from gp_mapping.mapping.earth import fit_datum
from gp_mapping.mapping.session import MapSession
from gp_mapping.recording.bag import MAGNETIC_FIELD, ODOMETRY, STORE
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.checkpoint import save_checkpoint

TRUE = (52.1, 4.5, 0.7)


def earth_of(places, latitude, longitude, heading):
    """On WGS 84, to second order in the distance: radii of curvature at the origin and how the parallels shorten."""
    e2, a = 0.0066943799901413165, 6378137.0
    phi = math.radians(latitude)
    down = 1 - e2 * math.sin(phi) ** 2
    meridian, across = a * (1 - e2) / down**1.5, a / math.sqrt(down)
    east = places[:, 0] * math.cos(heading) - places[:, 1] * math.sin(heading)
    north = places[:, 0] * math.sin(heading) + places[:, 1] * math.cos(heading)
    up = north / meridian - 0.5 * east**2 * math.tan(phi) / (across * meridian)
    side = east / (across * math.cos(phi)) * (1 + north * math.tan(phi) / across)
    return np.stack([latitude + np.degrees(up), longitude + np.degrees(side)], 1)


@pytest.mark.parametrize(
    "datum", [TRUE, (-33.9, 151.2, -2.5), (0.0, 179.9999, 1.0), (69.6, 18.9, 3.1)]
)
def test_the_datum_comes_back(datum):
    places = np.array([[0.0, 0.0], [120.0, 5.0], [130.0, 90.0], [-10.0, 80.0]]) + np.array(
        [[500.0, -300.0]]
    )
    earth = earth_of(places, *datum)
    found, spread, error, *_ = fit_datum(places, earth)
    assert abs(found.latitude - datum[0]) * 111e3 < 0.02 and spread > 50
    assert (
        abs(math.remainder(found.longitude - datum[1], 360.0)) * 111e3 < 0.02
        and abs(found.longitude) <= 180.0
    )
    assert (
        math.remainder(found.heading - datum[2], math.tau) == pytest.approx(0.0, abs=2e-5)
        and error < 1e-4
    )


def test_how_well_the_heading_is_known():
    """Fixes with 2 m of noise: the standard deviation that is told is that of many drives."""
    g, places = np.random.default_rng(0), np.stack([np.linspace(0, 60, 40), np.zeros(40)], 1)
    exact, off, told = earth_of(places, *TRUE), [], []
    for _ in range(200):
        noise = g.normal(0, 2.0, (40, 2)) / [111e3, 111e3 * math.cos(math.radians(TRUE[0]))]
        found, _, error, *_ = fit_datum(places, exact + noise)
        off.append(found.heading - TRUE[2])
        told.append(error)
    assert np.std(off) == pytest.approx(np.mean(told), rel=0.15)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    x = torch.stack([torch.arange(0.0, 5.0, 0.1).double(), torch.zeros(50).double()], 1)
    session = MapSession(
        MapSettings(learn_hyperparameters=False, lengthscale=1.0, max_inducing=60, resolution=0.1)
    )
    session.ingest(
        Samples(x, 45e-6 + 1e-6 * torch.sin(x[:, :1]), stamp=torch.arange(50).double() * 0.1)
    )
    session.flush()
    session.about = {"frame": "odom", "pose_source": "odometry"}
    return save_checkpoint(tmp_path_factory.mktemp("saved") / "map.gpm", session.state_dict())


def bag(path, length, frame="odom", status=0, began=10**18, also=()):
    """A straight drive of that length in 10 s along x; odometry at 10 Hz, field at 5 Hz, fixes at 1 Hz."""
    types = STORE.types
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        odometry = writer.add_connection("/odometry", ODOMETRY, typestore=STORE)
        fix = writer.add_connection("/gps/fix", FIX, typestore=STORE)
        field = writer.add_connection("/magnetic_field", MAGNETIC_FIELD, typestore=STORE)
        others = [writer.add_connection(name, kind, typestore=STORE) for name, kind in also]

        def header(ns, name):
            time = types["builtin_interfaces/msg/Time"](sec=ns // 10**9, nanosec=ns % 10**9)
            return types["std_msgs/msg/Header"](stamp=time, frame_id=name)

        point, zero = types["geometry_msgs/msg/Point"], np.zeros(36)
        still = types["geometry_msgs/msg/Vector3"](x=0.0, y=0.0, z=0.0)
        for k in range(101):
            ns = began + k * 10**8
            pose = types["geometry_msgs/msg/Pose"](
                position=point(x=length * k / 100, y=0.0, z=0.0),
                orientation=types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0),
            )
            message = types[ODOMETRY](
                header=header(ns, frame),
                child_frame_id="base",
                pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=zero),
                twist=types["geometry_msgs/msg/TwistWithCovariance"](
                    twist=types["geometry_msgs/msg/Twist"](linear=still, angular=still),
                    covariance=zero,
                ),
            )
            writer.write(odometry, ns, STORE.serialize_cdr(message, ODOMETRY))
            for other in others if k == 0 else ():  # of its type or not: its bytes are not read
                writer.write(other, ns, STORE.serialize_cdr(message, ODOMETRY))
            value = types["geometry_msgs/msg/Vector3"](
                x=0.0, y=0.0, z=45e-6 + 3e-6 * math.sin(0.3 * k)
            )
            message = types[MAGNETIC_FIELD](
                header=header(ns, "magnetometer"),
                magnetic_field=value,
                magnetic_field_covariance=np.zeros(9),
            )
            if k % 2 == 0:
                writer.write(field, ns, STORE.serialize_cdr(message, MAGNETIC_FIELD))
            if k % 10 == 3:
                latitude, longitude = earth_of(np.array([[length * (k + 0.5) / 100, 0.0]]), *TRUE)[
                    0
                ]
                noise = 2e-6 * (1 if k % 20 == 3 else -1)  # 0.2 m
                message = types[FIX](
                    header=header(ns + 5 * 10**7, "gps"),
                    latitude=latitude + noise,
                    longitude=longitude,
                    altitude=0.0,
                    position_covariance=np.zeros(9),
                    position_covariance_type=0,
                    status=types["sensor_msgs/msg/NavSatStatus"](status=status, service=1),
                )
                writer.write(fix, ns + 5 * 10**7, STORE.serialize_cdr(message, FIX))
    return path


def export(saved, tmp_path, datum, *more):
    return cli.main(
        [
            "export",
            str(saved),
            "--output",
            str(tmp_path / "out"),
            "--format",
            "geotiff",
            "--datum",
            str(datum),
            *more,
        ]
    )


def test_a_bag_tells_where_the_map_lies(saved, tmp_path, capfd):
    code = export(saved, tmp_path, bag(tmp_path / "drive", 80.0))
    told = capfd.readouterr()
    latitude, longitude, heading = map(
        float, told.out.split("datum ")[1].split(" from")[0].split(",")
    )
    assert abs(latitude - TRUE[0]) * 111e3 < 0.3 and abs(longitude - TRUE[1]) * 111e3 < 0.3
    assert (
        heading == pytest.approx(TRUE[2], abs=0.01)
        and "10 fixes" in told.out
        and "heading ±" in told.out
    )
    if code:  # without rasterio there is no file, and that is said
        assert "pip install rasterio" in told.err


def test_of_several_receivers_and_odometries_one_is_chosen(saved, tmp_path, capfd):
    drive = bag(tmp_path / "drive", 80.0, also=[("/wheels", ODOMETRY), ("/second/fix", FIX)])
    choice: list[str] = []
    for option, name in (("--fix-topic", "/gps/fix"), ("--odometry-topic", "/odometry")):
        assert export(saved, tmp_path, drive, *choice) == 2
        assert f"which one to use: {option} {name}\n" in capfd.readouterr().err
        choice += [option, name]
    export(saved, tmp_path, drive, *choice)
    assert "10 fixes" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"length": 0.3}, "one place knows no direction"),
        ({"length": 80.0, "frame": "map"}, "frame 'odom'"),
        ({"length": 80.0, "status": -1}, "0 fixes"),
    ],
)
def test_a_bag_that_tells_too_little_is_said_so(saved, tmp_path, capfd, how, words):
    assert export(saved, tmp_path, bag(tmp_path / "drive", **how)) == 2
    said = capfd.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    """A folder with a bag of a drive with fixes."""
    folder = tmp_path_factory.mktemp("mapped")
    bag(folder / "bag", 80.0)
    return folder


def map_it(folder, *more):
    return cli.main(
        [
            "map",
            str(folder / "bag"),
            "--output",
            str(folder / "out"),
            *GIVEN,
            "--set",
            "resolution=0.5",
            "--set",
            "learn_hyperparameters=false",
            *more,
        ]
    )


def test_a_map_of_a_bag_with_fixes_carries_its_datum(mapped, tmp_path, capfd):
    assert map_it(mapped, "--set", "fix_topic=gps/fix", "--set", "max_fixes=10") == 0
    assert "datum 52.1" in capfd.readouterr().out
    report = json.loads((mapped / "out" / "report.json").read_text())
    assert report["received"]["fix"] == report["map"]["fixes"] == 10
    wanted = [
        "export",
        str(mapped / "out"),
        "--output",
        str(tmp_path / "tif"),
        "--format",
        "geotiff",
    ]
    code = cli.main(wanted)
    told = capfd.readouterr()
    latitude, longitude, heading = map(
        float, told.out.split("datum ")[1].split(" from")[0].split(",")
    )
    assert abs(latitude - TRUE[0]) * 111e3 < 0.3 and abs(longitude - TRUE[1]) * 111e3 < 0.3
    assert heading == pytest.approx(TRUE[2], abs=0.01) and (
        code == 0 or "pip install rasterio" in told.err
    )
    cli.main([*wanted, "--datum", "none"])
    assert "datum" not in capfd.readouterr().out, "coordinates of the map's frame were asked for"


def test_bags_that_are_mapped_side_by_side_put_their_fixes_together(mapped, tmp_path, capfd):
    """As one after the other, and of more than are kept those that are kept."""
    twice, told = [str(mapped / "bag"), str(bag(tmp_path / "again", 80.0, began=2 * 10**18))], []
    for how in ("--json", "--workers=1"):
        out = tmp_path / how
        assert (
            cli.main(
                [
                    "map",
                    *twice,
                    "--output",
                    str(out),
                    *GIVEN,
                    "--set",
                    "resolution=0.5",
                    "--suggest",
                    "0",
                    how,
                    "--set",
                    "learn_hyperparameters=false",
                    "--set",
                    "fix_topic=gps/fix",
                    "--set",
                    "max_fixes=12",
                ]
            )
            == 0
        )
        report = json.loads((out / "report.json").read_text())
        told.append(
            (report["received"]["fix"], report["map"]["fixes"], report["map"]["datum"][:10])
        )
        assert len(open_session(out).fixes) <= 12
    assert told[0] == told[1] == (20, 20, "datum 52.1")


@pytest.mark.parametrize("how", [[], ["--workers", "1"]])
def test_a_bag_without_fixes_is_mapped_and_that_is_said(mapped, capfd, how):
    assert map_it(mapped, "--set", "fix_topic=other/fix", *how) == 0
    assert (
        "there is no sensor_msgs/msg/NavSatFix on other/fix: the map carries no datum"
        in capfd.readouterr().out
    )


@pytest.mark.parametrize("how", [[], ["--workers", "1"]])
def test_fixes_without_a_position_are_no_datum_and_that_is_said(tmp_path, capfd, how):
    entries = []
    for i in range(40):
        stamp, x = 10**18 + i * 10**8, 0.05 * i
        stamped = {"header": header(stamp, "odom")}
        pose = {"pose": {"position": {"x": x}, "orientation": {"w": 1.0}}}
        field = {"x": 3e-5 + 1e-6 * np.sin(x)}
        entries += [
            ("/odom", ODOMETRY, stamp, make(ODOMETRY, **stamped, pose=pose)),
            ("/mag", MAGNETIC_FIELD, stamp, make(MAGNETIC_FIELD, **stamped, magnetic_field=field)),
            ("/fix", FIX, stamp, make(FIX, **stamped, status={"status": -1})),
        ]
    write_bag(tmp_path / "bag", entries)
    assert map_it(tmp_path, "--set", "fix_topic=/fix", *how) == 0
    assert (
        "none of the 40 fixes on /fix has both a position and a pose at its stamp"
        in capfd.readouterr().out
    )
