"""How full a map's budget or bound is for where the robot has been, in sentences."""

from __future__ import annotations

from gp_mapping.core.sparse.worth import SMOOTHED

__all__ = ["DETAIL", "full_budget_note", "fullness_notes", "inputs_line", "left_out_note"]

# Inducing inputs for each square of a lengthscale; fewer smooth a field that varies in it.
DETAIL = 2.5


def _many(report: dict) -> bool:
    """Whether the map has come to more than one tile; each has a budget of its own."""
    return report.get("tiles", 1) > 1


def inputs_line(report: dict) -> str | None:
    """How many inducing inputs a map has whose budget was full once; None of another map.

    Of a map of tiles all inputs in memory are counted, and how densely they lie is said of the tile
    where the robot is.

    Args:
        report: numbers by name, as of MapSession.report.
    """
    # a map that remembers no samples has no `prior_left`
    if not report.get("budget_full") or "prior_left" not in report:
        return None

    budget = (
        f"in {report['tiles_in_memory']} tiles of at most {report['budget']} each; where the robot is"
        if _many(report)
        else f"of {report['budget']}"
    )
    return (
        f"inducing inputs {report['inducing']} {budget}, "
        f"{report['inputs_per_square_lengthscale']:.1f} for each square of a lengthscale, at most "
        f"{100 * report['prior_left']:.1f} % of the prior variance left where it was measured"
    )


def full_budget_note(report: dict) -> str | None:
    """What to say of a map whose inducing inputs no longer suffice; None while they do.

    Args:
        report: numbers by name, as of MapSession.report.

    Returns:
        One sentence: how thin the inputs are, what is lost, and the setting that mends it.
    """
    density = report.get("inputs_per_square_lengthscale")
    if not report.get("budget_full") or density is None:
        return None

    full, everywhere = (
        f"the budget of {report['budget']} inducing inputs is full and the map",
        " everywhere",
    )
    if _many(report):
        full, everywhere = f"{full}'s tile where the robot is", ""
    loss = (
        f"up to {100 * report['prior_left']:.2g} % of the prior variance left where it was measured"
    )

    if density < DETAIL:
        return (
            f"{full} gets coarser{everywhere}: {density:.1f} inputs for each square of a lengthscale that was "
            f"driven over ({DETAIL:g} are the least), {loss}; raise max_inducing"
        )

    noise, signal = report.get("noise_stddev"), report["hyperparameters"].get("signal_stddev")
    # what is left of the prior variance, in units of the noise variance
    ratio = report["prior_left"] * (signal / noise) ** 2 if noise and signal else 0.0
    if ratio <= SMOOTHED:
        return None
    return f"{full} smooths what was measured: {loss}, {ratio:.0f} times that of the noise; raise max_inducing"


def left_out_note(report: dict) -> str | None:
    """What to say of a map that is full and takes no more; None of one that is not.

    Args:
        report: numbers by name, as of MapSession.report.
    """
    if not report.get("left_out"):
        return None

    where, mend = (
        ("", "max_exact_samples, or take another model")
        if "tiles" not in report
        else (
            f" on ground beyond its {report['tiles']} tiles",
            "max_tiles, and drive or map there again",
        )
    )
    return f"the map is full: {report['left_out']} cells or measurements{where} are left out; raise {mend}"


def fullness_notes(report: dict) -> list[str]:
    """What to say of a map that is full, one sentence each: what it leaves out, what it smooths.

    Args:
        report: numbers by name, as of MapSession.report.
    """
    return [text for text in (left_out_note(report), full_budget_note(report)) if text]
