"""The yaw rate is that of the newest headings: by their first and last stamp, over a fixed span."""

import math

import pytest

from gp_mapping.mapping.motion.attitude import HeadingTrack


@pytest.mark.parametrize("gap", [False, True])
def test_what_lies_longer_ago_does_not_count(gap):
    """A robot that turned at 1 rad/s for a second, and then at .3 rad/s the other way, past π."""
    track, psi, rates = HeadingTrack(0.0), 3.0, []
    for k in range(100):
        psi += 0.02 if k < 50 else -0.006
        heading = [math.cos(psi), math.sin(psi)]
        more = [None] if gap else []  # a sample without one, where nothing else tells it
        stamps = [0.02 * k, 0.02 * k + 0.01][: 1 + gap]
        rates.append(track.steps([[0.0, 0.0]] * len(stamps), stamps, [heading, *more])[1][0])
    assert rates[0] == 0.0 and rates[10:45] == pytest.approx([1.0] * 35, rel=0.1)
    assert rates[70:] == pytest.approx([-0.3] * 30, rel=0.1)
