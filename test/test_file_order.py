"""The files that take long are begun first, so that several processes end together."""

from pathlib import Path

import pytest
from file_order import LONG

HERE = Path(__file__).parent


def test_the_long_files_come_first_in_their_order(request):
    assert len(set(LONG)) == len(LONG) and not [
        name for name in LONG if not (HERE / name).is_file()
    ]
    order = list(
        dict.fromkeys(item.path.relative_to(HERE).as_posix() for item in request.session.items)
    )
    known = [name for name in LONG if name in order]
    assert order[: len(known)] == known
    if request.config.pluginmanager.hasplugin("xdist"):
        assert not request.config.option.loadscopereorder, (
            "xdist would order them by their number of tests"
        )


def test_no_two_files_have_one_name():
    """Pytest imports each by its name alone; of two in different folders the second would not be run."""
    names = [file.name for file in HERE.rglob("test_*.py")]
    assert len(set(names)) == len(names), sorted(n for n in set(names) if names.count(n) > 1)


@pytest.mark.parametrize("count", [2, 3])
def test_processes_that_take_files_in_this_order_begin_with_those_that_wait_and_those_that_compute(
    count,
):
    assert {name.split("/")[0] == "ros" for name in LONG[:count]} == {True, False}
