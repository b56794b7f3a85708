"""The map of a team: the sum of its members' totals, reparametrised to the θ that they agree on.

It is computed from all members' totals, anew when one of them has changed: nothing is ever added to
an earlier sum, so no measurement can count twice. It runs in a thread of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.agreed import agreed
from gp_mapping.core.likelihoods import make_likelihood
from gp_mapping.errors import named, one_line
from gp_mapping.intake.sensors.setup import SETUP, common_setup
from gp_mapping.mapping.moving import move_session
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.totals import MADE_OF, MAP_ID, map_ids
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.team import SUM_BUDGETS

__all__ = ["Member", "TeamSum", "sum_maps"]

# settings by which maps are of one kind
_SAME = (
    "model",
    "anisotropy",
    "long_share",
    "long_ratio",
    "likelihood",
    "potential",
    "field_unit",
    "field_scale",
    "cells",
)
# settings that likelihoods take, of which those of the maps' likelihood count
_OF_LIKELIHOODS = (
    "threshold",
    "classes",
    "count_duration",
    "degrees_of_freedom",
    "alpha_epsilon",
    "lower_limit",
    "upper_limit",
)
_TRIED = 50  # places along its path where a member's map is tried before it is added
_FIRST_REVISION = 1_000_000_000  # of sums: no robot's own map has such a revision
_LATE = 0.05  # s by which delays of two robots' sensors differ before it is reported

Transform = tuple[float, float, float]  # x, y (m) and yaw of another robot's frame


@dataclass(frozen=True)
class Member:
    """Totals of one map.

    Attributes:
        name: of the robot.
        map_id: of the map.
        state: makes the session's state.
        version: differs wherever the state does.
        own: whether it is this robot's map.
    """

    name: str
    map_id: str
    state: Callable[[], dict]
    version: tuple
    own: bool = False


@dataclass
class TeamSum:
    """The map of a team, and what became of each member.

    Attributes:
        session: the map of all that could be added, None where there is none.
        used: members that are in it.
        refused: members that do not fit, with a reason in a word and in a sentence; nothing is
            wrong with their totals.
        failed: members whose totals are unusable, and why.
        theta: the team's hyper-parameters, SI.
        notes: sentences on what differed.
        touched: paths (K, 2) along which the map differs from the one before.
        paths: of the maps that are in it, by their ids.
    """

    session: MapSession | None = None
    used: list[Member] = field(default_factory=list)
    refused: list[tuple[Member, str, str]] = field(default_factory=list)
    failed: list[tuple[Member, str]] = field(default_factory=list)
    theta: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    touched: list[Tensor] = field(default_factory=list)
    paths: dict[str, Tensor] = field(default_factory=dict)


def sum_maps(
    members: Sequence[Member],
    settings: MapSettings,
    frame: str,
    quantity: str,
    transforms: dict[str, Transform],
    before: TeamSum | None = None,
) -> TeamSum:
    """Sum the totals of all members.

    Args:
        members: in any order.
        settings: of this node; the drawing follows them.
        frame: of this map; '' where it is not known yet: then that of the first member.
        quantity: what is measured here; '' for anything.
        transforms: where the frames of other robots are, by name.
        before: the last sum, whose drawing goes on; None: there is none.

    Returns:
        The sum; members that cannot be added are listed in it.

    Raises:
        OSError: the file of a tile that is not in memory cannot be read or written.
    """
    # frame and quantity of this robot's map have precedence over the others'
    given = frame, quantity
    for member in members:
        if member.own:
            about = member.state()["about"]
            frame = frame or str(about.get("frame") or "")
            quantity = quantity or str(about.get("quantity") or "")

    out = TeamSum()
    admission = _Admission(settings, transforms, len(members), out, frame, quantity)
    # this robot first: the position is its own, and no other keeps it out
    ordered = sorted(members, key=lambda m: (not m.own, m.name, m.map_id))
    sessions = [session for m in ordered if (session := admission.admit(m)) is not None]
    if not sessions:
        return out

    try:
        _add_up(sessions, out, before)
    except _LeftOutError as left:
        others = [m for m in members if m is not left.member]
        without = sum_maps(others, settings, *given, transforms, before)
        if left.refused:
            without.refused.append((left.member, "not_merged", f"{left.member.name}: {left}"))
        else:
            without.failed.append((left.member, str(left)))
        return without
    return out


@dataclass
class _Admission:
    """Decides which members can be added, one after the other.

    Attributes:
        settings: of this node.
        transforms: where the frames of other robots are, by name.
        members: how many there are.
        out: gains each member, as used, refused or failed.
        frame: of the sum; '' until a member names one.
        quantity: of the sum; '' until a member names one.
        seen: ids of the maps that are in those admitted, with the robot that brought them.
    """

    settings: MapSettings
    transforms: dict[str, Transform]
    members: int
    out: TeamSum
    frame: str
    quantity: str
    seen: dict[str, str] = field(default_factory=dict)

    def admit(self, member: Member) -> MapSession | None:
        """The session of a member, in the frame of the sum; None where it cannot be added.

        Raises:
            OSError: the file of a tile cannot be read.
        """
        session = self._opened(member)
        if session is None:
            return None

        about = session.about
        transform = self.transforms.get(member.name)
        if transform is None and not self.frame:
            self.frame = str(about.get("frame") or "")
        refused = _stranger(member, about, self.frame, self.quantity, transform) or _twice(
            member, map_ids(about), self.seen
        )
        if refused:
            self.out.refused.append((member, *refused))
            return None

        if transform is not None:
            try:
                session = move_session(session, *transform)
            except ValueError as error:
                self._refuse(member, "cannot_be_moved", one_line(error, 200))
                return None
            session.about["frame"] = self.frame

        # only now: what is left out keeps nobody else out
        self.seen |= dict.fromkeys(map_ids(about), member.name)
        self.quantity = self.quantity or str(about.get("quantity") or "")
        self.out.used.append(member)
        return session

    def _opened(self, member: Member) -> MapSession | None:
        """The session of a member; None where it is of another kind, or its totals are unusable."""
        try:
            state = member.state()
            if text := _mismatch(state, self.settings):
                self._refuse(member, "other_settings", text)
                return None
            return _session(state, self.settings, self.members)
        except OSError:  # a full disk, say: nothing is wrong with the totals
            raise
        except Exception as error:  # totals from outside may raise anything
            self.out.failed.append((member, f"{type(error).__name__}: {one_line(error, 200)}"))
            return None

    def _refuse(self, member: Member, reason: str, text: str) -> None:
        """Note that a member does not fit: a reason in a word, and in a sentence."""
        self.out.refused.append((member, reason, f"{member.name}: {text}"))


def _mismatch(state: dict, settings: MapSettings) -> str:
    """A sentence where a map is of another kind than this node's, else ''.

    Raises:
        ValueError: its settings are none.
    """
    theirs = state["settings"]
    pairs = {name: (theirs.get(name), getattr(settings, name)) for name in _SAME}
    if all(its == own for its, own in pairs.values()):
        given = {name: theirs[name] for name in _OF_LIKELIHOODS if name in theirs}
        its_kind = make_likelihood(replace(settings, **given)).label
        pairs = {"likelihood": (its_kind, make_likelihood(settings).label)}

    for name, (its, own) in pairs.items():
        if its != own:
            return (
                f"maps that differ in {name} do not add up: {one_line(its, 50)!r} there, {own!r} here; "
                "give both robots one parameter file"
            )
    return ""


def _stranger(
    member: Member, about: dict, frame: str, quantity: str, transform
) -> tuple[str, str] | None:
    """Reason and sentence where a map is in another frame, or of another quantity; else None."""
    its_frame, measured = str(about.get("frame") or ""), str(about.get("quantity") or "")
    if quantity and measured and measured != quantity:
        return "other_quantity", (
            f"{member.name} maps {named(measured)}, and this is a map of {named(quantity)}; only "
            "maps of one quantity add up"
        )
    if transform is None and its_frame and frame and its_frame != frame:
        return "other_frame", (
            f"{member.name} is in frame {named(its_frame)} and this map in {named(frame)}; say where its "
            f"origin lies: merge_transforms: '{member.name}=x y yaw'"
        )
    return None


def _twice(member: Member, ids: set[str], seen: dict[str, str]) -> tuple[str, str] | None:
    """Reason and sentence where a map contains a saved map that another one contains; else None."""
    again = sorted(ids & seen.keys())
    if not again:
        return None

    return "same_map", (
        f"{member.name} goes on from the same saved map as {seen[again[0]]}: what was saved would "
        "count twice, so its map is left out"
    )


def _session(state: dict, settings: MapSettings, members: int) -> MapSession:
    """Make the session of a member's totals, with this node's settings.

    Args:
        state: of the totals.
        settings: of this node.
        members: how many are summed.

    Raises:
        Exception: of any kind, where the totals do not fit together.
    """
    _check_finite(state["map"])
    # the kernel is the map's own: the settings leave it open (`learn_smoothness`), or name another
    settings = replace(settings, kernel=str(state["settings"]["kernel"]))
    young = MapSession(settings).state_dict()
    session = MapSession.from_state_dict(young | state | {"settings": asdict(settings)})
    # the sum holds the memories of its members together, and, since it is not updated, as many
    # inputs as these may take
    if members > 1:
        session.map.widen_budget(SUM_BUDGETS)
    if lost := session.map.unreadable():
        raise ValueError(lost[0])

    if session.is_opening or not session.cell_count:
        raise ValueError("a map that has hardly begun")

    path = session.path
    prediction = session.predict(path[:: max(1, len(path) // _TRIED)])
    if not (
        torch.isfinite(prediction.mean).all()
        and torch.isfinite(prediction.variance).all()
        and (prediction.variance >= 0).all()
        and torch.isfinite(prediction.noise_variance).all()
    ):
        raise ValueError("the map predicts values that are not finite along its own path")
    return session


def _check_finite(value) -> None:
    """Raise ValueError where a number in a map's state is not finite."""
    if isinstance(value, Tensor):
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError("a number of the map is not finite")
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            _check_finite(child)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number of the map is not finite")


