"""A bag whose reading is cut off again and again is, at last, the bag that was read in one go."""

import functools
import os
from dataclasses import fields

import numpy as np
import pytest
import torch
from fleet_bags import parameters
from small_drive import lanes, write_drive

from gp_mapping.core.types import Samples
from gp_mapping.fleet import cells, robot
from gp_mapping.fleet.cells import BagCells, BagReport, Job, read_bag
from gp_mapping.fleet.robot import calibrate
from gp_mapping.fleet.workers import step_progress
from gp_mapping.fleet.workers.step_progress import StepProgress


class Death(BaseException):
    """Of a worker: nothing in the step may catch it."""


def dying(monkeypatch, after):
    """Whoever reads dies each time that it has kept so many states; what it has had by then, per life."""
    lives, keep = [], StepProgress.save

    def kept(self, state, grown=()):
        keep(self, state, grown)
        lives[-1].append((state.taken if hasattr(state, "taken") else state[-1]).messages)
        if len(lives[-1]) == after:
            raise Death

    def found(self, original=StepProgress.load):
        lives.append([])
        return original(self)

    monkeypatch.setattr(step_progress, "_PERIOD", 0.0)
    monkeypatch.setattr(step_progress, "_WORK", 0.0)
    monkeypatch.setattr(StepProgress, "save", kept)
    monkeypatch.setattr(StepProgress, "load", found)
    for module in (cells, robot):
        monkeypatch.setattr(module, "samples_of", functools.partial(module.samples_of, together=50))
    return lives


def read_in_the_end(job):
    return in_the_end(read_bag, job)


def in_the_end(call, *arguments):
    for _ in range(50):
        try:
            return call(*arguments)
        except Death:
            continue
    raise AssertionError("it never comes to the end")


def assert_same(made: BagCells, whole: BagCells):
    for f in fields(BagReport):
        assert getattr(made.report, f.name) == getattr(whole.report, f.name), f.name
    for f in fields(Samples):
        one, other = getattr(made.cells, f.name), getattr(whole.cells, f.name)
        assert (one is None) == (other is None) and (one is None or torch.equal(one, other)), f.name
    assert repr(made.path) == repr(whole.path)
    assert repr(made.fixes) == repr(whole.fixes)


def outages(i, vector, place):
    """Absurd values, a robot that is carried away, and a frame of other units, in between."""
    return (vector * 1e6 if 200 < i < 220 else vector), (
        place + np.array([0.0, 30.0, 0.0]) if i > 280 else place
    )


@pytest.fixture(scope="module", params=[{}, {"cells": False}, {"robust": False, "bias_time": 5.0}])
def read(request, tmp_path_factory):
    """A bag with outages, and what is read of it in one go."""
    bag = tmp_path_factory.mktemp("outages") / "robot"
    write_drive(bag, lanes(count=4), rate=20.0, spoil=outages)
    job = Job(0, str(bag), parameters(**request.param), {})
    return job, read_bag(job)


