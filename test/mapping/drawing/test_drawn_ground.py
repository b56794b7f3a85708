"""What the newest drawing leaves out is known, also of a map that nobody draws."""

from gp_mapping import MapSettings
from gp_mapping.mapping.drawing import ground
from gp_mapping.mapping.drawing.ground import DrawnGround, Ground


def test_notes_are_of_the_newest_drawing_and_renewed_where_nobody_draws(monkeypatch):
    looked = []

    def chosen(settings, path):
        looked.append(path)
        return Ground([0.0, 0.0], [2.0, 1.0], (1.0, 0.5), [f"leaves out {path}"])

    monkeypatch.setattr(ground, "choose_ground", chosen)
    drawn, settings = DrawnGround(), MapSettings()
    drawn.look_again(settings, "a", 0)
    assert drawn.notes == ["leaves out a"], "nobody has looked before"

    assert drawn.choose(settings, "b", 10).bounds == ([0.0, 0.0], [2.0, 1.0])
    drawn.look_again(settings, "c", 10 + ground.LOOK_AGAIN - 1)
    assert drawn.notes == ["leaves out b"] and looked == ["a", "b"]
    drawn.look_again(settings, "c", 10 + ground.LOOK_AGAIN)
    assert drawn.notes == ["leaves out c"]
