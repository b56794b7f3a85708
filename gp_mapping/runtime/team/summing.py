"""The map of a team: the sum of its members' totals, each carried to the θ that they agree on.

It is computed from the parts, anew where one of them has changed: nothing is ever added to what was summed before, so
no measurement can count twice. Beside the map's own thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.agreed import agreed
from gp_mapping.errors import named, one_line
from gp_mapping.mapping.moving import moved
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.totals import MADE_OF, MAP_ID, map_ids, stored_in
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Member", "Sum", "summed"]

_SAME = (
    "model",
    "kernel",
    "anisotropy",
    "long_share",
    "long_ratio",
    "likelihood",
    "potential",
    "threshold",
    "classes",
    "count_duration",
    "field_unit",
    "field_scale",
    "cells",
)  # settings by which maps are of one kind
_TRIED = 50  # places along its path where a member's map is asked before it is added
_MOST = {"max_inducing": 5000, "memory_size": 100_000}  # as their settings allow
_BUDGETS = 4  # of one map, that the sum of several may have
_FIRST_REVISION = 1_000_000_000  # of sums: no robot's own map has one like it
_LATE = 0.05  # s by which delays of two robots' sensors differ before it is said

Transform = tuple[float, float, float]


@dataclass(frozen=True)
class Member:
    """Totals of one map. name: whose.  state: makes it.  version: differs wherever the state does.  own: this robot's."""

    name: str
    map_id: str
    state: Callable[[], dict]
    version: tuple
    own: bool = False


@dataclass
class Sum:
    """session: the map of all that could be added, None where there is none.  used: members that are in it.

    refused: why others are not, those for which nothing is wrong with the totals themselves.  failed: those whose
    totals are of no use, and why.  theta: the team's hyper-parameters, SI.  notes: what differed.  touched: paths
    (K, 2) along which the map is another one than before.
    """

    session: MapSession | None = None
    used: list[Member] = field(default_factory=list)
    refused: list[tuple[Member, str, str]] = field(default_factory=list)
    failed: list[tuple[Member, str]] = field(default_factory=list)
    theta: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    touched: list[Tensor] = field(default_factory=list)


def summed(
    members: Sequence[Member],
    settings: MapSettings,
    frame: str,
    quantity: str,
    transforms: dict[str, Transform],
    before: Sum | None = None,
) -> Sum:
    """The sum of these totals.

    Args:
        members: in any order.
        settings: of this node; what is drawn and how follows them.
        frame: of this map; '' where it is not known yet: that of the first member.
        quantity: what is measured here; '' for anything.
        transforms: where the frames of other robots lie, by name.
        before: the last sum, whose drawing goes on.
    """
    out = Sum()
    ordered = sorted(
        members, key=lambda m: (m.own, m.name, m.map_id)
    )  # this robot last: its place is the newest one
    sessions: list[MapSession] = []
    seen: dict[str, str] = {}
    for member in members:  # where and of what this robot's map is counts before what others say
        if member.own:
            about = member.state()["about"]
            frame, quantity = (
                frame or str(about.get("frame") or ""),
                quantity or str(about.get("quantity") or ""),
            )
    for member in ordered:
        try:
            state = member.state()
            if text := _mismatch(state, settings):
                out.refused.append((member, "other_settings", f"{member.name}: {text}"))
                continue
            session = _session(state, settings, len(members))
        except Exception as error:  # whatever a stranger's totals make it stumble over
            out.failed.append((member, f"{type(error).__name__}: {one_line(error, 200)}"))
            continue
        about = session.about
        given = transforms.get(member.name)
        if given is None and not frame:
            frame = str(about.get("frame") or "")
        refused = _stranger(member, about, frame, quantity, given) or _twice(
            member, map_ids(about), seen
        )
        if refused:
            out.refused.append((member, *refused))
            continue
        seen |= dict.fromkeys(map_ids(about), member.name)
        quantity = quantity or str(about.get("quantity") or "")
        if given is not None:
            try:
                session = moved(session, *given)
            except ValueError as error:
                out.refused.append(
                    (member, "cannot_be_moved", f"{member.name}: {one_line(error, 200)}")
                )
                continue
            session.about["frame"] = frame
        sessions.append(session)
        out.used.append(member)
    if not sessions:
        return out
    try:
        _add_up(sessions, out, before)
    except _SpoiltError as spoilt:
        rest = summed(
            [m for m in members if m is not spoilt.member],
            settings,
            frame,
            quantity,
            transforms,
            before,
        )
        rest.failed.append((spoilt.member, str(spoilt)))
        return rest
    return out


def _mismatch(state: dict, settings: MapSettings) -> str:
    its = state["settings"]
    for name in _SAME:
        if its.get(name) != getattr(settings, name):
            return (
                f"maps that differ in {name} do not add up: {one_line(its.get(name), 50)!r} there, "
                f"{getattr(settings, name)!r} here; give both robots one parameter file"
            )
    return ""


