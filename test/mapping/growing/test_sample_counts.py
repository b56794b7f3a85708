"""Of n raw samples that came, those used and those refused are n together, whatever maps they went through."""

from gp_mapping.mapping.growing.counts import SampleCounts


def counts(used=0, refused=0, lost=0):
    """After so many that entered a cell, were refused before, and were lost with their cell."""
    made = SampleCounts(used=used)
    made.refuse(refused, "no value")
    made.lose(lost, "full")
    return made


def test_what_is_lost_with_its_cell_goes_over_from_used_to_refused():
    made = counts(10, 3, 4)
    assert (made.used, made.refused, made.lost, made.entered) == (6, 7, 4, 10)
    assert made.last_refusal == "full"


def test_offered_again_it_counts_as_used_until_it_is_refused_again():
    made = counts(10, 3, 4)
    made.offer_again()
    assert (made.used, made.refused, made.lost, made.last_refusal) == (10, 3, 0, "")
    made.lose(2, "still full")
    assert (made.used, made.refused, made.lost) == (8, 5, 2)


def test_a_map_that_took_all_cells_again_follows_with_its_own_losses():
    new = counts(0, 0, 5)
    new.follow(counts(10, 3, 4))
    assert (new.used, new.refused, new.lost) == (5, 8, 5) and new.used + new.refused == 13


def test_two_maps_add_and_a_saved_one_goes_on():
    made = counts(10, 3, 4)
    made.join(counts(20, 1, 2))
    assert (made.used, made.refused, made.lost) == (24, 10, 6)
    again, older = SampleCounts(), SampleCounts()
    again.load_state_dict(made.state_dict())
    older.load_state_dict({"raw_count": 7})
    assert (again.used, again.refused, again.lost) == (24, 10, 6)
    assert (older.used, older.refused, older.lost) == (7, 0, 0)