@pytest.mark.parametrize("after", [1, 3])
def test_a_reading_that_is_cut_off_gives_the_same_cells(tmp_path, monkeypatch, read, after):
    job, whole = read
    lives = dying(monkeypatch, after)
    made = read_in_the_end(Job(0, job.bag, job.parameters, {}, str(tmp_path)))
    assert not whole.report.failed and sum(whole.report.dropped.values())
    assert_same(made, whole)
    had = [n for life in lives for n in life]
    assert len(lives) > 2 and had == sorted(set(had)), (
        "no message is read in a second life that a first one kept"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["0.cells"], (
        "the way is not kept once it is done"
    )


def test_what_a_cut_recording_has_lost_is_counted_once(tmp_path, monkeypatch):
    """metadata.yaml tells how many messages there were."""
    n = write_drive(tmp_path / "robot", lanes(count=3), rate=20.0)
    stored = tmp_path / "robot" / "robot.mcap"
    os.truncate(stored, stored.stat().st_size * 7 // 10)
    job = Job(0, str(tmp_path / "robot"), parameters(), {})
    whole = read_bag(job)
    lost = whole.report.dropped["unreadable"]
    assert whole.report.received == {"magnetic_field": n, "odometry": n} and n / 5 < lost < n / 2
    assert sum("robot.mcap: cut off in a chunk" in text for text in whole.report.warnings) == 1
    dying(monkeypatch, 1)
    assert_same(read_in_the_end(Job(0, job.bag, job.parameters, {}, str(tmp_path))), whole)


@pytest.mark.parametrize(
    "spoil", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"\x80\x05junk"]
)
def test_a_state_that_cannot_be_read_costs_time_only(tmp_path, monkeypatch, spoil):
    write_drive(tmp_path / "robot", lanes(count=3), rate=20.0)
    job = Job(0, str(tmp_path / "robot"), parameters(), {}, str(tmp_path))
    whole = read_bag(Job(0, job.bag, job.parameters, {}))
    with monkeypatch.context() as patched:
        dying(patched, 2)
        with pytest.raises(Death):
            read_bag(job)
    kept = tmp_path / "0.halfway"
    kept.write_bytes(spoil(kept.read_bytes()))
    assert StepProgress(kept).load() is None
    assert_same(read_bag(job), whole)


def test_a_disk_that_is_full_costs_the_file_and_not_the_step(tmp_path):
    kept = StepProgress(tmp_path / "no such folder" / "0.halfway")
    kept.save({"a": 1})
    assert kept.load() is None and not kept.due()
    kept.remove()


def test_of_a_list_that_grows_only_what_is_new_is_written(tmp_path):
    """Also by a life that goes on where another ended, beside one that is still under way."""
    file, items = tmp_path / "state", [b"1" * 1000]
    first, second = StepProgress(file), StepProgress(file)
    first.save(1, items)
    assert second.load() == (1, items)

    first.save(2, [*items, b"2"])  # which nobody reads any more once the other has kept its own
    second.save(3, [*items, b"3", b"4"])
    second.save(4, [*items, b"3", b"4"])
    assert StepProgress(file).load() == (4, [*items, b"3", b"4"])
    sizes = sorted(p.stat().st_size for p in tmp_path.iterdir() if p != file)
    assert len(sizes) == 3 and sizes[-1] > 1000 > 10 * sizes[-2]

    second.remove()
    assert not list(tmp_path.iterdir()), "what the first has left as well"


def test_writing_takes_a_small_part_of_the_time(tmp_path, monkeypatch):
    """Of a state that takes long to write less often."""
    now = [0.0]
    monkeypatch.setattr(step_progress.time, "monotonic", lambda: now[0])

    class Slow:
        def __reduce__(self):
            now[0] += 1.0
            return int, ()

    kept = StepProgress(tmp_path / "state")
    assert not kept.due()
    now[0] = 2.0
    assert kept.due()
    kept.save(Slow())
    assert kept.load() == (0, [])
    now[0] += 19.0
    assert not kept.due()
    now[0] += 2.0
    assert kept.due()
    assert not StepProgress(None).due() and StepProgress(None).load() is None


@pytest.mark.parametrize(
    "settings", [{}, {"lengthscale": 0.3, "max_inducing": 60, "map_tile_side": 5.0}]
)
def test_a_calibration_that_is_cut_off_gives_the_same_robot(tmp_path, monkeypatch, settings):
    write_drive(tmp_path / "robot", lanes(count=3), rate=20.0, spoil=outages)
    job = Job(0, str(tmp_path / "robot"), parameters(**settings), {})
    monkeypatch.setattr(robot, "samples_of", functools.partial(robot.samples_of, together=100))
    whole = calibrate(job, 60)
    lives = dying(monkeypatch, 2)
    made = in_the_end(calibrate, Job(0, job.bag, job.parameters, {}, str(tmp_path)), 60)
    assert not whole[0].failed and len(lives) > 1
    had = [n for life in lives for n in life]
    assert had == sorted(set(had)), "no message is read in a second life that a first one kept"
    assert repr(made[0]) == repr(whole[0])
    assert repr(made[1].noise.state_dict()) == repr(whole[1].noise.state_dict())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.robot", "robot"]
