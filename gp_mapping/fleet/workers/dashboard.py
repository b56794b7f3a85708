"""The dashboard of a Dask cluster: its address, where a page answers there."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

__all__ = ["dashboard_text"]

_PATIENCE = 15.0  # s to wait for an answer
_READ, _WITHOUT = 2000, b"needs bokeh"  # bytes of a page; what Dask's own says where bokeh is not


def dashboard_text(address: str | None, here: bool) -> str:
    """Return where the dashboard is, or why there is none.

    The page is asked for: Dask states an address also where bokeh, which draws it, is missing or
    too old, and answers there with a page that says so.

    Args:
        address: of the page, as Dask states it; None: no server was started for it.
        here: whether the scheduler is in this process.
    """
    where = "" if here else " where the scheduler runs"
    missing = f"it needs bokeh{where}: pip install 'gp_mapping[fleet]'"
    if address is None:
        return f"no dashboard ({missing})"

    try:
        with urllib.request.urlopen(address, timeout=_PATIENCE) as answer:
            drawn = _WITHOUT not in answer.read(_READ)
    except urllib.error.HTTPError as error:
        return f"no dashboard (at {address} is no such page, {error.code}; {missing})"
    except (OSError, ValueError, http.client.HTTPException):
        return f"no dashboard (nothing answers at {address}; {missing}, and a way to that port)"
    return f"dashboard {address}" if drawn else f"no dashboard ({missing})"
