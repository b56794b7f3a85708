"""Scores of a map against the truth."""

import numpy as np
import pytest

from gp_mapping.sim.evaluation import near_path, score_map


def test_scores_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    truth = rng.normal(50.0, 10.0, 20000)
    score = score_map(truth + rng.normal(0.5, 2.0, 20000), np.full(20000, 2.0), truth)
    assert score.points == 20000
    assert score.rmse == pytest.approx(np.hypot(2.0, 0.5), rel=0.02)
    assert score.bias == pytest.approx(0.5, abs=0.06)
    assert score.coverage == pytest.approx(0.943, abs=0.01)  # 0.95 but for the bias
    assert score.nlpd == pytest.approx(
        np.log(2.0) + 0.5 * np.log(2 * np.pi) + 0.5 * (1 + 0.25 / 4.0), abs=0.02
    )
    assert score.field_stddev == pytest.approx(10.0, rel=0.02) and score.mean_stddev == 2.0


def test_certainty_that_errs_has_no_density():
    assert score_map([1.0, 2.0], [0.5, 0.0], [1.0, 2.5]).nlpd == np.inf


def test_near_path_is_by_distance():
    path = np.column_stack([np.linspace(0, 1, 101), np.zeros(101)])
    xy = np.array([[0.5, 0.29], [0.5, 0.31], [1.2, 0.0], [-0.4, 0.0]])
    assert near_path(xy, path, 0.3).tolist() == [True, False, True, False]
    assert near_path(xy, path, np.inf).all()
    assert not near_path(xy, np.empty((0, 2)), 0.3).any()


@pytest.mark.parametrize("arguments", [([], [], []), ([1.0], [1.0], [1.0, 2.0])])
def test_nothing_to_compare_is_an_error(arguments):
    with pytest.raises(ValueError, match="same number"):
        score_map(*arguments)
