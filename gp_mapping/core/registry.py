"""Makes maps from settings: a builder for each of the built-in models, and two ways to call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.hyper import make_learner
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.rows import RowLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.hyper.vector_theta import VectorTheta
from gp_mapping.core.kernels.curl_free import COMPONENTS
from gp_mapping.core.likelihoods import make_likelihood
from gp_mapping.core.likelihoods.dirichlet import Dirichlet
from gp_mapping.core.models.anytime.model import MEMBERS, AnytimeMap
from gp_mapping.core.models.anytime.tiles import TileMap
from gp_mapping.core.models.classes.model import ClassMap
from gp_mapping.core.models.curl_free.model import CurlFree
from gp_mapping.core.models.device import AUTO, Device, check_device, faster_device, grid_of
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.exact import ExactGP
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.models.tiled.model import TiledMap
from gp_mapping.core.models.tiled.shelf import Shelf
from gp_mapping.core.models.wiski.model import Wiski
from gp_mapping.core.models.wiski.published import PublishedWiski
from gp_mapping.core.places import float_tensor
from gp_mapping.core.scaled_map import ScaledMap
from gp_mapping.core.stored import Room
from gp_mapping.errors import UserError, not_one_of
from gp_mapping.settings.mapping import MapSettings, within_ranges
from gp_mapping.settings.parts import EVERY_SAMPLE, MODELS, NO_INDUCING, TILES

__all__ = ["AUTO", "build_map", "create_map", "device_of", "model_names", "with_device_here"]


# Start of bias_stddev, relative to noise_stddev: it is harmless where passes have no constants.
_BIAS = 0.1


def with_defaults(settings: MapSettings) -> MapSettings:
    """Settings with a number for each start and prior that is open, that is 0.

    The first cells may have set them before (mapping.beginning.start). The defaults suit a field
    that varies by ten display units over a metre.
    """
    s, unit = settings, settings.field_scale
    signal = s.signal_stddev or 10.0 * unit
    defaults = {
        "lengthscale": s.lengthscale or 1.0,
        "signal_stddev": signal,
        "noise_stddev": s.noise_stddev or 0.7 * unit,
        "constant_stddev": s.constant_stddev or 2.0 * signal,
        "lengthscale_prior": s.lengthscale_prior or s.lengthscale or 0.6,
        "signal_stddev_prior": s.signal_stddev_prior or s.signal_stddev or 14.0 * unit,
        "noise_stddev_prior": s.noise_stddev_prior or s.noise_stddev or unit,
    }
    chosen = within_ranges(defaults)
    # mostly the first cells have set all of them: no setting need be checked again
    is_complete = all(getattr(s, name) == value for name, value in chosen.items())
    return s if is_complete else replace(s, **chosen)


def make_theta_and_learner(settings: MapSettings) -> tuple[Theta, HyperLearner | None]:
    """Initial hyper-parameters in inner units, and their learner; None: nothing is learned."""
    s, unit = with_defaults(settings), settings.field_scale
    bias = (s.bias_stddev or _BIAS * s.noise_stddev) / unit if s.has_biases else 0.0
    theta = Theta(
        s.lengthscale,
        s.signal_stddev / unit,
        s.noise_stddev / unit,
        s.constant_stddev / unit,
        s.heading_stddev / unit,
        s.time_offset,
        bias_stddev=bias,
        kernel_name=s.kernel,
        anisotropy=s.anisotropy,
        long_share=s.long_share,
        long_ratio=s.long_ratio,
    )
    prior = replace(
        theta,
        lengthscale=s.lengthscale_prior,
        signal_stddev=s.signal_stddev_prior / unit,
        noise_stddev=s.noise_stddev_prior / unit,
        heading_stddev=3**0.5 * theta.heading_stddev,
        time_offset=s.time_offset,
    )

    # which of Theta.vector() are learned
    learn, noise = (
        settings.learn_hyperparameters,
        settings.learn_hyperparameters or settings.learn_noise,
    )
    noise = noise and settings.metric  # classes and counts have none to learn
    free = (learn, learn, noise, noise, settings.learn_time_offset) + 2 * (
        settings.learn_lever_arm,
    )

    likelihood = make_likelihood(settings)
    if isinstance(likelihood, Dirichlet):
        # what α_ε says; the robot's delay and lever arm are those of no single class
        label = likelihood.least_noise**0.5
        theta, prior = replace(theta, noise_stddev=label), replace(prior, noise_stddev=label)
        free = (learn, learn, *5 * (False,))
    return theta, make_learner(likelihood, theta, prior, free)


def _sparse(settings: MapSettings, learner, theta: Theta) -> dict:
    """Arguments that all maps with inducing inputs have."""
    return {
        "max_inducing": settings.max_inducing,
        "tolerance": settings.inducing_tolerance,
        "information": settings.inducing_information,
        "memory_size": settings.memory_size,
        "memory_rule": settings.memory_rule,
        "learner": learner,
        "seed": settings.seed,
        "likelihood": make_likelihood(settings),
        "max_biases": settings.max_biases,
        "bias_prior": theta.bias_stddev if settings.learns_bias else 0.0,
        "scale": settings.field_scale,
        "device": settings.device,
        "dtype": getattr(torch, settings.dtype),
    }


def _one_lengthscale(settings: MapSettings) -> None:
    """Raise ValueError for settings with more than one lengthscale."""
    if settings.anisotropy != 1.0 or settings.long_share > 0.0:
        raise ValueError(
            f"model: {settings.model!r} has one lengthscale, in all directions; write anisotropy: 1.0 and "
            "long_share: 0.0, or model: dual_svgp"
        )


def _classes_or_one(
    settings: MapSettings, extra: dict, make: Callable[[dict], ScaledMap]
) -> FieldMap:
    """A map, or a map of classes where the likelihood makes targets for each of them.

    Args:
        settings: of the map.
        extra: see build_map.
        make: makes a map with what is not a setting.
    """
    likelihood = make_likelihood(settings)
    if not isinstance(likelihood, Dirichlet):
        return make(extra)
    if "centre" in extra or settings.field_scale != 1.0:
        raise ValueError(
            f"likelihood {likelihood.name}: the latent fields have no unit; field_scale must be 1.0, "
            f"not {settings.field_scale:g}, and a centre cannot be given"
        )
    return ClassMap(likelihood, lambda: make(extra | {"centre": [likelihood.centre]}))


def build_dual_svgp(settings: MapSettings, **extra) -> DualSVGP:
    """A DualSVGP by the settings; the other arguments go to the model."""
    theta, learner = make_theta_and_learner(settings)
    return DualSVGP(theta, **_sparse(settings, learner, theta), **extra)


def build_solve_gp(settings: MapSettings, **extra) -> SolveGP:
    """A SolveGP by the settings; the other arguments go to the model."""
    theta, learner = make_theta_and_learner(settings)
    return SolveGP(
        theta,
        max_orthogonal=settings.max_orthogonal,
        orthogonal_covariance=settings.orthogonal_covariance,
        **_sparse(settings, learner, theta),
        **extra,
    )


def build_wiski(settings: MapSettings, **extra) -> FieldMap:
    """A map on a lattice, or one for each class; the other arguments go to the model."""
    _one_lengthscale(settings)
    return _classes_or_one(settings, extra, partial(_wiski, settings))


def _wiski(settings: MapSettings, extra: dict) -> Wiski | PublishedWiski:
    """One map on a lattice."""
    theta, learner = make_theta_and_learner(settings)
    lattice = {
        "max_biases": settings.max_biases,
        "bias_prior": theta.bias_stddev if settings.learns_bias else 0.0,
        "density": settings.grid_density,
        "max_nodes": settings.max_grid_nodes,
        "learner": learner,
        "memory_size": settings.memory_size,
        "seed": settings.seed,
        "scale": settings.field_scale,
        "device": settings.device,
        **extra,
    }
    if settings.wiski_form == "dense":
        return PublishedWiski(theta, rank=settings.max_inducing, **lattice)
    return Wiski(theta, refresh_samples=settings.refresh_samples, **lattice)


def build_anytime(settings: MapSettings, **extra) -> AnytimeMap:
    """The member of the anytime family that the settings name; others go to the model."""
    theta, learner = make_theta_and_learner(settings)
    if MEMBERS[settings.model].residual != "block":
        return AnytimeMap(settings.model, theta, **_sparse(settings, learner, theta), **extra)
    return TileMap(
        settings.model,
        theta,
        tile_side=settings.tile_side,
        tile_samples=settings.tile_samples,
        **_sparse(settings, learner, theta),
        **extra,
    )


def build_exact(settings: MapSettings, **extra) -> FieldMap:
    """An exact GP, or one for each class; the other arguments go to the model."""
    return _classes_or_one(settings, extra, partial(_exact, settings))


def _exact(settings: MapSettings, extra: dict) -> ExactGP:
    """One exact GP."""
    theta, learner = make_theta_and_learner(settings)
    return ExactGP(
        theta,
        max_samples=settings.max_exact_samples,
        learner=learner,
        seed=settings.seed,
        scale=settings.field_scale,
        device=settings.device,
        bias_prior=theta.bias_stddev if settings.learns_bias else 0.0,
        **extra,
    )


def build_curl_free(settings: MapSettings, **extra) -> CurlFree:
    """A map of vectors; the other arguments go to the model.

    Raises:
        ValueError: inducing inputs are given, or more than one lengthscale.
    """
    theta, learner = make_theta_and_learner(settings)
    _one_lengthscale(settings)
    if "inducing_inputs" in extra:
        raise ValueError("model curl_free chooses its inducing inputs: places and components")
    sparse = _sparse(settings, None, theta)
    theta = VectorTheta.from_theta(theta, potential=settings.potential)
    if learner is not None:
        prior = VectorTheta.from_theta(learner.prior, potential=settings.potential)
        sparse["learner"] = RowLearner(theta, prior, free=tuple(learner.free))
    sparse |= {  # of rows, and of one component in one pass
        "memory_size": COMPONENTS * settings.memory_size,
        "max_biases": COMPONENTS * settings.max_biases,
    }
    return CurlFree(theta, **sparse, **extra)


def model_names() -> tuple[str, ...]:
    """The names that `model` may take."""
    return tuple(MODELS)


def build_map(settings: MapSettings, room: Room | None = None, **extra) -> FieldMap:
    """Make an empty map of these settings; starts and priors that are open get their defaults.

    Args:
        settings: of the map.
        room: storage for tiles that are not needed now; None: they stay in memory.
        extra: what is not a setting: inducing_inputs (M, D) in metres, centre (C,) in SI.

    Raises:
        UserError: settings that do not go together, or a device that is not here.
    """
    device = device_of(settings).name
    if device != settings.device:
        settings = replace(settings, device=device)
    try:
        return _build(with_defaults(settings), room, extra)
    except UserError:
        raise
    except ValueError as error:  # settings that do not go together
        raise UserError(str(error)) from error


def device_of(settings: MapSettings) -> Device:
    """Where the tensors of a map of these settings are, and why.

    Raises:
        UserError: a device that is not here.
    """
    if settings.device != AUTO:
        check_device(settings.device)
        return Device(settings.device, "as set")
    every = MODELS.has(settings.model, EVERY_SAMPLE)
    return _faster(settings.max_exact_samples if every else settings.max_inducing, settings.dtype)


def with_device_here(settings: dict) -> dict:
    """Saved settings; on the processor where the device of the map is not here."""
    name = settings.get("device", "cpu")
    if name == AUTO or not isinstance(name, str):  # what is no name is refused with the settings
        return settings

    try:
        check_device(name)
    except UserError:
        return settings | {"device": "cpu"}
    return settings


@cache
def _faster(size: int, dtype: str) -> Device:
    """The faster device for maps of `size` inputs; tried once in a process."""

    def make(name: str) -> FieldMap:
        """A map for a trial on the device of that name."""
        tried = MapSettings(
            device=name,
            dtype=dtype,
            max_inducing=size,
            learn_hyperparameters=False,
            field_scale=1.0,
        )
        return build_dual_svgp(with_defaults(tried), inducing_inputs=grid_of(size))

    return faster_device(make, size)


def _build(settings: MapSettings, room: Room | None, extra: dict) -> FieldMap:
    """One map, or a map of tiles, of complete settings."""
    make = MODELS[settings.model]
    tiles = settings.tiles and MODELS.has(settings.model, TILES)
    if not tiles or "inducing_inputs" in extra:
        return make(settings, **extra)

    def tile(centre):
        """A tile with prior mean `centre` (C,), SI, or None."""
        mean = {} if centre is None or not settings.metric else {"centre": centre}
        return make(settings, **extra | mean)

    return TiledMap(
        tile,
        side=settings.map_tile_side,
        most=settings.tiles_in_memory,
        limit=settings.max_tiles,
        shelf=Shelf(room),
        seed=settings.seed,
    )


def create_map(model: str, *, inducing_inputs=None, centre=None, **settings) -> FieldMap:
    """Make an empty map of any model by its name.

    Args:
        model: name, one of `model_names()`.
        inducing_inputs: (M, D) metres, fixed (models with inducing inputs).
        centre: (C,) SI, the prior mean; the median of the first batch if None.
        settings: fields of MapSettings, in SI. tiles=True makes a map of tiles, else it is one map.

    Returns:
        An empty map.

    Raises:
        ValueError: an unknown model or setting, or a value out of range.
    """
    if model not in MODELS:
        raise ValueError(f"model {not_one_of(model, MODELS)}")
    known = MapSettings.__dataclass_fields__
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise ValueError(f"setting {not_one_of(unknown[0], known)}")

    extra: dict[str, Any] = {
        name: float_tensor(value)
        for name, value in (("inducing_inputs", inducing_inputs), ("centre", centre))
        if value is not None
    }
    if "inducing_inputs" in extra and MODELS.has(model, NO_INDUCING):
        raise ValueError(f"model {model} has no inducing inputs")
    if not len(extra.get("inducing_inputs", "any")):
        raise ValueError(
            "inducing_inputs has no rows, so the map could learn nothing; leave it out, and the map chooses them"
        )
    return build_map(MapSettings(model=model, **{"tiles": False} | settings), **extra)
