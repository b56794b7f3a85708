"""What the numbers of a map are, in words: for pictures, reports and the command line.

No drawing library is loaded.
"""

from __future__ import annotations

import re

__all__ = ["passes_text", "quantity", "unit_text"]

_MICRO = re.compile(r"u(?=(T|V|A|g|m|s|S|Sv|Gy|Bq|W|Pa|mol|L|l|F|H|N|J|K|R|rad)(?![A-Za-z]))")


def unit_text(unit: str) -> str:
    """A unit as people write it: uT, ug/m3 and mol/um2 have µ.

    Any other name, as units or usd, stays as given.
    """
    return re.sub(r"(?<![A-Za-z])" + _MICRO.pattern, "µ", unit)


def quantity(settings) -> str:
    """What the mean of a map is, in words.

    Args:
        settings: MapSettings.
    """
    if settings.metric:
        return "field"
    if not settings.observes:
        return "latent field"
    return {
        "bernoulli": f"probability of more than {settings.threshold:g}",
        "poisson": "rate",
        "softmax": "probability of the most likely class",
        "dirichlet": "probability of the most likely class",
    }[settings.likelihood]


def passes_text(number: int) -> str:
    """Return how many passes there are: "1 pass", "2 passes"."""
    return f"{number} pass{'' if number == 1 else 'es'}"
