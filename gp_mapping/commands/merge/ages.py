"""Maps that forget, brought to one time before they are added."""

from __future__ import annotations

from pathlib import Path

from gp_mapping.mapping.session import MapSession
from gp_mapping.store.trial import errors_about

__all__ = ["aged"]

_FADED = 0.99  # fraction of a map's weight that is left; where more is, nothing is said


def aged(paths: list[Path], sessions: list[MapSession]) -> list[str]:
    """Let each map forget up to the newest measurement of all, by its own `forgetting_time`.

    Args:
        paths: of the maps, for the notes.
        sessions: the maps, which are changed.

    Returns:
        A sentence for each map of which that has taken some, and one where they forget unlike.
    """
    times = [session.settings.forgetting_time for session in sessions]
    newest = max(
        (session.newest_stamp for session in sessions if session.newest_stamp is not None),
        default=None,
    )
    if not any(times) or newest is None:
        return []

    notes = []
    for path, session, tau in zip(paths, sessions, times):
        before = session.newest_stamp
        with errors_about(path):
            left = session.age(newest)
        if left < _FADED and before is not None:
            notes.append(
                f"{path} ends {newest - before:.4g} s before the newest of these maps, and with forgetting_time "
                f"{tau:g} s its data have {100.0 * left:.3g} % of their weight left"
            )
    if len(set(times)) > 1:
        notes.append(
            f"forgetting_time differs ({', '.join(f'{tau:g}' for tau in times)} s): each map has faded by its own, "
            "and the sum goes on with that of the map with most cells"
        )
    return notes
