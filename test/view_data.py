"""What the browser makes of the map's bytes."""

import json
import struct

import numpy as np

from gp_mapping.commands.view.map_image import UNKNOWN


def decode(data):
    """The header, mean and stddev (H, W) with NaN where unknown: what draw.js does."""
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    images = np.frombuffer(data, "<u2", offset=4 + length).reshape(
        2, header["height"], header["width"]
    )
    low, high = np.array(header["ranges"]).reshape(2, 2).T[:, :, None, None]
    values = low + images * (high - low) / 65534
    return header, *np.where(images == UNKNOWN, np.nan, values)
