"""What the next plan is asked: what is kept from question to question."""

from collections import deque

import numpy as np
import pytest
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
