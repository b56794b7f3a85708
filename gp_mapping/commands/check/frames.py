"""Whether all passes of some recordings are in one frame."""

from __future__ import annotations

from gp_mapping.core.types import Samples
from gp_mapping.mapping.frames.search import Break, FrameSearch
from gp_mapping.mapping.frames.watch import FEWEST, track_of_passes
from gp_mapping.mapping.session import MapSession

__all__ = ["frame_breaks"]


def frame_breaks(session: MapSession, passes: list[Samples]) -> list[Break]:
    """Return from which passes on poses are in another frame than before, or seem to be.

    Args:
        session: a map of some of them.
        passes: all, each in order of time.
    """
    settings, known = session.started_settings, session.map.hyperparameters()
    passes = [session.as_mapped(samples) for samples in passes if len(samples)]
    track = track_of_passes(passes, known["lengthscale"], settings.heading_stddev > 0)
    if track is None or len(track.y) < FEWEST:
        return []
    return FrameSearch(track, known["lengthscale"], settings.kernel, thorough=True).finish() or []
