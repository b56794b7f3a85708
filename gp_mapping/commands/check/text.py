"""The report of `gp-mapping check` as text."""

from __future__ import annotations

from gp_mapping.analysis.calibration import Calibration
from gp_mapping.analysis.changed import APART, list_changes
from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.pass_biases import biases_text
from gp_mapping.analysis.refits import REFITS
from gp_mapping.store.wording import passes_text

__all__ = ["text_of"]


def text_of(result: dict, c: Calibration | None) -> str:
    """Return the report as text, the most important first.

    Args:
        result: the report in plain numbers.
        c: the calibration; None where the map has none.
    """
    unit, test = result["unit"], result["test"]
    lines = [
        result["how"],
        f"{result['mapped']} measurements in {passes_text(result['passes'])} and "
        f"{result['path_length']:.1f} m map, {result['tested']} test",
        "",
        "what to mend on the robot first",
    ]

    lines += [f"  {i}. {m['text']}" for i, m in enumerate(result["mend"], 1)] or [
        "  nothing: no fault is seen"
    ]

    lines += [
        "",
        "what the map has learned of the robot",
        *(f"  {text}" for text in result["plain"]),
    ]

    lines += [f"  {text}" for text in result["unseen"]]
    if c is not None and c.inflation > 1.5:
        lines.append(
            f"  (standard deviations are {c.inflation:.1f} times those of white noise: errors are not)"
        )

    lines += [
        "",
        f"test                 n {f'RMSE {unit}':>9}    NLPD   in 50 %   80 %   95 %   99 %",
    ]

    bands = {f"{b} m of path": r for b, r in test["bands"].items()}
    apart = {label: test[key] for key, label in APART.items() if key in test}
    for name, row in {"all": test, **bands, **apart, **result["components"]}.items():
        numbers = (
            ""
            if not row["n"]
            else f"{decimals(row['rmse_ut']):>9} {row['nlpd']:7.3f}   "
            + " ".join(f"{v:6.3f}" for v in row["coverage_levels"].values())
        )
        lines.append(f"  {name:14} {row['n']:6d} {numbers}".rstrip())

    lines.append(
        "  PIT in tenths  " + " ".join(f"{v:.2f}" for v in test["pit"]) + "   (.10 each is right)"
    )
    lines.append(
        "  autocorrelation of errors  "
        + (
            ", ".join(f"{v:.2f} at {k} s" for k, v in test["autocorrelation"].items())
            or "not known"
        )
    )

    if result["refits"]:
        lines += [
            f"RMSE of other maps ({unit}; this one {decimals(test['rmse_ut'])})",
            *(f"  {REFITS[k]:36} {decimals(v)}" for k, v in result["refits"].items()),
        ]

    if len(result["biases"]) > 1:
        lines += [
            f"passes compared (their constants' standard deviation {decimals(result['bias_stddev'], 2)} {unit})",
            f"  {biases_text(result['biases'], unit)}",
        ]
    lines += [
        "events",
        f"  gross errors left out: {result['gross_errors']}; cells weakened: "
        f"{result['weakened_cells']}",
    ]

    for name, label in (("changes", "while mapping"), ("changes_in_test", "on the test")):
        lines.append(f"  field changed {label}: {list_changes(result[name], unit)}")
    lines += [f"  {text}" for text in result["explained"]]
    return "\n".join(lines)
