"""Drives whose poses are in two frames are named with the transform between them, and nothing else is taken for it."""

import dataclasses
import math
from itertools import islice

import pytest
import torch
from drifting import LENGTH, crossing, done, lanes, passes, way
from slow_sensor import field

from gp_mapping.mapping.drift.track_evidence import SURE
from gp_mapping.mapping.frames import search
from gp_mapping.mapping.frames.alignment import Aligned, Alignment
from gp_mapping.mapping.frames.matching import Moved
from gp_mapping.mapping.frames.search import ALIKE, APART, CLOCK, MOVED, FrameSearch

STEP = LENGTH / 2.5  # m, between blocks
SMALL = [lanes(6.0, 5.0, 1.3, STEP), lanes(5.0, 6.0, 1.3, STEP).flip(1)]


def told(parts, *moves):
    """Passes, the latter ones as an odometry tells them whose frame lies there in the first one's."""
    out = parts[: len(parts) - len(moves)]
    for part, moved in zip(parts[len(out) :], moves):
        back = (part.x - part.x.new_tensor(moved[:2])) @ moved.turn
        out.append(dataclasses.replace(part, x=back))
    return out


def found(parts, lengthscale=2.4):
    return FrameSearch(way(parts), lengthscale, "matern52").finish()


@pytest.mark.parametrize(
    ("seed", "moved"),
    [(1, Moved(3.0, -2.0, 0.7)), (2, Moved(0.4, 0.3, -0.05)), (3, Moved(9.0, 8.0, math.pi))],
)
def test_an_odometry_that_begins_elsewhere(seed, moved):
    """With another constant in its pass, and a lengthscale that is not the field's."""
    parts = passes(seed, crossing(STEP))
    parts[1] = dataclasses.replace(parts[1], y=parts[1].y + 0.7)
    (only,) = found(told(parts, moved))
    assert (only.kind, only.pass_number, only.stamp) == (MOVED, 2, float(parts[1].stamp[0]))
    middle = parts[1].x.mean(0, keepdim=True)
    back = told(parts, moved)[1].x.mean(0, keepdim=True)
    assert float((only.moved.places(back) - middle).norm()) < max(5.0 * only.stddev, 0.1)
    turned = math.remainder(only.moved.yaw - moved.yaw, math.tau)
    assert abs(turned) < max(5.0 * only.turn_stddev, 0.01)
    assert only.stddev < 0.1 and only.gain > 8.0


def test_three_frames():
    paths = [*crossing(STEP), lanes(10.0, 8.0, 2.0, STEP)]
    moves = [Moved(3.0, -2.0, 0.7), Moved(-2.0, 1.0, -1.5)]
    breaks = found(told(passes(4, paths), *moves))
    assert [(each.kind, each.pass_number) for each in breaks] == [(MOVED, 2), (MOVED, 3)]
    for each, moved in zip(breaks, moves):
        assert torch.tensor(each.moved).sub(torch.tensor(moved)).abs().max() < 0.15


def test_another_field_is_told_apart_but_has_no_transform():
    parts = [passes(5, crossing(STEP))[0], passes(6, crossing(STEP))[1]]
    (only,) = found(parts)
    assert (only.kind, only.pass_number) == (APART, 2)


def test_a_clock_that_differs_between_drives():
    """By the way of a robot that drives lanes to and fro: no shift and no turn puts that right."""
    parts = [passes(7, crossing(STEP))[0], passes(7, crossing(STEP), delay=2.0)[1]]
    (only,) = found(parts)
    assert only.kind == CLOCK and 1.0 < only.seconds < 3.5


@pytest.mark.parametrize(
    "fault",
    [
        {},
        {"noise": 0.4},
        {"delay": 1.0},
        {"tau": 3.0},
        {"wander": 0.1},
        {"moved": 1.5},
        {"drift": 1.0},
        {"drift": 1.0, "warms_up": True},
    ],
)
def test_what_is_one_frame(fault):
    """Each fault makes passes differ in one place, by far more than noise."""
    assert found(passes(8, crossing(STEP), **fault)) is None


class ByChanges(FrameSearch):
    """Log evidence of a change as wide as the field is smooth, and of the most likely one."""

    def _search(self):
        _, self._alone = yield from self._best(self._field)
        x = self.track.x
        usual = yield from self._changed(self.same, torch.cdist(x, x), 1.0)
        return usual, max(done(each) for each in islice(self._others(), 4))


@pytest.mark.parametrize("stddev", [1.0, 1.4])
def test_a_local_change_may_be_narrower_than_the_field_is_smooth(stddev):
    """What passes of one frame say of it then is as likely as it is, so no frame is blamed for it."""
    parts, length = passes(8, SMALL), 4.0
    for number, part in enumerate(parts):
        apart = (part.x - part.x.new_tensor([3.0, 2.5])).square().sum(1)
        y = field(part.x, 8, length) + 3.0 * number * (-0.5 * apart / stddev**2).exp()
        y = part.y[:, 0] - field(part.x, 8, LENGTH) + y
        parts[number] = dataclasses.replace(part, y=y[:, None])
    usual, best = ByChanges(way(parts), length, "matern52").finish()
    assert best > usual + SURE


