"""Free-space maps and grounds that are made in another thread: what answers meanwhile."""

import copy
import threading
import time
from array import array
from dataclasses import replace

import numpy as np
import pytest
from survey_scene import floor

from gp_mapping.planning.area.ground import Ground, GroundSettings
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.runtime.surveying import free_maps
from gp_mapping.runtime.surveying.free_maps import FreeMaps, GroundAside, wrong_frame


@pytest.fixture
def gate(monkeypatch):
    """Every map is large, and is read when the gate is opened."""
    gate, read = threading.Event(), FreeSpace.from_occupancy_grid

    def held(message, radius):
        if threading.current_thread() is not threading.main_thread():
            assert gate.wait(10)
        return read(message, radius=radius)

    monkeypatch.setattr(free_maps, "_AT_ONCE", 0)
    monkeypatch.setattr(FreeSpace, "from_occupancy_grid", held)
    return gate


def finish(gate, maps):
    gate.set()
    for _ in range(10_000):
        if not maps.making:
            break
        threading.Event().wait(0.001)
    assert not maps.making
    gate.clear()


def test_a_map_that_is_published_again_is_the_same_object():
    """What was made of it, such as ways, stays valid; of another radius it is another."""
    maps = FreeMaps()
    free, wrong = maps.free_space_of(floor(wall=True), 0.2)
    assert free is not None and not wrong
    assert maps.free_space_of(floor(wall=True), 0.2) == (free, "")
    other, _ = maps.free_space_of(floor(wall=True), 0.3)
    assert other is not free and other.radius == 0.3
    assert maps.free_space_of(floor(wall=False), 0.3)[0] is not other


def test_while_a_large_map_is_read_the_one_before_stands_in(gate):
    maps, first, second = FreeMaps(aside=True), floor(wall=False), floor(wall=True)
    assert not maps.reading and not maps.making and maps.free_space_of(None, 0.2) == (None, "")
    assert maps.free_space_of(first, 0.2) == (None, "the free-space map is being read")
    assert maps.reading and maps.making
    finish(gate, maps)
    assert maps.reading, "it has not been fetched"
    free, wrong = maps.free_space_of(first, 0.2)
    assert free is not None and not wrong and not maps.reading
    assert maps.free_space_of(first, 0.2)[0] is free and not maps.reading

    assert maps.free_space_of(second, 0.2) == (free, "") and maps.making
    finish(gate, maps)
    walled, _ = maps.free_space_of(second, 0.2)
    assert walled is not free and walled.open.sum() < free.open.sum()
    # the same once more is the same object
    assert maps.free_space_of(copy.copy(second), 0.2) == (walled, "")
    finish(gate, maps)
    assert maps.free_space_of(second, 0.2)[0] is walled
    finish(gate, maps)
    maps.free_space_of(second, 0.2)
    # for another robot none stands in
    assert maps.free_space_of(second, 0.4) == (None, "the free-space map is being read")
    finish(gate, maps)
    wide, _ = maps.free_space_of(second, 0.4)
    assert wide.radius == 0.4 and wide.open.sum() < walled.open.sum()
    assert maps.free_space_of(None, 0.4) == (None, "")


def test_a_map_that_cannot_be_read_is_told_and_a_small_one_is_read_at_once(gate, monkeypatch):
    maps, broken = FreeMaps(aside=True), floor(wall=False)
    broken.data = array("b", [0] * 7)
    maps.free_space_of(broken, 0.2)
    finish(gate, maps)
    free, wrong = maps.free_space_of(broken, 0.2)
    assert free is None and wrong.startswith("the free-space map cannot be read: ")
    monkeypatch.setattr(free_maps, "_AT_ONCE", len(floor(wall=False).data))
    assert maps.free_space_of(floor(wall=False), 0.2)[0] is not None and not maps.reading
    monkeypatch.setattr(free_maps, "_AT_ONCE", 0)
    here = FreeMaps()
    assert here.free_space_of(floor(wall=False), 0.2)[0] is not None
    assert not here.reading and not here.making


