"""A map says that its passes are in two frames, whatever else these look like; the watch is bounded and goes on."""

import copy
import dataclasses
import math
from collections import deque
from functools import lru_cache

import pytest
import torch
from drifting import LENGTH, lanes, passes
from states import same

from gp_mapping.commands.check.frames import frame_breaks
from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.stepwise import Stepwise
from gp_mapping.mapping.frames import watch
from gp_mapping.mapping.frames.matching import Moved
from gp_mapping.mapping.frames.search import ALIKE, APART, CLOCK, MOVED, Break
from gp_mapping.mapping.frames.watch import FrameWatch
from gp_mapping.mapping.notes.frames import break_note
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

MOVE = Moved(1.5, -1.0, 0.6)
ONE_FRAME = passes(1, [lanes(6.0, 5.0, 1.0, 0.2), lanes(5.0, 6.0, 1.0, 0.2).flip(1)])
TWO_FRAMES = [
    ONE_FRAME[0],
    dataclasses.replace(
        ONE_FRAME[1], x=(ONE_FRAME[1].x - torch.tensor(MOVE[:2], dtype=torch.float64)) @ MOVE.turn
    ),
]
GIVEN = {"model": "exact", "field_scale": 1.0, "field_unit": "°C", "heading_stddev": 0.0}
GIVEN |= {"lengthscale": LENGTH, "signal_stddev": 1.0, "noise_stddev": 0.05, "constant_stddev": 3.0}
GIVEN |= {"learn_hyperparameters": False, "learn_time_offset": False, "cell_length": 0.4}


def mapped(parts, **settings):
    session = MapSession(MapSettings(**(GIVEN | settings)))
    for part in parts:
        session.break_pass()
        session.ingest(part)
    session.finish()
    return session


@lru_cache
def broken():
    return mapped(TWO_FRAMES, learn_response_time="always")


def watched(parts, settings=None):
    """What a watch finds of them, as cells."""
    out = FrameWatch(settings or MapSettings(**GIVEN))
    for number, part in enumerate(parts, 1):
        for row in range(0, len(part), 2):
            out.add(part[row : row + 1], number)
            out.look(lambda: LENGTH)
    deque(out.looking_last(lambda: LENGTH))
    return out


def test_a_map_of_two_frames_says_so_and_takes_them_for_no_slow_sensor():
    """It took a time constant of 14 s and a drift for the cause, and said nothing of the poses."""
    session = broken()
    (note,) = (text for text in session.warnings if "another frame" in text)
    (only,) = session.gathered.frames.breaks
    assert only.pass_number == 2 and 0.0 <= only.stamp - float(TWO_FRAMES[1].stamp[0]) < 2.0
    assert torch.tensor(only.moved).sub(torch.tensor(MOVE)).abs().max() < 0.1
    assert note == break_note(only)
    assert not session.response.is_active and session.drift.drift is None
    (again,) = frame_breaks(session, TWO_FRAMES)
    assert again.kind == MOVED and again.pass_number == 2


def test_a_map_of_one_frame_says_nothing():
    session = mapped(ONE_FRAME)
    assert session.warnings == [] and frame_breaks(session, ONE_FRAME) == []


def test_it_goes_on_exactly_where_it_was_saved():
    """Also in the middle of a search."""
    one, settings = watched(TWO_FRAMES[:1]), MapSettings(**GIVEN)
    for row in range(0, len(TWO_FRAMES[1]), 2):
        cell = TWO_FRAMES[1][row : row + 1]
        one.add(cell, 2)
        one.look(lambda: LENGTH)
        if one.is_looking:
            break
    assert not one.breaks
    other = FrameWatch(settings)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for each in (one, other):
        for row in range(0, 40):
            each.add(TWO_FRAMES[1][100 + row : 101 + row], 2)
            each.look(lambda: LENGTH)
    assert same(one.state_dict(), other.state_dict())
    done = broken().gathered.frames
    again = FrameWatch(settings)
    again.load_state_dict(done.state_dict())
    assert again.breaks == done.breaks and again.notes() == done.notes()


def test_what_it_keeps_is_bounded(monkeypatch):
    """Twice as long blocks find the same."""
    monkeypatch.setattr(watch, "_MOST", 150)
    kept = watched(TWO_FRAMES)
    assert len(kept.state_dict()["kept"]) <= 150
    (only,) = kept.breaks
    assert only.kind == MOVED and torch.tensor(only.moved).sub(torch.tensor(MOVE)).abs().max() < 0.1


def test_halved_rows_stay_in_their_pass():
    rows = [
        [float(k), 0.0, 0.0, float(k), float(p), 1.0, 0.0] for k, p in enumerate((1, 1, 1, 2, 2))
    ]
    assert [(row[0], row[4]) for row in watch.halved(rows)] == [(0.5, 1.0), (2.0, 1.0), (3.5, 2.0)]


