"""Words of reports and pictures."""

import pytest

from gp_mapping.store.wording import passes_text


@pytest.mark.parametrize("number, text", [(0, "0 passes"), (1, "1 pass"), (2, "2 passes")])
def test_one_pass_is_one(number, text):
    assert passes_text(number) == text