def _stranger(
    member: Member, about: dict, frame: str, quantity: str, given
) -> tuple[str, str] | None:
    """(reason, sentence) where a map is of another place or of another thing."""
    its, measured = str(about.get("frame") or ""), str(about.get("quantity") or "")
    if quantity and measured and measured != quantity:
        return "other_quantity", (
            f"{member.name} maps {named(measured)}, and this is a map of {named(quantity)}; only "
            "maps of one quantity add up"
        )
    if given is None and its and frame and its != frame:
        return "other_frame", (
            f"{member.name} is in frame {named(its)} and this map in {named(frame)}; say where its "
            f"origin lies: merge_transforms: '{member.name}=x y yaw'"
        )
    return None


def _twice(member: Member, ids: set[str], seen: dict[str, str]) -> tuple[str, str] | None:
    again = sorted(ids & seen.keys())
    if not again:
        return None
    return "same_map", (
        f"{member.name} goes on from the same saved map as {seen[again[0]]}: what was saved would "
        "count twice, so its map is left out"
    )


def _session(state: dict, settings: MapSettings, members: int) -> MapSession:
    """The session of these totals, with this node's settings. Raises anything where they do not fit together."""
    _check_finite(state["map"])
    wide = settings
    if not stored_in(state["map"]):  # one map: the sum may have what its members have together
        wide = replace(
            settings,
            **{
                name: min(min(members, _BUDGETS) * getattr(settings, name), most)
                for name, most in _MOST.items()
                if name not in state["map"]
            },
        )
    young = MapSession(wide).state_dict()
    session = MapSession.from_state_dict(young | state | {"settings": asdict(wide)})
    if lost := session.map.unreadable():
        raise ValueError(lost[0])

    if session.opening or not session.cell_count:
        raise ValueError("a map that has hardly begun")
    path = session.path
    told = session.predict(path[:: max(1, len(path) // _TRIED)])
    if not (
        torch.isfinite(told.mean).all()
        and torch.isfinite(told.variance).all()
        and (told.variance >= 0).all()
        and torch.isfinite(told.noise_variance).all()
    ):
        raise ValueError("the map predicts values that are not finite along its own path")
    return session


def _check_finite(value) -> None:
    """ValueError where a number of a map's state is infinite."""
    if isinstance(value, Tensor):
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError("a number of the map is not finite")
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_finite(each)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number of the map is not finite")


def _add_up(sessions: list[MapSession], out: Sum, before: Sum | None) -> None:
    """Fill in session, θ and notes; a member that cannot be added goes over to `refused`, or `failed`."""
    out.notes += _differences(out.used, sessions)
    learned = [each for session in sessions if (each := session.map.learned()) is not None]
    if len(sessions) > 1 and len(learned) == len(sessions):
        theta = agreed(learned)
        for member, session in zip(out.used, sessions):
            if not session.map.agree_on(theta):
                out.notes.append(
                    f"{member.name}'s map cannot be carried to the team's hyper-parameters; it is merged "
                    "with its own"
                )

    first = sessions[0]
    for member, session in list(zip(out.used, sessions))[1:]:
        try:
            first.merge(session)
        except ValueError as error:  # both are as they were
            out.refused.append((member, "not_merged", f"{member.name}: {one_line(error, 200)}"))
            out.used.remove(member)
        except Exception as error:
            raise _SpoiltError(member, error) from error
    first.about = _about(sessions)
    first.revision = (
        _FIRST_REVISION if before is None or before.session is None else before.session.revision + 1
    )
    out.session, out.theta = first, first.map.hyperparameters()
    changed = {m.version for m in out.used} ^ (
        {m.version for m in before.used} if before is not None else set()
    )
    out.touched = [
        s.trace.points() for m, s in zip(out.used, sessions) if m.version in changed and len(s.path)
    ]


class _SpoiltError(Exception):
    """A member's map broke off while it was added: the sum is made again without it."""

    def __init__(self, member: Member, error: Exception):
        super().__init__(f"{type(error).__name__}: {one_line(error, 200)}")
        self.member = member


def _about(sessions: list[MapSession]) -> dict:
    """What one does not say, another may; and of which maps it is made, so that none of them is added to it again."""
    out: dict = {}
    for session in sessions:
        out = {**session.about, **{name: value for name, value in out.items() if value}}
    out.pop(MAP_ID, None)
    return out | {
        MADE_OF: sorted({each for session in sessions for each in map_ids(session.about)})
    }


def _differences(members: list[Member], sessions: list[MapSession]) -> list[str]:
    """What differs between robots and is settled by leaving each its own."""
    delays = {
        m.name: float(s.map.hyperparameters().get("time_offset") or 0.0)
        for m, s in zip(members, sessions)
    }
    if len(delays) < 2 or max(delays.values()) - min(delays.values()) <= _LATE:
        return []
    low, high = min(delays, key=delays.__getitem__), max(delays, key=delays.__getitem__)
    return [
        f"the sensor of {high} is {delays[high]:.3g} s late and that of {low} {delays[low]:.3g} s: each is put "
        "right by its own"
    ]