def one_row(x, value, stamp):
    """A cell."""
    numbers = torch.tensor([[x, 0.0], [value, stamp]], dtype=torch.float64)
    return Samples(numbers[:1], numbers[1:, :1], stamp=numbers[1, 1:])


def test_what_it_keeps_of_more_cells_are_their_means(monkeypatch):
    monkeypatch.setattr(watch, "_MOST", 3)
    out = FrameWatch(MapSettings(**GIVEN))
    for k in range(4):
        out.add(one_row(float(k), 2.0 * k, 10.0 * k), 1)
    assert out.state_dict()["kept"][:, :4].tolist() == [[0.5, 0, 1, 5], [2.5, 0, 5, 25]]


def test_a_new_pass_is_looked_at_when_it_is_six_lengthscales_long_and_then_at_each_doubling(
    monkeypatch,
):
    class Nothing(Stepwise):
        def _search(self):
            looked.append(out.state_dict()["own"])
            return None
            yield

    monkeypatch.setattr(watch, "FrameSearch", Nothing)
    monkeypatch.setattr(watch, "_MORE", math.inf)  # not by how many cells there are
    looked, out = [], FrameWatch(MapSettings(**GIVEN))
    for k in range(200):
        out.add(one_row(1.0 * k, 0.0, 1.0 * k), 1 + k // 100)
        out.look(lambda: 2.0)
    for k in range(200, 240):
        out.add(one_row(1.0 * k, 0.0, 1.0 * k), 3)
        deque(out.looking_last(lambda: 2.0)) if k == 220 else out.look(lambda: 2.0)
    assert looked == [12.0, 24.0, 48.0, 96.0, 12.0, 20.0, 24.0]


@pytest.mark.parametrize(
    "cell",
    [
        Samples(torch.zeros(1, 2), torch.zeros(1, 3), stamp=torch.zeros(1)),
        Samples(torch.zeros(1, 2), torch.zeros(1, 1)),
    ],
)
def test_vectors_and_cells_without_stamps_are_not_looked_at(cell):
    out = FrameWatch(MapSettings(**GIVEN))
    out.add(cell, 1)
    assert out.state_dict()["kept"] is None
    deque(out.looking_last(lambda: LENGTH))
    assert out.notes() == []


def test_a_sum_keeps_what_was_found_of_its_parts():
    one, other = FrameWatch(MapSettings(**GIVEN)), FrameWatch(MapSettings(**GIVEN))
    other.breaks = [Break(APART, 2, 5.0, Moved(0.0, 0.0, 0.0), 0.0, 0.0, 0.0, 9.0)]
    one.join(other)
    assert one.notes() == other.notes() != []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            MOVED,
            "moved by (1.00, -2.00) m and turned by 28.6° (± 0.02 m in the middle of that drive, ± 0.2°)",
        ),
        (CLOCK, "stamped about 1.5 s later beside their poses than before"),
        (APART, "contradicts what was measured before in the same places"),
        (
            ALIKE,
            "would go together with what was measured before, which is elsewhere, if its poses were moved",
        ),
    ],
)
def test_what_is_said(kind, words):
    text = break_note(Break(kind, 3, 12.34, Moved(1.0, -2.0, 0.5), 0.02, 0.003, 1.5, 20.0))
    assert text.startswith("from stamp 12.3 (pass 3) on") and words in text
    assert ("--transform SECOND=1.000,-2.000,0.5000" in text) == (kind in (MOVED, ALIKE))


def test_of_a_long_way_blocks_are_longer_and_no_more_than_300():
    """Each the mean of its own part: values that alternate from one usual block to the next are 0."""
    along = torch.arange(0.05, 240.0, 0.1, dtype=torch.float64)
    signs = 1.0 - 2.0 * ((along / 0.4).floor() % 2)
    x = torch.stack([along, 0.0 * along], 1)
    track = watch.track_of_passes([Samples(x, signs[:, None], stamp=along)], 2.0, False)
    assert 290 <= len(track.y) <= 300
    assert track.x[:, 0].diff().median() == pytest.approx(0.8, rel=0.05)
    assert track.y.abs().median() < 0.2
    short = watch.track_of_passes(
        [Samples(x[:400], signs[:400, None], stamp=along[:400])], 2.0, False
    )
    assert 90 <= len(short.y) <= 101 and short.y.abs().median() > 0.8


def test_of_vectors_of_samples_without_stamps_and_of_nothing_there_is_no_track():
    x, good = torch.zeros(3, 2).double(), torch.zeros(3, 1).double()
    stamped = Samples(x, good, stamp=torch.arange(3.0).double())
    assert watch.track_of_passes([], 2.0, False) is None
    assert watch.track_of_passes([stamped, Samples(x, good)], 2.0, False) is None
    vector = Samples(x, torch.zeros(3, 3).double(), stamp=stamped.stamp)
    assert watch.track_of_passes([stamped, vector], 2.0, False) is None
    assert watch.track_of_passes([stamped, stamped[:0]], 2.0, False) is not None