def _add_up(sessions: list[MapSession], out: TeamSum, before: TeamSum | None) -> None:
    """Merge the sessions, and fill in the sum's session, θ and notes.

    Args:
        sessions: of the members in out.used, in their order.
        out: the sum.
        before: the last sum.

    Raises:
        _LeftOutError: a member's map could not be merged; θ and the notes are of it, too, and the
            result may be spoilt.
    """
    kernel = _kernel_of_all(out.used, sessions)
    out.notes += [*_differences(out.used, sessions), *_other_kernels(out.used, sessions, kernel)]
    # before they are merged, since the first one becomes the path of all
    out.paths = {m.map_id: s.path_trace.points() for m, s in zip(out.used, sessions)}

    # one θ for all, so that their sites can be added; of maps of another kernel it says nothing
    learned = [session.map.learned() for session in sessions]
    parts = [
        each
        for session, each in zip(sessions, learned)
        if each is not None and session.started_settings.kernel == kernel
    ]
    if len(sessions) > 1 and None not in learned:
        theta = agreed(parts)
        for member, session in zip(out.used, sessions):
            if not session.agree_on(theta):
                out.notes.append(
                    f"{member.name}'s map cannot be carried to the team's hyper-parameters; it is merged "
                    "with its own"
                )
    for member, session in zip(out.used, sessions):
        its = session.started_settings.kernel
        if its != kernel:
            text = f"maps of model {session.settings.model} that differ in kernel do not add up"
            raise _LeftOutError(member, ValueError(f"{text}: {its!r} there, {kernel!r} here"))

    first = sessions[0]
    for member, session in list(zip(out.used, sessions))[1:]:
        try:
            first.merge(session)
        except OSError:
            raise
        except Exception as error:
            raise _LeftOutError(member, error) from error

    # all samples are known now, and a sum is read more often than it is updated
    if len(sessions) > 1:
        first.map.use_budget()

    first.about = _about(sessions)
    first.shown.revision = (
        _FIRST_REVISION if before is None or before.session is None else before.session.revision + 1
    )
    out.session, out.theta = first, first.map.hyperparameters()

    # maps that came, went or changed
    then = {} if before is None else {member.map_id: member.version for member in before.used}
    now = {member.map_id: member.version for member in out.used}
    known = out.paths if before is None else before.paths | out.paths
    out.touched = [
        path for name, path in known.items() if then.get(name) != now.get(name) and len(path)
    ]


