"""Whose choices come right before one of this robot."""

import numpy as np

from gp_mapping.planning.others import Others, take_turns


def test_robots_choose_in_turn_each_as_long_as_it_has_choices():
    earlier = [np.array([[float(k), 0.0]]) for k in range(2)]
    later = [np.array([[float(k), 1.0]]) for k in range(3)]
    turns = take_turns([earlier], [later], 5)
    told = [[each[0].tolist() for each in turn] for turn in turns]
    assert told == [
        [[0.0, 0.0]],
        [[0.0, 1.0], [1.0, 0.0]],
        [[1.0, 1.0]],
        [[2.0, 1.0]],
        [],
    ]
    others = Others(turns=turns)
    assert others.before(1) is turns[1] and others.before(5) == ()