def test_drives_that_do_not_meet_contradict_nothing_but_may_be_of_one_place():
    """That costs a second, so it is looked at the end of a drive only."""
    moved = Moved(-40.0, 0.0, 0.3)
    parts = told(passes(9, crossing(STEP)), moved)
    assert found(parts) is None
    (only,) = FrameSearch(way(parts), 2.4, "matern52", thorough=True).finish()
    assert (only.kind, only.pass_number) == (ALIKE, 2) and only.gain > 8.0
    assert torch.tensor(only.moved).sub(torch.tensor(moved)).abs().max() < 0.5


def test_drives_of_two_places_are_not_of_one():
    parts = [passes(10, crossing(STEP))[0], passes(11, crossing(STEP))[1]]
    parts = told(parts, Moved(-40.0, 0.0, 0.3))
    assert FrameSearch(way(parts), 2.4, "matern52", thorough=True).finish() is None


def test_one_pass_is_one_frame_whatever_is_in_it():
    part = passes(1, crossing(STEP))[0]
    search = FrameSearch(way([part]), 2.0, "matern52")
    assert search.finish() is None and search.steps == 0


# --- by how much: a search with one rival, and a transform that is given --------------------------


class Beside(FrameSearch):
    """With one rival, which is more likely than one frame by so many nats."""

    more = -math.inf

    def _others(self):
        def rival():
            same, _ = yield from self._best(self._field)
            return same + self.more

        yield rival()


def gain_of(parts, monkeypatch, aligned=None, more=-math.inf, thorough=False):
    """By how much a break is better than the rival, where its transform is given; None: none."""

    class Given(Alignment):
        def _search(self):
            return aligned
            yield

    monkeypatch.setattr(search, "Alignment", Given)
    monkeypatch.setattr(search, "_DELAYS", (1.0,))
    monkeypatch.setattr(Beside, "more", more)
    breaks = Beside(way(parts), 2.4, "matern52", thorough).finish()
    return None if breaks is None else breaks[0].gain


def test_what_is_found_is_surer_than_anything_else(monkeypatch):
    parts = [passes(5, SMALL)[0], passes(6, SMALL)[1]]
    gain = gain_of(parts, monkeypatch)
    almost = gain_of(parts, monkeypatch, more=gain - SURE - 0.1)
    assert gain > 50.0 and almost == pytest.approx(SURE + 0.1)
    assert gain_of(parts, monkeypatch, more=gain - SURE + 0.1) is None


@pytest.mark.parametrize(
    ("moved", "thorough"), [(Moved(3.0, -2.0, 0.7), False), (Moved(-40.0, 0.0, 0.3), True)]
)
def test_a_transform_counts_less_what_so_many_would_suit_by_chance(moved, thorough, monkeypatch):
    """Also where drives hardly meet: no break is named that is not sure beside that."""
    parts = told(passes(5, SMALL), moved)

    def gain(volume):
        return gain_of(parts, monkeypatch, Aligned(moved, volume, 0.1, 0.01), thorough=thorough)

    whole = gain(0.0)
    assert gain(5.0) == pytest.approx(whole - 5.0)
    if thorough:
        assert gain(whole - SURE - 0.1) == pytest.approx(SURE + 0.1)
        assert gain(whole - SURE + 0.1) is None


@pytest.mark.parametrize("another", [0.1, 0.2, 0.25])
def test_where_passes_differ_by_little_no_transform_is_looked_for(another):
    """They share nearly all of the field; what could be found of them costs fifty times as much."""
    one, two = passes(5, SMALL), passes(6, SMALL)
    mixed = (1.0 - another) * one[1].y + another * two[1].y
    short = FrameSearch(way([one[0], dataclasses.replace(one[1], y=mixed)]), 2.4, "matern52")
    assert short.finish() is None and short.steps < 30


def test_a_third_drive_is_laid_on_both_that_are_known(monkeypatch):
    """The second one's places, and which way the robot looked, in the frame of the first one."""
    moved, seen = Moved(3.0, -2.0, 0.7), []

    class Given(Alignment):
        def __init__(self, track, length, kernel, count):
            seen.append((track, count))
            super().__init__(track, length, kernel, count)

        def _search(self):
            return Aligned(moved, 0.0, 0.1, 0.01)
            yield

    monkeypatch.setattr(search, "Alignment", Given)
    monkeypatch.setattr(search, "_DELAYS", (1.0,))
    true = passes(4, [*SMALL, lanes(5.5, 5.0, 1.3, STEP)])
    track = way(told(true, moved, Moved(-6.0, 1.0, -1.5)))
    ahead = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(len(track.y), 2)
    (first, _) = Beside(track._replace(heading=ahead), 2.4, "matern52").finish()
    counts = [len(part) for part in true]
    assert first.moved == moved and [n for _, n in seen] == [counts[0], sum(counts[:2])]
    known, second = seen[1][0], slice(counts[0], sum(counts[:2]))
    assert torch.allclose(known.x[second], true[1].x)
    assert torch.allclose(known.heading[second], moved.turn[:, 0].expand(counts[1], 2))
    assert torch.equal(known.heading[: counts[0]], ahead[: counts[0]])
