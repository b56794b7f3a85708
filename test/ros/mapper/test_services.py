"""Save and load inside one folder, maps on demand; over DDS, with the node in this process."""

import threading

import numpy as np
import pytest
import torch
from geometry_msgs.msg import PoseArray
from nav_msgs.msg import OccupancyGrid
from nav_msgs.srv import GetMap, LoadMap
from rclpy.parameter import Parameter
from ros_helpers import ask, fill, grid_array, settle, spin, spin_until
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import check_map_name
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint
from gp_mapping.store.sessions import map_folder

PLACES = torch.tensor([[0.5, 0.1], [1.3, 0.2], [2.0, 1.0]], dtype=torch.float64)


def predicted(node):
    told = node.worker.call(lambda session: session.predict(PLACES)).result(10)
    return torch.cat([told.mean, told.variance])


def filled(node, peer, seconds: float = 3.0, start: float = 0.0):
    """What the map says after a drive."""
    fill(node, seconds, start)
    settle(node, peer)
    return predicted(node)


def load_named(node, peer, url: str):
    return ask(node, peer, LoadMap, "/mapping/load_map", LoadMap.Request(map_url=url))


def who_asks_while_a_load_waits_shares_it(node, peer):
    """A hundred calls of one load each took minutes; the last dropped what was measured meanwhile."""
    node.set_parameters([Parameter("map_name", value="hall/ground")])
    began, disk, before = threading.Event(), threading.Event(), node.worker.session_number
    node.files.submit(lambda: began.set() or disk.wait(30.0))
    assert began.wait(10.0)
    load, other = peer.clients["/mapping/load"], peer.clients["/mapping/load_map"]
    asked = [load.call_async(Trigger.Request()) for _ in range(5)]
    asked += [other.call_async(LoadMap.Request(map_url="hall/ground"))]
    spin_until(node, peer, lambda: node.map_services.waiting == 6)
    missing = other.call_async(LoadMap.Request(map_url="nowhere"))
    spin_until(node, peer, lambda: node.map_services.waiting == 7)
    # after another map has been asked for, it is loaded again
    asked += [load.call_async(Trigger.Request()) for _ in range(2)]
    spin_until(node, peer, lambda: node.map_services.waiting == 9)
    disk.set()
    spin_until(node, peer, lambda: all(future.done() for future in (*asked, missing)))
    answers = [future.result() for future in asked]
    assert all(each.success for each in (*answers[:5], *answers[6:]))
    assert answers[5].result == LoadMap.Response.RESULT_SUCCESS and answers[5].map.info.width
    assert missing.result().result == LoadMap.Response.RESULT_MAP_DOES_NOT_EXIST
    assert node.worker.session_number == before + 2


def test_maps_by_name_are_saved_and_loaded_as_they_were(node_of, tmp_path):
    node, peer = node_of(save_directory=str(tmp_path), suggestion_rate=0.5, suggestion_count=2)
    mean = peer.listen(OccupancyGrid, "/mapping/mean")
    filled(node, peer)
    node.set_parameters([Parameter("map_name", value="hall/ground")])
    saved = ask(node, peer, Trigger, "/mapping/save")
    first, folder = predicted(node), tmp_path / "hall" / "ground"  # saving has closed the open cell
    assert (
        saved.success
        and str(folder / "map.gpm") in saved.message
        and not (tmp_path / "map.gpm").exists()
    )
    with np.load(folder / "map.npz") as exported:
        assert exported["suggestions"].shape == (2, 3)
        assert (exported["suggestions"][:, 2] > 0).all()
    second = filled(node, peer, 2.0, start=3.02)
    assert not torch.equal(first, second)
    spin_until(node, peer, lambda: mean)
    count = len(mean)

    loaded = ask(node, peer, Trigger, "/mapping/load")
    assert loaded.success and "151 measurements" in loaded.message
    assert torch.equal(predicted(node), first)
    spin_until(node, peer, lambda: len(mean) > count)  # shown at once, though nothing has come in
    node.set_parameters([Parameter("map_name", value="")])
    for url in ("hall/ground", "hall/ground/map.gpm"):
        answer = load_named(node, peer, url)
        assert (
            answer.result == LoadMap.Response.RESULT_SUCCESS and grid_array(answer.map).max() > 90
        )
        assert answer.map.header.frame_id == "odom"
    filled(node, peer, 1.0, start=10.0)  # and goes on
    report = node.worker.call(lambda session: session.report()).result(10)
    assert report["samples"] == 151 + 51 and report["passes"] == 2
    who_asks_while_a_load_waits_shares_it(node, peer)


