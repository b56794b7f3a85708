"""`gp-mapping report BAG_or_saved_map -o report.html`: one file that tells the run to people without this package."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from gp_mapping import __version__
from gp_mapping.analysis.calibration import calibration_report
from gp_mapping.analysis.components import learned
from gp_mapping.analysis.metrics import BANDS
from gp_mapping.analysis.refits import fit
from gp_mapping.commands.check.command import assess, calibrates, parameters_of, topics_of
from gp_mapping.commands.fleet.arguments import many
from gp_mapping.commands.output import file_to_write
from gp_mapping.commands.report.html import page
from gp_mapping.commands.report.picture import as_png, draw_run
from gp_mapping.commands.saved import CHECKPOINT, check_suggest, next_places, open_session
from gp_mapping.errors import UsageError, one_line
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.trial import blaming
from gp_mapping.store.wording import unit_text

__all__ = ["run"]

_NAME, _TITLE = 100, 500  # characters of a name from outside, and of a heading


def run(args: argparse.Namespace) -> int:
    """Map or load, draw, write."""
    output = file_to_write(args.output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{output}: expected the name of a file that ends in .html")
    check_suggest(args.suggest)
    saved = [source for source in args.source if _is_saved(Path(source))]
    if saved and len(args.source) > 1:
        raise UsageError(f"{saved[0]} is a saved map; give it alone, or give bags only")
    values = parameters_of(args)
    if saved and many(args):
        raise UsageError(
            f"{saved[0]} is a saved map, not many bags; leave --workers and --scheduler out"
        )
    if saved and (values or args.against):
        raise UsageError(
            f"{saved[0]} is a saved map, to which --params, --set and --against come too late; give the "
            "bags instead"
        )
    if saved:
        with blaming(saved[0]):
            text = _page(args, _of_saved(Path(saved[0])))
    elif many(args):
        from gp_mapping.commands.fleet.report import facts_of

        text = _page(args, facts_of(args, Parameters.build(values), topics_of(args), output))
    else:
        text = _page(args, _of_bags(args, Parameters.build(values)))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, text.encode())
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error
    print(output)
    return 0


def _page(args: argparse.Namespace, facts: dict) -> str:
    """The HTML of what was found."""
    session: MapSession = facts.pop("session")
    if session.report()["cells"] == 0:
        raise UsageError(f"{args.source[0]}: the map is empty, no measurement has reached it")

    grid = session.render()
    facts["explained"] = list(dict.fromkeys([*facts["explained"], *session.warnings]))
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
        "sources": [_names([source]) for source in args.source],
        "stddev_limits": [float(v) for v in _spread(grid)],
    }
    return page(facts, figures)


def _names(paths) -> str:
    """Without the folders they lie in: the page goes to others. A name may be any bytes, a page not."""
    return ", ".join(one_line(Path(path).resolve().name, _NAME) for path in paths)


def _is_saved(path: Path) -> bool:
    return path.suffix == ".gpm" or (path / CHECKPOINT).is_file()


def _extent(grid) -> tuple[float, float]:
    height, width = grid.shape
    return width * grid.resolution, height * grid.resolution


def _spread(grid):
    """Median and largest standard deviation of the known cells, SI."""
    known = grid.stddev[grid.known]
    return (known.median(), known.max()) if len(known) else (0.0, 0.0)


def _of_bags(args: argparse.Namespace, parameters: Parameters) -> dict:
    """Everything that `check` knows, and the map of all passes."""
    made = assess(args.source, args.against, parameters, topics_of(args), tries=not args.no_refits)
    result = made.result
    if args.against:
        how = f"maps {_names(args.source)}, tests on {_names(args.against)}"
        made = made._replace(title=made.title.replace(result["how"], how))
        result["how"] = how
    session = made.session if args.against else fit(made.passes, parameters.map)
    kept = (
        "how",
        "test",
        "components",
        "plain",
        "refits",
        "dropped",
        "explained",
        "changes",
        "changes_in_test",
    )
    return {
        "session": session,
        "figures": {"quality": as_png(made.draw())},
        "part": not args.against,
        "mend": [m["text"] for m in result["mend"]],
        **{name: result[name] for name in kept},
        "events": {name: result[name] for name in ("gross_errors", "weakened_cells")},
        "settings": asdict(session.settings) | asdict(parameters.intake),
    }


def _of_saved(path: Path) -> dict:
    """What a checkpoint tells, and the report.json that `gp-mapping map` wrote beside it."""
    session = open_session(path)
    folder = path if path.is_dir() else path.parent
    kept = _kept(folder / "report.json", session)
    unit, report = unit_text(session.settings.field_unit), session.report()
    sensor = (
        "magnetometer" if kept.get("sensor", "magnetic_field") == "magnetic_field" else "sensor"
    )
    plain = []
    if report["cells"] and not calibrates(session):
        plain = learned(session, sensor, unit)
    elif report["cells"]:
        try:
            plain = calibration_report(session.map, session.noise_variance).plain(sensor, unit)
        except RuntimeError as error:
            plain = [f"no calibration: {error}"]
    test = None
    if kept.get("rmse_ut") is not None:
        test = {
            "n": kept["test_samples"],
            **{k: kept[k] for k in ("rmse_ut", "nlpd", "coverage", "bands")},
        }
    scale = session.settings.field_scale
    return {
        "session": session,
        "figures": {},
        "test": test,
        "mend": None,
        "plain": plain,
        "refits": {},
        "how": f"tested on {_names(kept['test_bags'])} when it was made" if test else None,
        "dropped": kept.get("dropped"),
        "explained": kept.get("warnings", []),
        "changes": [
            {"x": c.x, "y": c.y, "stamp": c.stamp, "error": c.error / scale}
            for c in session.changes
        ],
        "changes_in_test": [],
        "events": {name: report[name] for name in ("gross_errors", "weakened_cells")},
        "settings": {**kept.get("settings", {}), **asdict(session.settings)},
    }


def _kept(path: Path, session: MapSession) -> dict:
    """The report beside a checkpoint, where it is one of this very map; else nothing."""
    try:
        if not path.is_file():
            return {}
        kept = json.loads(path.read_text(encoding="utf-8"))
        same = (
            kept["map"]["revision"] == session.report()["revision"]
            and kept["map"]["samples"] == session.report()["samples"]
        )
        return kept if same and _well_formed(kept) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _well_formed(kept: dict) -> bool:
    """Whether everything that the page takes from a report is of the kind that `gp-mapping map` writes."""

    def number(value) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def texts(value) -> bool:
        return isinstance(value, list) and all(isinstance(line, str) for line in value)

    tested = kept["rmse_ut"] is None or (
        number(kept["rmse_ut"])
        and number(kept["test_samples"])
        and texts(kept["test_bags"])
        and all(value is None or number(value) for value in (kept["nlpd"], kept["coverage"]))
        and all(
            number(band["n"])
            and all(band[k] is None or number(band[k]) for k in ("rmse_ut", "nlpd", "coverage"))
            for band in (kept["bands"][name] for name in BANDS)
        )
    )
    return (
        tested
        and texts(kept["warnings"])
        and isinstance(kept["sensor"], str)
        and all(isinstance(name, str) and number(n) for name, n in kept["dropped"].items())
        and all(isinstance(name, str) for name in kept["settings"])
    )
