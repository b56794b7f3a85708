"""The report of `gp-mapping fit` as text."""

from __future__ import annotations

from pathlib import Path

from gp_mapping.analysis.digits import decimals
from gp_mapping.commands.map import UNITS, dropped_lines
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.wording import unit_text

__all__ = ["summary"]


def summary(result: dict, settings: MapSettings, paths: dict[str, Path]) -> str:
    """Return the report as text, with units.

    Args:
        result: what report.json states.
        settings: unit and scale.
        paths: of the files that were written.
    """
    fit, unit, scale = result["fit"], unit_text(settings.field_unit), settings.field_scale
    stopped = (
        "it stopped by itself"
        if fit["converged"]
        else "it stopped short of a maximum, after --iterations or where no step gained: more may gain more"
    )

    lines = [
        f"{fit['cells']} cells, fitted in {fit['seconds']:.1f} s; {stopped}",
        f"  {fit['steps']}",
        *dropped_lines(result["dropped"]),
        f"{'':38} {'streamed':>10} {'fitted':>10}",
    ]
    lines.append(
        f"{fit['objective'] + ', nats':38} {fit['nats_before']:10.1f} {fit['nats_after']:10.1f}"
    )
    if fit["evidence_before"] is not None and fit["objective"] != "log evidence":
        lines.append(
            f"{'log evidence of the exact GP, nats':38} {fit['evidence_before']:10.1f} "
            f"{fit['evidence_after']:10.1f}"
        )

    for name, value in fit["after"].items():
        # what is left out, such as a heading of 0, is 0 before and after
        if not value and not fit["before"][name]:
            continue

        # of classes and counts the latent field has no unit
        measured = name.endswith("stddev") and settings.metric
        size, unit_of_value = (
            (scale, unit)
            if measured
            else (1.0, UNITS.get(name, "m" if name.startswith("lever") else ""))
        )
        label = f"{name} {unit_of_value}".rstrip()
        lines.append(
            f"{label:38} {decimals(fit['before'][name] / size):>10} {decimals(value / size):>10}"
        )

    lines += _tested(result["test"], settings, unit)
    limit = fit["anytime"]
    if limit is not None:
        lines.append(
            f"stochastic natural gradients: within 1 % of their limit after {limit['within']} iterations of "
            f"{limit['drawn']} of {limit['blocks']} blocks"
        )
    lines += [f"  warning: {text}" for text in result["warnings"]]
    return "\n".join([*lines, "written: " + ", ".join(map(str, paths.values()))])


def _tested(test: dict | None, settings: MapSettings, unit: str) -> list[str]:
    """Return a line for each score on --test, of the streamed and of the fitted map."""
    if test is None:
        return []

    error = unit if settings.metric else "counts" if settings.likelihood == "poisson" else ""
    rows = {
        f"test RMSE {error}".rstrip(): "rmse_ut",
        "test NLPD": "nlpd",
        "test in 95 %": "coverage",
    }
    return [
        f"{label:38} {decimals(test['streamed'][key]):>10} {decimals(test['fitted'][key]):>10}"
        for label, key in rows.items()
        if test["fitted"][key] is not None
    ]