def _kernel_of_all(members: list[Member], sessions: list[MapSession]) -> str:
    """Name of the kernel of the sum: that under which most cells were mapped.

    All robots choose alike. Where a map cannot take another kernel (it learns no θ), this robot's
    own map keeps its own, and the others are left out.
    """
    cells: Counter[str] = Counter()
    for session in sessions:
        cells[session.started_settings.kernel] += session.cell_count
    if members[0].own and any(session.map.learned() is None for session in sessions):
        return sessions[0].started_settings.kernel
    return max(cells, key=lambda name: (cells[name], name))


def _other_kernels(members: list[Member], sessions: list[MapSession], kernel: str) -> list[str]:
    """Sentences on maps that found, or were given, another kernel than that of the sum."""
    return [
        f"the kernel of {member.name} is {session.started_settings.kernel}, and the team's is {kernel}, as of most "
        "cells: what is remembered of that map is taken in again by it"
        for member, session in zip(members, sessions)
        if session.started_settings.kernel != kernel
    ]


class _LeftOutError(Exception):
    """A member's map could not be merged: the sum is made again without it.

    Attributes:
        member: whose map it is.
        refused: whether it does not fit; else something is wrong with it.
    """

    def __init__(self, member: Member, error: Exception):
        self.member, self.refused = member, isinstance(error, ValueError)
        text = one_line(error, 200)
        super().__init__(text if self.refused else f"{type(error).__name__}: {text}")


