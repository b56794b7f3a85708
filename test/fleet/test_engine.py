"""Steps in this process."""

import pytest

from gp_mapping.errors import UsageError
from gp_mapping.fleet.engine import Here


def test_a_step_that_failed_says_why_each_time_it_is_asked():
    """And what it needs is there still, where it is done again."""
    tries = []

    def fussy(a, b):
        tries.append(a + b)
        if len(tries) < 3:
            raise UsageError(f"not yet {a} and {b}")
        return a + b

    with Here() as engine:
        handle = engine.step("sum", fussy, engine.step("one", int, "1"), 2)
        following = engine.step("text", str, handle)
        for _ in range(2):
            with pytest.raises(UsageError, match="not yet 1 and 2"):
                engine.result(following)
        assert engine.result(following) == "3" and engine.result(handle) == 3
    assert tries == [3, 3, 3]
