"""A recording is divided into what maps and what tests: each measurement once, in their order."""

import numpy as np
import pytest
import torch

from gp_mapping.analysis.refits import split, split_passes, ways_to_refit
from gp_mapping.core.types import Samples
from gp_mapping.errors import UsageError
from gp_mapping.settings.mapping import MapSettings


def passes(*sizes):
    """Passes of so many samples, whose stamps number them."""
    ends = np.cumsum(sizes)
    return [
        Samples(torch.zeros(n, 2), torch.zeros(n, 1), stamp=torch.arange(end - n, end).double())
        for n, end in zip(sizes, ends)
    ]


def numbers(part):
    return [int(stamp) for each in part for stamp in each.stamp]


@pytest.mark.parametrize(
    "sizes, first, words",
    [
        # a boundary within a tenth of seven tenths, the nearest of them; else a cut there
        ((60, 40), 60, "passes 1 to 1 of 2 map"),
        ((59, 41), 70, "the first 70 %"),
        ((79, 21), 79, "passes 1 to 1 of 2 map"),
        ((81, 19), 70, "the first 70 %"),
        ((62, 6, 32), 68, "passes 1 to 2 of 3 map"),
        ((66, 6, 28), 72, "passes 1 to 2 of 3 map"),
        ((100,), 70, "the first 70 %"),
        ((30, 10, 45, 15), 70, "the first 70 %"),
        ((150, 150), 210, "the first 70 %"),
    ],
)
def test_seven_tenths_map_and_the_others_test(sizes, first, words):
    mapped, tested, told = split(passes(*sizes))
    assert numbers(mapped) == list(range(first)) and told.startswith(words)
    assert numbers(tested) == list(range(first, sum(sizes)))
    assert all(len(part) for part in (*mapped, *tested)), "no pass of nothing"


def test_fewer_than_fifty_on_either_side_are_too_few():
    assert split(passes(100))
    with pytest.raises(UsageError, match="only 99 measurements.*no_pose; give a longer"):
        split(passes(60, 39), ["12 no_pose"])


def test_passes_come_from_a_stream_in_pieces():
    """Its first piece begins one, whether it says so or not."""
    parts = zip((False, False, True, False, True), passes(3, 4, 5, 6, 7))
    assert [numbers([each]) for each in split_passes(parts)] == [
        list(range(7)),
        list(range(7, 18)),
        list(range(18, 25)),
    ]
    assert split_passes([]) == []


def test_only_what_a_map_has_is_left_out():
    """All of a map as it is; without a body-fixed field, with a learned lever arm, and of one that learns nothing."""
    every = ways_to_refit(MapSettings(), True)
    assert list(every) == [
        "without_offset",
        "without_heading",
        "without_both",
        "without_bias",
        "with_lever_arm",
    ]
    both = every["without_both"]
    assert not (both.learn_time_offset or both.time_offset or both.heading_stddev)
    assert every["without_offset"].heading_stddev == MapSettings().heading_stddev > 0.0
    assert every["without_heading"].learn_time_offset and every["with_lever_arm"].learn_lever_arm
    assert not every["without_bias"].learns_bias
    for settings, biased, names in (
        ({"heading_stddev": 0.0}, False, ["without_offset", "with_lever_arm"]),
        ({"heading_stddev": 0.0, "learn_lever_arm": True}, False, ["without_offset"]),
        ({"learn_time_offset": False, "learn_lever_arm": True}, False, ["without_heading"]),
        ({"learn_time_offset": False, "time_offset": 0.1, "heading_stddev": 0.0}, False, None),
    ):
        told = list(ways_to_refit(MapSettings(**settings), biased))
        assert told == (names or ["without_offset", "with_lever_arm"])
