"""Two mappers under one robot's name are told from one that was restarted."""

from gp_mapping.runtime.team.rivals import Rivals


def hear(rivals, *heard, begin, end):
    """Each map once in ten seconds; whether anything changed."""
    return [rivals.note(m, float(now)) for now in range(begin, end, 10) for m in heard]


def test_a_robot_that_is_restarted_again_and_again_is_one():
    rivals = Rivals()
    for i in range(5):
        hear(rivals, f"map{i}", begin=100 * i + 20, end=100 * i + 100)
        hear(rivals, f"map{i}", f"map{i + 1}", begin=100 * i + 100, end=100 * i + 120)  # on the way
    assert not rivals.found and not any(rivals.leaves_out(f"map{i}") for i in range(5))


def test_of_two_at_once_the_first_counts_until_it_is_silent():
    rivals = Rivals()
    assert not any(hear(rivals, "old", begin=0, end=50))
    assert not any(hear(rivals, "a", "b", begin=50, end=80)) and not rivals.found
    assert hear(rivals, "a", "b", begin=80, end=200).count(True) == 1
    assert rivals.found and rivals.leaves_out("b")
    assert not rivals.leaves_out("a") and not rivals.leaves_out("old")
    assert not any(hear(rivals, "a", begin=200, end=300)) and rivals.leaves_out("b")

    # the user ends the first one: the other goes on in its place, and stays
    assert hear(rivals, "b", begin=300, end=400).count(True) == 1
    assert rivals.leaves_out("a") and not rivals.leaves_out("b")
    assert not any(hear(rivals, "a", "b", begin=400, end=500)) and rivals.leaves_out("a")


def test_a_map_that_is_dropped_leaves_the_others_in():
    rivals = Rivals()
    hear(rivals, "a", "b", "c", begin=0, end=100)
    assert rivals.leaves_out("b") and rivals.leaves_out("c")
    rivals.drop("a")
    assert rivals.leaves_out("c") and not rivals.leaves_out("b")
    rivals.drop("b")
    assert not rivals.found and not rivals.leaves_out("c")
