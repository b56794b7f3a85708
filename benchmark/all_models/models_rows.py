"""The rows of the table of models: every registered map, and the baselines with what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from benchmark.protocol import LENGTHSCALE, NOISE, SIGNAL
from gp_mapping.core.registry import model_names

__all__ = ["AXLE", "ROWS", "Row"]

THETA = (LENGTHSCALE, SIGNAL, NOISE)
WARM_UP = 7000  # samples: about the first pass
_LEAVE_ONE_OUT = ("dual_svgp", "solve_gp", "wiski", "dtc", "fitc", "osgpr_fixed", "local_gps")
_BERNOULLI = ("dual_svgp", "solve_gp", "osvgp", "gpytorch_svgp")


@dataclass(frozen=True)
class Row:
    """One line. build: of a baseline, from all positions (N, 2) m of the stream and the number of its first part;
    None for a map. theta: how θ comes about."""

    name: str
    title: str
    theta: str = "learned"
    build: Callable[[Tensor, int], object] | None = None
    streams: bool = True  # False: it keeps everything and fits in the end
    settings: dict = field(default_factory=dict)

    @property
    def three_axes(self) -> bool:
        return self.settings.get("model") == "curl_free"

    @property
    def costs(self) -> bool:
        """Whether its cost is not that of another row."""
        return self.build is not None or len(self.settings) == 1

    @property
    def left_out_by_default(self) -> bool:
        """Whether leave one out is run without --full."""
        return self.name in _LEAVE_ONE_OUT

    @property
    def bernoulli(self) -> bool:
        return self.name in _BERNOULLI


def _osgpr(x: Tensor, _: int):
    from benchmark.baselines import OSGPR
    from benchmark.baselines.kernel import logs

    return OSGPR(logs(*THETA), budget=400)


def _osgpr_fixed(x: Tensor, _: int):
    from benchmark.baselines import OSGPR
    from benchmark.baselines.kernel import logs
    from benchmark.batch import kmeans_inputs

    return OSGPR(logs(*THETA), inducing=kmeans_inputs(x, min(400, len(x) // 3), 0))


def _osvgp(x: Tensor, _: int):
    from benchmark.baselines import OSVGP
    from benchmark.baselines.kernel import logs
    from benchmark.batch import kmeans_inputs

    return OSVGP(logs(*THETA), inducing=kmeans_inputs(x, min(200, len(x) // 3), 0))


def _local_gps(x: Tensor, _: int):
    from benchmark.baselines import LocalGPs
    from benchmark.baselines.kernel import logs

    return LocalGPs(logs(*THETA))


def _exact(x: Tensor, _: int):
    from benchmark.baselines import ExactGP

    return ExactGP(min(3000, len(x)), THETA)


def _svgp(x: Tensor, _: int):
    from benchmark.baselines import StoredSVGP

    return StoredSVGP(THETA)


def _ovc(x: Tensor, first: int):
    from benchmark.baselines import OnlineConditioning

    return OnlineConditioning(THETA, first, thinned=25 if len(x) > 3000 else 1)


_BASELINES = (
    Row("osgpr", "O-SGPR, z by its own rule, M = 400", "given", _osgpr),
    Row(
        "osgpr_fixed",
        "O-SGPR, z fixed (k-means of the whole drive), M = 400",
        "given",
        _osgpr_fixed,
    ),
    Row(
        "osvgp",
        "O-SVGP, z fixed (k-means of the whole drive), M = 200, 5 steps a batch",
        "learned",
        _osvgp,
    ),
    Row("local_gps", "local GPs, at most 200 samples in each", "given", _local_gps),
    Row("gpytorch_exact", "GPyTorch, exact GP on a random 3000, stored", "given", _exact, False),
    Row(
        "gpytorch_svgp",
        "GPyTorch, SVGP, M = 200, 8 epochs in minibatches, stored",
        "learned",
        _svgp,
        False,
    ),
    Row(
        "gpytorch_ovc",
        "GPyTorch, SVGP of the first pass, then online variational conditioning, 1 of 25",
        "learned",
        _ovc,
    ),
)
AXLE = 0.055  # m; the recordings' tracked point lies that far in front of the axle, as trials 2 and 5 say
_TOLD = Row(
    "curl_free_axle",
    f"`curl_free`, `axle_distance` {AXLE} m",
    settings={"model": "curl_free", "axle_distance": AXLE},
)
ROWS = {
    row.name: row
    for row in (
        *(Row(name, f"`{name}`", settings={"model": name}) for name in model_names()),
        _TOLD,
        *_BASELINES,
    )
}