def test_frames_are_compared_without_their_slashes():
    free = FreeSpace.from_occupancy_grid(floor("/map"), radius=0.2)
    assert wrong_frame(None, "odom") == wrong_frame(free, "map") == wrong_frame(free, "/map") == ""
    text = wrong_frame(free, "odom")
    assert "is in frame '/map' and the field map in 'odom': it is not used" in text


def test_while_a_large_ground_is_made_the_one_before_stands_in_where_it_can(gate, monkeypatch):
    made, begun = Ground.ground_at, []

    def held(self, *arguments):
        if threading.current_thread() is not threading.main_thread():
            begun.append(arguments[2])
            assert gate.wait(10)
        return made(self, *arguments)

    monkeypatch.setattr(Ground, "ground_at", held)
    free = FreeSpace.from_occupancy_grid(floor(wall=False), radius=0.2)
    aside, path = GroundAside(aside=True), np.array([[1.0, 1.0], [2.0, 1.0]])
    here, given = np.array([1.0, 1.0]), GroundSettings(frame="map")
    area, travel = aside.ground_at(here, free, path, 0.5, given)
    assert travel is None and aside.waiting and aside.making and "looked at" in area.reason
    assert aside.area is None and aside.made_count == 0
    assert begun[0] is not path, "the map appends to its own"
    finish(gate, aside)
    area, travel = aside.ground_at(here, free, path, 0.5, given)
    assert travel is not None and not aside.waiting and not aside.making
    assert aside.area is area and aside.made_count == 1
    assert aside.ground_at(here, free, path, 0.5, given)[1] is travel and not aside.making

    # another map: what was made for the one before leads through its walls
    walled = FreeSpace.from_occupancy_grid(floor(wall=True), radius=0.2)
    area, none = aside.ground_at(here, walled, path, 0.5, given)
    assert none is None and aside.waiting and aside.making
    finish(gate, aside)
    _, other = aside.ground_at(here, walled, path, 0.5, given)
    assert other is not None and other is not travel and aside.made_count == 2

    # a small one is made at once, and so is every one where no thread is wanted
    monkeypatch.setattr(free_maps, "_AT_ONCE", free.open.size)
    assert aside.ground_at(here, free, path, 0.5, given)[1] is not None and not aside.making
    assert aside.made_count == 3 and not aside.waiting
    with monkeypatch.context() as fewer:
        fewer.setattr(free_maps, "_OPEN_AT_ONCE", np.count_nonzero(walled.open) - 1)
        assert aside.ground_at(here, walled, path, 0.5, given)[1] is None and aside.making
        finish(gate, aside)

    # so is one with polygons of few corners; with many the map would wait for it
    square = Polygon.from_corners([(0.1, 0.1), (2.9, 0.1), (2.9, 2.9), (0.1, 2.9)])
    for polygons in ({"region": (square,)}, {"keep_out": (square,)}):
        for compared in (4 * free.open.size - 1, 4 * free.open.size):
            monkeypatch.setattr(free_maps, "_COMPARED", compared)
            aside = GroundAside(aside=True)
            aside.ground_at(here, free, path, 0.5, replace(given, **polygons))
            assert aside.waiting == (compared < 4 * free.open.size)
            finish(gate, aside)
    monkeypatch.setattr(free_maps, "_AT_ONCE", 0)
    plain = GroundAside()
    assert plain.ground_at(here, free, path, 0.5, given)[1] is not None and not plain.making


def test_a_ground_of_which_nothing_is_left_is_an_answer_too():
    """A region that the robot cannot reach: its ground was made again and again, and nobody was told."""
    far = (Polygon.from_corners([(50.0, 50.0), (52.0, 50.0), (52.0, 52.0)]),)
    ground, path = GroundAside(aside=True), np.array([[1.0, 1.0], [1.8, 1.5], [1.0, 1.6]])
    asked = 0
    while asked == 0 or ground.waiting:
        while ground.making:
            time.sleep(0.001)
        area, travel = ground.ground_at(path[-1], None, path, 0.8, GroundSettings(region=far))
        asked += 1
        assert asked < 5
    assert not area and travel is None and area.reason
