"""Robots of a team choose their suggestions in turn: they settle, whatever is lost, on places of their own."""

import random

import numpy as np
import pytest
from survey_scene import Robot, floor, settings

from gp_mapping.planning.others import points_along, take_turns
from gp_mapping.runtime.surveying.suggester import Suggester
from gp_mapping.runtime.team.claims import Claims

KINDS = ("gain_per_metre", "variance")
APART = 0.2  # m, of places
NAMES = ("/a/mapping", "/b/mapping", "/c/mapping")


@pytest.fixture(scope="module")
def robot() -> Robot:
    return Robot(settings(), floor(wall=False))


@pytest.fixture(scope="module")
def grid(robot):
    return robot.session.render()


class Member:
    """A robot of a team, at some place, on the map that all have in common."""

    def __init__(self, name: str, kind: str, count: int = 2, lines=list, apart: float = APART):
        self.name, self.claims = name, Claims(name, lines)
        self._suggest = Suggester(
            settings(suggestion_kind=kind, suggestion_count=count, suggestion_distance=apart),
            claims=self.claims,
        )

    def choose(self, robot, grid, at=(1.0, 1.0)):
        return self._suggest(robot.session, grid, at, robot.message, "map")


def place(x: float, y: float = 0.0) -> np.ndarray:
    return np.array([[x, y]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_team_settles_on_places_apart_though_messages_are_lost(robot, grid, kind):
    rng, team, chosen = random.Random(0), [Member(name, kind) for name in NAMES], {}

    def talk(loss: float = 0.0) -> dict:
        for member in team:
            suggestions = member.choose(robot, grid)
            chosen[member.name] = suggestions.positions.numpy()
            for other in team:
                if other is not member and rng.random() >= loss:
                    other.claims.take(member.name, suggestions.parts, 0.0)
        return {name: places.tolist() for name, places in chosen.items()}

    for loss in (0.4, 0.4, 0.0, 0.0):
        before = talk(loss)
    assert talk() == before, "they change their minds"

    # the first in order chooses as if it were alone, and nobody goes where another one goes
    assert before[NAMES[0]][0] == Member("", kind).choose(robot, grid).positions[0].tolist()
    places = np.concatenate(list(chosen.values()))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert len(places) == 6 and apart[np.triu_indices(6, 1)].min() >= APART


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_plan_to_drive_is_left_to_them(robot, grid, kind):
    alone = Member("/b/mapping", kind, count=1).choose(robot, grid).positions[0].numpy()
    aside = np.array([0.6, 0.0])
    line = np.stack([alone - aside, alone + aside])
    # that robot comes later in order, but it drives its plan whatever is suggested here
    member = Member("/b/mapping", kind, count=1, lines=lambda: [line])
    member.claims.take("/c/mapping", (), 0.0)
    there = member.choose(robot, grid).positions[0].numpy()
    assert np.linalg.norm(there - alone) > APART


@pytest.mark.parametrize("kind", KINDS)
def test_a_distance_is_kept_from_the_places_of_others(robot, grid, kind):
    """However much is left to measure in between."""
    member = Member("/b/mapping", kind, count=1)
    first = member.choose(robot, grid).positions.numpy()
    member.claims.take("/a/mapping", (first,), 0.0)
    near = float(np.linalg.norm(member.choose(robot, grid).positions[0].numpy() - first))
    far = Member("/b/mapping", kind, count=1, apart=near + 0.2)
    far.claims.take("/a/mapping", (first,), 0.0)
    places = far.choose(robot, grid).positions.numpy()  # none, where nothing is as far
    assert (np.linalg.norm(places - first, axis=1) >= near + 0.2).all()


def test_choices_are_made_in_turn():
    a, b = [place(1), place(2)], [place(3), place(4), place(5)]
    turns = take_turns([a], [b], 4)
    assert [[x[-1, 0] for x in turn] for turn in turns] == [[1], [3, 2], [4], [5]]
    claims = Claims("/b/mapping")
    claims.take("/c/mapping", tuple(b), 0.0)
    claims.take("/a/mapping", tuple(a), 0.0)
    others = claims.others(2)
    assert [[x[-1, 0] for x in turn] for turn in others.turns] == [[1], [3, 2]]
    assert others.before(2) == () and claims.places == 5
    # a base station comes after every robot
    last = Claims()
    last.take("/a/mapping", tuple(a), 0.0)
    assert [[x[-1, 0] for x in turn] for turn in last.others(2).turns] == [[1], [2]]


def test_what_is_not_repeated_expires_and_what_is_repeated_is_no_news():
    claims = Claims("/a/mapping", lasts=20.0)
    claims.take("/b/mapping", (place(1),), 0.0)
    claims.take("/c/mapping", (place(2),), 0.0)
    news = claims.news
    claims.take("/b/mapping", (place(1),), 15.0)
    assert claims.expire(19.0) == [] and claims.news == news
    assert claims.expire(21.0) == ["/c/mapping"] and claims.news == news + 1 and claims.places == 1
    claims.take("/b/mapping", (), 22.0)
    assert claims.places == 0 and claims.news == news + 2 and claims.expire(99.0) == []


def test_points_along_lines_are_bounded():
    line = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]])
    x = points_along([line, place(9.0)], 0.5, 100)
    steps = np.linalg.norm(x[:, None] - x[None], axis=2) + 9.0 * np.eye(len(x))
    assert len(x) == 10 and steps[:-1, :-1].min(0).max() <= 0.5 + 1e-9
    assert len(points_along([line * 1e6], 0.5, 100)) == 100
    assert points_along([], 0.5, 100).shape == (0, 2)
