"""`gp-mapping report BAG_or_saved_map -o report.html`: one page about a run.

It is for people who do not have this package.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from gp_mapping import __version__
from gp_mapping.analysis.calibration import calibration_report
from gp_mapping.analysis.changed import APART
from gp_mapping.analysis.components import learned_sentences
from gp_mapping.analysis.metrics import BANDS
from gp_mapping.analysis.refits import fit
from gp_mapping.commands.check.command import assess, calibrates, parameters_of, topics_of
from gp_mapping.commands.fleet.arguments import uses_workers
from gp_mapping.commands.output import file_to_write
from gp_mapping.commands.report.html import page
from gp_mapping.commands.report.names import short_names
from gp_mapping.commands.report.picture import as_png, draw_run
from gp_mapping.commands.saved import CHECKPOINT, check_suggest, next_places, open_session
from gp_mapping.errors import UsageError, one_line
from gp_mapping.mapping.notes.fullness import fullness_notes
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.trial import errors_about
from gp_mapping.store.wording import unit_text

__all__ = ["run"]

_TITLE = 500  # characters at most of the heading


def run(args: argparse.Namespace) -> int:
    """Map the bags or load the map, draw, write the page; returns the exit code.

    Raises:
        UsageError: options do not go together, a source cannot be used, or the page cannot be
            written.
    """
    output = file_to_write(args.output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{output}: expected the name of a file that ends in .html")

    check_suggest(args.suggest)

    saved = [source for source in args.source if _is_saved(Path(source))]
    if saved and len(args.source) > 1:
        raise UsageError(f"{saved[0]} is a saved map; give it alone, or give bags only")

    values = parameters_of(args)
    if saved and uses_workers(args):
        raise UsageError(
            f"{saved[0]} is a saved map, not many bags; leave --workers and --scheduler out"
        )
    if saved and (values or args.against):
        raise UsageError(
            f"{saved[0]} is a saved map, to which --params, --set and --against come too late; give the "
            "bags instead"
        )

    if saved:
        with errors_about(saved[0]):
            text = _page(args, _of_saved(Path(saved[0])))
    else:
        parameters = Parameters.build(values)
        torch.set_num_threads(parameters.node.torch_threads)  # as `check`, whose numbers it has
        if uses_workers(args):
            from gp_mapping.commands.fleet.report import facts_of

            text = _page(args, facts_of(args, parameters, topics_of(args), output))
        else:
            text = _page(args, _of_bags(args, parameters))

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, text.encode())
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error
    print(output)
    return 0


def _page(args: argparse.Namespace, facts: dict) -> str:
    """Return the HTML page.

    Args:
        args: of the command.
        facts: what was found, and the `session`, as _of_bags, _of_saved and the fleet's facts_of
            return it; `session` and `figures` are taken out of it.

    Raises:
        UsageError: the map is empty.
    """
    session: MapSession = facts.pop("session")
    if session.report()["cells"] == 0:
        raise UsageError(f"{args.source[0]}: the map is empty, no measurement has reached it")

    grid = session.render()
    # each warning once, in the order in which they came
    notes = [*session.warnings, *fullness_notes(session.report())]
    facts["explained"] = list(dict.fromkeys([*facts["explained"], *notes]))
    places = next_places(session, grid, args.suggest)
    figures = {"map": as_png(draw_run(session, grid, places)), **facts.pop("figures")}
    title = args.title or f"Map of {_names(args.source)}"
    facts |= {
        "title": one_line(title, _TITLE),
        "version": __version__,
        "map": session.report(),
        "unit": unit_text(session.settings.field_unit),
        "scale": session.settings.field_scale,
        "model": session.settings.model,
        "noise_stddev": session.report()["noise_stddev"],
        "suggestions": [(s.x, s.y) for s in places],
        "extent": _extent(grid),
        "sources": [_names([source], args.source) for source in args.source],
        "stddev_limits": [float(v) for v in _spread(grid)],
    }
    return page(facts, figures)


def _names(paths, beside=()) -> str:
    """Return short names of paths, told apart from each other and from those beside them."""
    names = short_names([*paths, *beside])
    return ", ".join(names[str(path)] for path in paths)


def _is_saved(path: Path) -> bool:
    """Return whether a path is a checkpoint or a folder that holds one."""
    return path.suffix == ".gpm" or (path / CHECKPOINT).is_file()


def _extent(grid) -> tuple[float, float]:
    """Return width and height of a grid, m."""
    height, width = grid.shape
    return width * grid.resolution, height * grid.resolution


def _spread(grid):
    """Return the median and the largest standard deviation of the known grid cells, SI."""
    known = grid.stddev[grid.known]
    return (known.median(), known.max()) if len(known) else (0.0, 0.0)


def _of_bags(args: argparse.Namespace, parameters: Parameters) -> dict:
    """Return everything that `check` finds, and the map of all passes."""
    assessment = assess(
        args.source, args.against, parameters, topics_of(args), tries=not args.no_refits
    )
    result = assessment.result
    if args.against:
        how = (
            f"maps {_names(args.source, args.against)}, tests on "
            f"{_names(args.against, args.source)}"
        )
        assessment = assessment._replace(title=assessment.title.replace(result["how"], how))
        result["how"] = how
    # without --against a part of the bags has tested; the page shows the map of all of them
    session = assessment.session if args.against else fit(assessment.passes, parameters.map)
    copied = (
        "how",
        "test",
        "components",
        "plain",
        "refits",
        "dropped",
        "explained",
        "changes",
        "changes_in_test",
        "biases",
        "bias_stddev",
    )
    return {
        "session": session,
        "figures": {"quality": as_png(assessment.draw())},
        "part": not args.against,
        "mend": [m["text"] for m in result["mend"]],
        **{name: result[name] for name in copied},
        "events": {name: result[name] for name in ("gross_errors", "weakened_cells")},
        "settings": asdict(session.settings) | asdict(parameters.intake),
    }


def _of_saved(path: Path) -> dict:
    """Return what a checkpoint and the report.json that `gp-mapping map` wrote next to it hold."""
    session = open_session(path)
    folder = path if path.is_dir() else path.parent
    saved_report = _saved_report(folder / "report.json", session)
    unit, report = unit_text(session.settings.field_unit), session.report()
    sensor = (
        "magnetometer"
        if saved_report.get("sensor", "magnetic_field") == "magnetic_field"
        else "sensor"
    )

    plain = []
    # without remembered samples there is no calibration, only what was learned
    if report["cells"] and not calibrates(session):
        plain = learned_sentences(session, sensor, unit)
    elif report["cells"]:
        try:
            plain = calibration_report(session.map, session.noise_variance).sentences(sensor, unit)
        except RuntimeError as error:
            plain = [f"no calibration: {error}"]

    test = None
    if saved_report.get("rmse_ut") is not None:
        test = {
            "n": saved_report["test_samples"],
            **{k: saved_report[k] for k in ("rmse_ut", "nlpd", "coverage", "bands")},
            **{k: saved_report[k] for k in APART if k in saved_report},
        }

    scale = session.settings.field_scale
    return {
        "session": session,
        "figures": {},
        "test": test,
        "mend": None,
        "plain": plain,
        "refits": {},
        "how": f"tested on {_names(saved_report['test_bags'])} when it was made" if test else None,
        "dropped": saved_report.get("dropped"),
        "explained": saved_report.get("warnings", []),
        "changes": [
            {"x": c.x, "y": c.y, "stamp": c.stamp, "error": c.error / scale}
            for c in session.changes
        ],
        "changes_in_test": saved_report.get("changes_in_test", []),
        "events": {name: report[name] for name in ("gross_errors", "weakened_cells")},
        "settings": {**saved_report.get("settings", {}), **asdict(session.settings)},
    }


def _saved_report(path: Path, session: MapSession) -> dict:
    """Return the report next to a checkpoint where it is of this very map, else an empty dict."""
    try:
        if not path.is_file():
            return {}
        saved_report = json.loads(path.read_text(encoding="utf-8"))

        # a map that was changed after the report was written has another revision
        same = (
            saved_report["map"]["revision"] == session.report()["revision"]
            and saved_report["map"]["samples"] == session.report()["samples"]
        )
        return saved_report if same and _well_formed(saved_report) else {}
    # the file is from outside: whatever is wrong with it, the page does without
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _well_formed(saved_report: dict) -> bool:
    """Return whether all that the page takes from a report has the type that `map` writes.

    Raises:
        KeyError: a part is missing; also TypeError or AttributeError for a wrong type.
    """

    def number(value) -> bool:
        """Whether it is a number, which a bool is not."""
        return isinstance(value, int | float) and not isinstance(value, bool)

    def texts(value) -> bool:
        """Whether it is a list of strings."""
        return isinstance(value, list) and all(isinstance(line, str) for line in value)

    tested = saved_report["rmse_ut"] is None or (
        number(saved_report["rmse_ut"])
        and number(saved_report["test_samples"])
        and texts(saved_report["test_bags"])
        and all(
            value is None or number(value)
            for value in (saved_report["nlpd"], saved_report["coverage"])
        )
        and all(
            number(band["n"])
            and all(band[k] is None or number(band[k]) for k in ("rmse_ut", "nlpd", "coverage"))
            for band in (saved_report["bands"][name] for name in BANDS)
        )
    )
    return (
        tested
        and texts(saved_report["warnings"])
        and isinstance(saved_report["sensor"], str)
        and all(isinstance(name, str) and number(n) for name, n in saved_report["dropped"].items())
        and all(isinstance(name, str) for name in saved_report["settings"])
    )
