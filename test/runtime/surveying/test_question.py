"""What the next plan is asked: what is kept from question to question."""

import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch
from survey_scene import Robot, floor, settings

from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.runtime.surveying.question import Questions

SETTINGS = settings(plan_places=40)


@pytest.fixture(scope="module")
def robot():
    return Robot(SETTINGS, floor(wall=False))


@pytest.fixture
def questions(robot) -> Questions:
    """With one question prepared, of a robot that stands."""
    questions = Questions()
    free = FreeSpace.from_occupancy_grid(robot.message, radius=0.2)
    assert questions.prepare_ground(SETTINGS, robot.session, robot.at, free) and questions.ready
    prepare(questions, robot)
    return questions


def prepare(questions: Questions, robot: Robot):
    deque(questions.steps(SETTINGS, robot.session), maxlen=0)
    return questions.newest.value


def test_a_way_that_an_abandoned_question_was_told_of_is_told_again(robot, questions):
    """Whoever pauses while a plan is made does not make the robot forget where it has measured."""
    questions.record_drive(robot.at, False)
    held = prepare(questions, robot)
    for x in np.arange(1.0, 2.0, 0.05):
        questions.record_drive(np.array([x, 1.0]), False)
    abandoned = questions.steps(SETTINGS, robot.session)
    for _ in range(3):
        next(abandoned)
    abandoned.close()
    assert prepare(questions, robot).C is not held.C, "as if it had not moved"


def test_a_map_that_was_cleared_takes_its_worth_with_it(robot, questions):
    held = prepare(questions, robot)
    assert prepare(questions, robot).C is held.C, "nothing has changed"
    questions.forget()
    assert prepare(questions, robot).C is not held.C


@pytest.mark.parametrize("target, share", [(1.5, 0.6), (1.0, 0.6), (0.9, 0.1), (0.4, 0.0)])
def test_known_is_the_share_of_ground_not_of_cells(questions, target, share):
    question = questions.newest
    areas = torch.tensor([1.0, 5.0, 4.0], dtype=torch.float64)
    area = replace(question.area, cells=torch.zeros(3, 2).double(), areas=areas)
    stddev = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    question = question._replace(area=area, cell_stddev=stddev)
    assert question.known_fraction(target) == pytest.approx(share)
    wanted = replace(SETTINGS, target_stddev=target, target_share=0.6)
    told = f"60% of the area are known to {target:g}" if share == 0.6 else ""
    assert question.end(wanted) == (pytest.approx(share), told)
    share, told = question.end(replace(wanted, target_stddev=0.0))
    assert math.isnan(share) and told == "", "there is no target"
