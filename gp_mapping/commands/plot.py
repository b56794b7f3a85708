"""`gp-mapping plot DIR_or_checkpoint`: draw a saved map as a picture."""

from __future__ import annotations

import argparse
from io import BytesIO

from gp_mapping.commands.output import file_to_write
from gp_mapping.commands.saved import check_suggest, checkpoint_in, next_places, open_session
from gp_mapping.errors import UsageError
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.exports.picture import draw_map
from gp_mapping.store.trial import errors_about

__all__ = ["run"]

_FORMATS = ("png", "pdf", "svg")


def run(args: argparse.Namespace) -> int:
    """Load the map, draw it, write the picture and print its path; returns the exit code.

    Raises:
        UsageError: the map is empty, or the picture cannot be written or has another format.
    """
    checkpoint = checkpoint_in(args.map)
    output = file_to_write(args.output or checkpoint.with_name("map.png"))
    kind = output.suffix.lstrip(".").lower()
    if kind not in _FORMATS:
        raise UsageError(
            f"{output}: expected a name that ends in {', '.join('.' + f for f in _FORMATS)}"
        )

    session = open_session(
        checkpoint, **({} if args.resolution is None else {"resolution": args.resolution})
    )
    if session.report()["cells"] == 0:
        raise UsageError(f"{checkpoint}: the map is empty, no measurement has reached it")
    check_suggest(args.suggest)

    # a checkpoint may open well and still fail when it is drawn: the file is then to blame
    with errors_about(checkpoint):
        grid, picture = session.render(), BytesIO()
        draw_map(session, grid, next_places(session, grid, args.suggest)).savefig(
            picture, format=kind
        )

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, picture.getvalue())
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error
    print(output)
    return 0
