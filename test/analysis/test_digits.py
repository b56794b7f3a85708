"""Numbers for people keep two digits, however small the field is in its unit."""

import pytest

from gp_mapping.analysis.digits import decimals


@pytest.mark.parametrize(
    "value, text",
    [
        (7.6253, "7.625"),
        (0.0167, "0.017"),
        (0.0, "0.000"),
        (0.0012, "0.0012"),
        (-3.8e-5, "-3.8e-05"),
        (101325.0, "101325.000"),
        (float("nan"), "nan"),
    ],
)
def test_a_number_that_is_not_zero_does_not_read_so(value, text):
    assert decimals(value) == text


def test_fewer_decimals_and_a_sign():
    assert (decimals(1.234, 2, "+"), decimals(0.034, 2, "+")) == ("+1.23", "+0.034")
