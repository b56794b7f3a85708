"""A room whose magnetic field is known everywhere.

It is the Earth's plus that of dipoles under the floor and along the walls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gp_mapping.settings.fields import check_settings, setting

__all__ = ["DipoleWorld", "WorldSettings", "dipole_field"]

MU0_OVER_4PI = 1e-7  # T m / A
# m; the dipole formula diverges at the dipole: a probe there is a mistake of the caller
NEAREST = 0.02
CHUNK = 4096  # points at a time: bounds memory on fine grids


def dipole_field(points, positions, moments) -> np.ndarray:
    """Flux density of magnetic dipoles, summed.

        B(r) = mu0 / (4 pi) * sum_k [3 d_k (m_k . d_k) / |d_k|^5 - m_k / |d_k|^3],  d_k = r - r_k

    Args:
        points: (N, 3) m.
        positions: (K, 3) m.
        moments: (K, 3) A m^2.

    Returns:
        (N, 3) tesla.

    Raises:
        ValueError: a shape is wrong, or a point is nearer than 2 cm to a dipole (where B grows
            without bound).
    """
    points, positions, moments = (
        np.asarray(a, dtype=np.float64) for a in (points, positions, moments)
    )
    for name, a in (("points", points), ("positions", positions), ("moments", moments)):
        if a.ndim != 2 or a.shape[1] != 3:
            raise ValueError(f"{name} has shape {a.shape}, expected (N, 3): one row x y z each")
    if len(positions) != len(moments):
        raise ValueError(
            f"{len(positions)} positions and {len(moments)} moments; expected one moment per dipole"
        )

    out = np.empty_like(points)
    for at in range(0, len(points), CHUNK):
        # from every dipole to every point
        d = points[at : at + CHUNK, None, :] - positions  # (n, K, 3)
        r2 = np.einsum("nkd,nkd->nk", d, d)
        if r2.size and r2.min() < NEAREST**2:
            k = int(r2.min(axis=0).argmin())
            raise ValueError(
                f"a point lies {np.sqrt(r2.min()):.3f} m from the dipole at {positions[k].tolist()}, "
                f"where the field has no finite value; keep points at least {NEAREST} m away"
            )

        weight = MU0_OVER_4PI / (r2 * np.sqrt(r2))  # (n, K)
        along = 3.0 * np.einsum("nkd,kd->nk", d, moments) / r2
        out[at : at + CHUNK] = np.einsum("nk,nkd->nd", weight * along, d) - weight @ moments

    return out


@dataclass(frozen=True)
class WorldSettings:
    """The room and the sources of its field.

    The floor is z = 0, the lower left corner of the room is (0, 0).
    """

    seed: int = setting(0, "seed of the dipoles: the same seed is the same world", "", 0, 2**31 - 1)
    width: float = setting(6.0, "extent of the room along x", "m", 0.5, 1e3)
    depth: float = setting(5.0, "extent of the room along y", "m", 0.5, 1e3)
    dipole_spacing: float = setting(
        0.8, "mean distance between dipoles under the floor and along the walls", "m", 0.1, 1e2
    )
    field_stddev: float = setting(
        10e-6,
        "spatial standard deviation of |B| over the room at sensor_height: the dipole "
        "moments are scaled to it",
        "T",
        0.0,
        1e-4,
    )
    sensor_height: float = setting(
        0.3, "height above the floor where field_stddev holds and the map is made", "m", 0.0, 10.0
    )
    earth_north: float = setting(
        20e-6, "horizontal part of the Earth's field, along +y", "T", -1e-4, 1e-4
    )
    earth_down: float = setting(
        43.5e-6, "vertical part of the Earth's field, along -z", "T", -1e-4, 1e-4
    )

    def __post_init__(self):
        check_settings(self)


class DipoleWorld:
    """Dipoles in a uniform field.

    `field` is exact everywhere (curl-free and divergence-free away from the dipoles).

    Args:
        positions: (K, 3) m.
        moments: (K, 3) A m^2.
        earth: (3,) the uniform field, T.
        settings: of the room.
    """

    def __init__(
        self,
        positions,
        moments,
        earth=(0.0, 20e-6, -43.5e-6),
        settings: WorldSettings | None = None,
    ):
        self.positions = np.array(positions, dtype=np.float64).reshape(-1, 3)
        self.moments = np.array(moments, dtype=np.float64).reshape(-1, 3)
        self.earth = np.array(earth, dtype=np.float64).reshape(3)
        self.settings = settings or WorldSettings()
        if len(self.positions) != len(self.moments):
            raise ValueError(
                f"{len(self.positions)} positions and {len(self.moments)} moments; expected as many"
            )

    @staticmethod
    def random(settings: WorldSettings) -> "DipoleWorld":
        """The world of a seed: dipoles jittered about a grid under the floor, and along the walls.

        Those under the floor are 0.1-0.4 m deep.
        """
        rng = np.random.default_rng([settings.seed, 1])
        s = settings.dipole_spacing

        places = [
            [x + rng.uniform(-s / 3, s / 3), y + rng.uniform(-s / 3, s / 3), -rng.uniform(0.1, 0.4)]
            for x in np.arange(s / 2, settings.width, s)
            for y in np.arange(s / 2, settings.depth, s)
        ]
        # along each wall a row half as dense, 0.3-0.5 m outside of it
        for length, at in (
            (settings.width, lambda t, off: (t, -off)),
            (settings.width, lambda t, off: (t, settings.depth + off)),
            (settings.depth, lambda t, off: (-off, t)),
            (settings.depth, lambda t, off: (settings.width + off, t)),
        ):
            for t in np.arange(s, length, 2 * s):
                places.append(
                    [
                        *at(t + rng.uniform(-s / 3, s / 3), rng.uniform(0.3, 0.5)),
                        rng.uniform(0.1, 1.5),
                    ]
                )

        # a spread of strengths: a few large objects (beams, cabinets) among many small ones
        moments = rng.normal(size=(len(places), 3)) * np.exp(
            rng.normal(0.0, 0.5, size=(len(places), 1))
        )

        earth = (0.0, settings.earth_north, -settings.earth_down)
        world = DipoleWorld(places, moments, earth, settings)
        return world._scaled_to(settings.field_stddev)

    def _scaled_to(self, target: float) -> "DipoleWorld":
        """The same dipoles with moments scaled so that |B| has a standard deviation over the room.

        Args:
            target: standard deviation, T.

        Raises:
            ValueError: no finite moments reach it: dipoles are too few.
        """
        x, y, _ = self.truth_grid(0.1)
        points = np.stack(
            [x.ravel(), y.ravel(), np.full(x.size, self.settings.sensor_height)], axis=1
        )
        dipoles = dipole_field(points, self.positions, self.moments)  # linear in the moments

        def spread(scale):
            """Standard deviation of |B| with the moments times scale, T."""
            return float(np.linalg.norm(scale * dipoles + self.earth, axis=1).std())

        low, high = 0.0, 1.0
        # first a scale that is large enough
        while spread(high) < target:
            high *= 2.0
            if high > 1e12:
                raise ValueError(
                    f"field_stddev {target} T cannot be reached with dipole_spacing "
                    f"{self.settings.dipole_spacing} m; use a smaller spacing"
                )

        for _ in range(60):
            middle = 0.5 * (low + high)
            # bisection
            low, high = (middle, high) if spread(middle) < target else (low, middle)
        return DipoleWorld(self.positions, high * self.moments, self.earth, self.settings)

    def field(self, points) -> np.ndarray:
        """B at points (N, 3) m in the map frame: (N, 3) tesla."""
        return self.earth + dipole_field(points, self.positions, self.moments)

    def norm(self, xy, height: float | None = None) -> np.ndarray:
        """|B| at one height: (N,) tesla.

        Args:
            xy: (N, 2) m.
            height: m; settings.sensor_height if None.
        """
        xy = np.asarray(xy, dtype=np.float64).reshape(-1, 2)
        z = np.full(len(xy), self.settings.sensor_height if height is None else float(height))
        return np.linalg.norm(self.field(np.column_stack([xy, z])), axis=1)

    def truth_grid(self, resolution: float, height: float | None = None):
        """Cell centres x, y (m) and |B| (T) over the room, each (H, W); row 0 at the smallest y.

        Args:
            resolution: side of a cell, m.
            height: m; settings.sensor_height if None.

        Raises:
            ValueError: resolution is 0, negative or NaN.
        """
        if not resolution > 0:
            raise ValueError(
                f"resolution is {resolution!r}, expected a positive length in metres, for example 0.05"
            )

        nx = max(1, round(self.settings.width / resolution))
        ny = max(1, round(self.settings.depth / resolution))
        x, y = np.meshgrid((np.arange(nx) + 0.5) * resolution, (np.arange(ny) + 0.5) * resolution)
        return x, y, self.norm(np.column_stack([x.ravel(), y.ravel()]), height).reshape(x.shape)