def _about(sessions: list[MapSession]) -> dict:
    """The sum's `about`: each entry from the first session that has it, and the ids of all maps.

    By the ids none of the maps is added to it again. Robots that carry the sensor in different ways
    have no setup that another recording could go on with.
    """
    out: dict = {}
    for session in sessions:
        out = {**session.about, **{name: value for name, value in out.items() if value}}
    out.pop(MAP_ID, None)
    if common_setup([session.about for session in sessions]) is None:
        out.pop(SETUP, None)
    return out | {
        MADE_OF: sorted({map_id for session in sessions for map_id in map_ids(session.about)})
    }


def _differences(members: list[Member], sessions: list[MapSession]) -> list[str]:
    """Sentences on what differs between robots, where each keeps its own: how their sensors lag."""
    notes = []
    delays = {
        m.name: float(s.map.hyperparameters().get("time_offset") or 0.0)
        for m, s in zip(members, sessions)
    }
    if len(delays) > 1 and max(delays.values()) - min(delays.values()) > _LATE:
        low, high = min(delays, key=delays.__getitem__), max(delays, key=delays.__getitem__)
        notes.append(
            f"the sensor of {high} is {delays[high]:.3g} s late and that of {low} {delays[low]:.3g} s: each is "
            "put right by its own"
        )

    # one that was found; whoever gave it for one robot knows of it
    slow = {m.name: s.response.seconds for m, s in zip(members, sessions) if s.response.found}
    fast = [m.name for m, s in zip(members, sessions) if not s.response.is_active]
    fast = [name for name in fast if name not in slow]  # a robot may have a map of before a restart
    if slow and fast:
        name = max(slow, key=slow.__getitem__)
        notes.append(
            f"the sensor of {name} is found to follow the field with a time constant of {slow[name]:.2g} s, and "
            f"that of {fast[0]} is not (yet), so the map of {fast[0]} is of what it tells; where both are of one "
            f"kind, give all robots response_time: {slow[name]:.2g}"
        )
    return notes