def test_what_cannot_be_loaded_is_refused_and_the_map_stays(node_of, tmp_path):
    inside, outside = tmp_path / "maps", tmp_path / "outside"
    node, peer = node_of(save_directory=str(inside))
    filled(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    before = predicted(node)
    good = (inside / "map.gpm").read_bytes()
    for name, content in (
        ("cut", good[: len(good) // 2]),
        ("text", b"no map"),
        ("empty", b""),
        ("flipped", good[:5000] + bytes([good[5000] ^ 255]) + good[5001:]),
    ):
        (inside / name).mkdir()
        (inside / name / "map.gpm").write_bytes(content)
    (outside / "far").mkdir(parents=True)
    (outside / "far" / "map.gpm").write_bytes(good)
    (inside / "link").symlink_to(outside / "far")
    (inside / "file").mkdir()
    (inside / "file" / "map.gpm").symlink_to(outside / "far" / "map.gpm")
    of_heat = MapSession(MapSettings(field_unit="°C", field_scale=1.0))
    of_axes = MapSession(MapSettings())
    of_axes.ingest(Samples(torch.rand(9, 2), torch.rand(9, 3)))
    for name, session in (("heat", of_heat), ("axes", of_axes)):
        save_checkpoint(inside / name / "map.gpm", session.state_dict())
    refused, missing = (
        LoadMap.Response.RESULT_INVALID_MAP_DATA,
        LoadMap.Response.RESULT_MAP_DOES_NOT_EXIST,
    )
    for url, result in (
        ("nowhere", missing),
        ("cut", refused),
        ("text", refused),
        ("empty", refused),
        ("flipped", refused),
        ("link", refused),
        ("file", refused),
        ("heat", refused),
        ("axes", refused),
        ("../outside/far", refused),
        (str(outside / "far"), refused),
        (f"file://{outside}/far", refused),
        ("a/../../outside/far", refused),
        ("x\0y", refused),
        ("~", refused),
        ("$(touch x)", refused),
    ):
        if "\0" not in url:  # no string on the wire has one
            assert load_named(node, peer, url).result == result, url
    assert torch.equal(predicted(node), before)
    node.set_parameters([Parameter("map_name", value="heat")])
    answer = ask(node, peer, Trigger, "/mapping/load")
    assert (
        not answer.success and "'°C'" in answer.message and "the map is as it was" in answer.message
    )
    assert torch.equal(predicted(node), before)
    filled(node, peer, 1.0, start=10.0)  # nothing is stuck


def test_a_map_that_exists_is_not_missing_whatever_the_words_of_its_fault(node_of, tmp_path):
    folder = tmp_path / "no such checkpoint"
    node, peer = node_of(save_directory=str(folder))
    folder.mkdir()
    (folder / "map.gpm").write_bytes(b"no map")
    assert load_named(node, peer, "").result == LoadMap.Response.RESULT_INVALID_MAP_DATA


def test_names_of_maps_stay_in_their_folder(tmp_path):
    assert map_folder(str(tmp_path), "a/b.c-d_1") == tmp_path / "a" / "b.c-d_1"
    for name in (
        "/etc",
        "..",
        "a/..",
        "../a",
        "a//b",
        "a/",
        "~",
        ".a",
        "a/.b",
        "a\\b",
        "a b",
        "a\n",
        "a\0b",
        "-a",
    ):
        with pytest.raises(ValueError, match="not the name of a map"):
            check_map_name(name)


def test_an_empty_map_does_not_take_the_place_of_a_saved_one(node_of, tmp_path):
    node, peer = node_of(save_directory=str(tmp_path), save_on_exit=True)
    filled(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    assert ask(node, peer, Trigger, "/mapping/clear").success
    answer = ask(node, peer, Trigger, "/mapping/save")
    assert not answer.success and "what was saved before stays" in answer.message
    assert node.finish() == 0
    assert load_checkpoint(tmp_path / "map.gpm")["raw_count"] == 151


def test_maps_on_demand_are_those_of_the_topics_and_come_with_limits(node_of):
    node, peer = node_of(draw_budget=100)  # a topic draws little by little, a service everything
    assert ask(node, peer, GetMap, "/mapping/get_mean").map.info.width == 0  # nothing is known yet
    filled(node, peer)
    limits = peer.listen(Float64MultiArray, "/mapping/limits")
    grids = {
        name: ask(node, peer, GetMap, f"/mapping/get_{name}").map for name in ("mean", "stddev")
    }
    spin_until(node, peer, lambda: limits)
    grid = node.worker.call(lambda session: session.render()).result(10)
    low, high, _, highest = limits[-1].data
    for name, (a, b) in {"mean": (low, high), "stddev": (0.0, highest)}.items():
        cells, known = grid_array(grids[name]), grid.known.numpy()
        assert grids[name].header.frame_id == "odom" and ((cells < 0) == ~known).all()
        np.testing.assert_allclose(
            a + (cells[known] - 1) / 97 * (b - a),
            getattr(grid, name).numpy()[known],
            atol=(b - a) / 194 * 1.01,
        )


def test_nav2s_services_where_they_are_installed(node_of, tmp_path, monkeypatch):
    """nav2_msgs is not among the wheels. LoadMap has the fields of nav_msgs' own; for SaveMap that type stands in on
    the wire: it too has a map_url and a result."""

    class SaveMap(LoadMap):
        class Request(LoadMap.Request):
            image_format, map_mode, free_thresh, occupied_thresh = "pgm", "raw", 0.25, 0.65

    asked = []

    def find(kind):
        asked.append(kind)
        return {"nav2_msgs/srv/SaveMap": LoadMap, "nav2_msgs/srv/LoadMap": LoadMap}.get(
            kind
        ) or message_class(kind)

    node, peer = node_of(find=find, save_directory=str(tmp_path))
    assert {"nav2_msgs/srv/SaveMap", "nav2_msgs/srv/LoadMap"} <= set(asked)
    filled(node, peer, 1.0)
    services = node.map_services

    def save(url):  # its other fields do not go over the wire
        request, response = SaveMap.Request(map_url=url), type("Response", (), {"result": None})()
        later = services._on_save_map(request, response)
        later.finish(response, later.future.result(30))
        return response.result

    assert save("lab") is True and (tmp_path / "lab" / "map.gpm").exists()
    with pytest.raises(ValueError, match="not the name of a map"):
        save("../lab")
    assert save(str(tmp_path / "hall")) is True and (tmp_path / "hall" / "map.gpm").exists()
    with pytest.raises(ValueError, match="not the name of a map"):
        save(str(tmp_path / ".hidden"))  # no other name than the one that was given
    assert save(str(tmp_path)) is True and (tmp_path / "map.gpm").exists()
    for name, value in (("image_format", "png"), ("map_mode", "trinary"), ("free_thresh", 0.1)):
        monkeypatch.setattr(SaveMap.Request, name, value)
        with pytest.raises(ValueError, match=f"{name}: .* cannot be had"):
            save("lab")
        monkeypatch.undo()
    assert load_named(node, peer, "lab").result == LoadMap.Response.RESULT_SUCCESS
    assert peer.node.count_services("/mapping/save_map") == 1


def test_of_a_map_that_is_cleared_or_replaced_no_limits_and_suggestions_stay(node_of):
    node, peer = node_of(suggestion_rate=10.0, suggestion_count=2)
    limits = peer.listen(Float64MultiArray, "/mapping/limits")
    markers = peer.listen(MarkerArray, "/mapping/markers")
    filled(node, peer)

    def suggested() -> bool:
        return any(m.ns == "suggestions" for message in markers[-1:] for m in message.markers)

    peer.listen(PoseArray, "/mapping/suggestions")
    spin_until(node, peer, lambda: limits and suggested())
    assert list(limits[-1].data)[1] < 1e-3  # tesla
    node.use_settings(node.map_settings)  # as a map that has been loaded does
    assert node.publishers_.limits is None and not node.publishers_._suggested
    assert ask(node, peer, Trigger, "/mapping/clear").success
    spin_until(node, peer, lambda: list(limits[-1].data) == [0.0, 1.0, 0.0, 1.0])


def test_no_message_is_made_for_a_topic_that_nobody_listens_to(node_of, monkeypatch):
    from gp_mapping.ros.wire import markers, outbound

    def refuse(*_, **__):
        raise AssertionError("made for nobody")

    for module, names in (
        (outbound, ("occupancy_grid", "field_cloud", "pose_array", "pose_stamped", "grid_map")),
        (markers, ("map_markers",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    node, peer = node_of(suggestion_rate=10.0)
    monkeypatch.setattr(node.worker, "_suggest", refuse)
    filled(node, peer)
    spin(node, peer, 0.5)
    assert node.worker.results is None  # not even drawn
    limits = peer.listen(Float64MultiArray, "/mapping/limits")
    spin_until(node, peer, lambda: limits)
    fill(node, 1.0, start=3.02)
    spin_until(node, peer, lambda: len(limits) > 1)
    assert node.worker.results.inducing is None and node.worker.results.suggestions is None
