"""Settings of a map, frozen, with unit, range and meaning.

ROS parameters and `--params` files are made from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from gp_mapping.settings.fields import check_settings, setting
from gp_mapping.settings.latent import latent_starts
from gp_mapping.settings.parts import (
    ANY_LIKELIHOOD,
    BIASES,
    CLASS_TARGETS,
    KERNELS,
    LIKELIHOODS,
    METRIC,
    MODELS,
)

__all__ = ["AUTOMATIC", "MapSettings", "within_ranges"]

# settings that are estimated from the first cells where they are 0
AUTOMATIC = (
    "lengthscale",
    "signal_stddev",
    "noise_stddev",
    "constant_stddev",
)


@dataclass(frozen=True)
class MapSettings:
    """All settings of model, noise, learning and grid.

    Standard deviations and lengths are SI (tesla, metres).

    Raises:
        ValueError: a wrong type, range or choice, or values that do not go together.
    """

    model: str = setting("dual_svgp", "the map's model", choices=MODELS)
    kernel: str = setting("matern52", "covariance function", choices=KERNELS)
    learn_smoothness: bool = setting(
        True,
        "of matern32, 52, 72 and 92 the one under which up to 2048 cells are likeliest takes the "
        "place of `kernel` matern52, where `lengthscale` is 0. Not in teams and fleets",
    )
    anisotropy: float = setting(
        1.0,
        "how many times longer than `lengthscale` the field's lengthscale along y is; "
        "below 1: 1/this along x. Not with wiski and curl_free",
        "1",
        0.01,
        100.0,
    )
    long_share: float = setting(
        0.0,
        "fraction of the signal variance that a second kernel with a longer lengthscale has; "
        "0: there is none. Not with wiski and curl_free",
        "1",
        0.0,
        0.99,
    )
    long_ratio: float = setting(
        5.0, "how many times longer than `lengthscale` the second one is", "1", 1.0, 1000.0
    )

    # what a measurement is
    likelihood: str = setting(
        "gaussian",
        "what a measurement is: the field's value; the same with gross errors, or with an end "
        "of the sensor's range; "
        "whether it lies above `threshold`; a count; one of `classes`",
        choices=LIKELIHOODS,
    )
    potential: str = setting(
        "harmonic",
        "model curl_free: what the field is the gradient of; harmonic: without "
        "divergence as well, as where there is neither current nor iron; free: of `kernel`",
        choices=("harmonic", "free"),
    )
    threshold: float = setting(
        0.5,
        "likelihood bernoulli: what is asked is whether a measurement exceeds this; 0.5 "
        "for labels 0 and 1",
        "SI",
        -1e15,
        1e15,
    )
    published: str = setting(
        "observable",
        "what is drawn and published with bernoulli, poisson, softmax and dirichlet: the "
        "probability, the rate, the most likely class and its probability; or the latent field f",
        choices=("observable", "latent"),
    )
    count_duration: float = setting(
        1.0,
        "likelihood poisson: how long one measurement counts; what is published is a rate",
        "s",
        1e-6,
        1e6,
    )
    degrees_of_freedom: float = setting(
        4.0, "likelihood student_t: the fewer, the heavier the tails", "1", 2.1, 1000.0
    )
    lower_limit: float = setting(
        -1e15, "likelihood censored: told where the field is there or below", "SI", -1e15, 1e15
    )
    upper_limit: float = setting(
        1e15, "likelihood censored: told where the field is there or above", "SI", -1e15, 1e15
    )
    classes: int = setting(
        2, "likelihood softmax, dirichlet: how many; measurements are labels 0, 1, …", "", 2, 64
    )
    alpha_epsilon: float = setting(
        0.01,
        "likelihood dirichlet: α of the classes that a label is not; the less, the more one label "
        "says",
        "1",
        1e-6,
        1.0,
    )

    # hyper-parameters, or where learning starts
    lengthscale: float = setting(
        0.0,
        "distance over which the field changes; a start where it is learned; 0: from the "
        "first cells",
        "m",
        0.0,
        1e5,
    )
    signal_stddev: float = setting(
        0.0,
        "standard deviation of the field about its mean; a start; 0: from the first cells",
        "SI",
        0.0,
        1e9,
    )
    noise_stddev: float = setting(
        0.0,
        "disagreement between two passes of one place; a start; 0: from the first cells",
        "SI",
        0.0,
        1e9,
    )
    constant_stddev: float = setting(
        0.0,
        "prior standard deviation of the field's mean about its first values; 0: "
        "three times signal_stddev; twice with classes and counts, and in create_map",
        "SI",
        0.0,
        1e9,
    )

    # the display unit
    field_scale: float = setting(
        1e-6,
        "one display unit in SI, the model's inner unit (1e-6 T = 1 microtesla)",
        "SI",
        1e-15,
        1e9,
    )
    field_unit: str = setting("uT", "name of the display unit in pictures, logs and markers")

    # the body-fixed field
    heading_stddev: float = setting(
        0.3e-6,
        "standard deviation of the part of the field that turns with the "
        "robot; a start; 0 leaves it out",
        "SI",
        0.0,
        1e9,
    )

    # constants of passes
    learn_bias: bool = setting(
        True,
        "each pass has an unknown constant of its own (mount, warm-up, what the robot "
        "carries), whose standard deviation is learned with learn_hyperparameters or learn_noise, else "
        "bias_stddev; models dual_svgp, solve_gp, wiski, "
        "exact, sor, dtc, fitc, fic, curl_free with Gaussian measurements",
    )
    bias_stddev: float = setting(
        0.0,
        "standard deviation of the constants of passes; a start where it is learned; 0: "
        "a tenth of noise_stddev's start, or no such constants where it is not learned",
        "SI",
        0.0,
        1e9,
    )
    bias_time: float = setting(
        0.0,
        "time after which a pass's constant is another one, as of a sensor that drifts; by "
        "how much it is like the last one is learned (model wiski: not at all); 0: it stays for "
        "the pass, or as is learned",
        "s",
        0.0,
        1e9,
    )
    learn_bias_time: bool = setting(
        True, "learn bias_time where it is 0, from places that the robot passed at several times"
    )
    max_biases: int = setting(
        50,
        "passes whose constants are kept apart; beyond, those of which the least is "
        "remembered are closed, and counted: their samples count on, but leave the memory; "
        "with wiski two share a constant",
        "",
        1,
        1000,
    )

    # when and where the sensor measures, relative to the poses
    time_offset: float = setting(
        0.0,
        "how much later the sensor's stamps are than the pose's, beyond stamp_offset; a start",
        "s",
        -10.0,
        10.0,
    )
    learn_time_offset: bool = setting(
        True, "learn time_offset online, from the velocity of the samples"
    )
    response_time: float = setting(
        0.0,
        "time constant with which the sensor follows the field (thermometer, gas, humidity): the "
        "map takes what it tells back to what it would settle at; 0: none, or as is learned",
        "s",
        0.0,
        1e4,
    )
    learn_response_time: str = setting(
        "sensor",
        "learn response_time where it is 0; sensor: for temperature, relative_humidity and scalar",
        choices=("sensor", "always", "never"),
    )
    learn_lever_arm: bool = setting(
        False,
        "learn the sensor's place on the robot online; along the direction of "
        "travel only changes of speed tell it from time_offset",
    )
    axle_distance: float = setting(
        0.0,
        "how far in front of the wheels' axle the poses' point lies: the heading then "
        "follows from the path, turns on the spot included; 0: not known, the direction "
        "of travel stands in. For poses without orientation",
        "m",
        0.0,
        100.0,
    )

    # what is learned, and its priors
    learn_noise: bool = setting(
        False, "learn noise and heading online though learn_hyperparameters is off"
    )
    learn_hyperparameters: bool = setting(
        True, "learn lengthscale, signal, noise and heading online"
    )
    lengthscale_prior: float = setting(
        0.0,
        "median of the prior of lengthscale (scale of the logarithm: 1); 0: its start",
        "m",
        0.0,
        1e5,
    )
    signal_stddev_prior: float = setting(
        0.0,
        "median of the prior of signal_stddev (scale of the logarithm: 1); 0: its start",
        "SI",
        0.0,
        1e9,
    )
    noise_stddev_prior: float = setting(
        0.0,
        "median of the prior of noise_stddev (scale of the logarithm: 1.5); 0: its start",
        "SI",
        0.0,
        1e9,
    )

    # inducing inputs
    max_inducing: int = setting(
        400, "budget of inducing inputs: sets memory (M squared) and time", "", 1, 5000
    )
    max_orthogonal: int = setting(
        400,
        "model solve_gp: budget of orthogonal inducing inputs, in addition to max_inducing",
        "",
        0,
        5000,
    )
    orthogonal_covariance: bool = setting(
        True,
        "model solve_gp: the orthogonal part has a covariance of its own; off: "
        "the prior's stands in for it (ODVGP)",
    )
    inducing_information: float = setting(
        1.0,
        "what the data tell at least of that which an inducing input alone can "
        "express: with less it is not worth its cost; 0: inducing_tolerance alone "
        "decides",
        "bits",
        0.0,
        20.0,
    )
    inducing_tolerance: float = setting(
        1e-4,
        "a sample becomes an inducing input only where its residual prior "
        "variance exceeds this fraction of the signal variance, or the noise variance where "
        "that is less",
        "",
        1e-5,
        0.5,
    )

    # tiles of a large map
    tiles: bool = setting(
        True,
        "go on in a new tile where one map is full and the robot has left its ground: constant "
        "cost over any area; models dual_svgp, solve_gp, sor, dtc, fitc, fic",
    )
    map_tile_side: float = setting(
        8.0,
        "side of a tile, at the most; smaller where the field takes more inducing "
        "inputs than max_inducing has for it",
        "lengthscales",
        3.0,
        100.0,
    )
    tiles_in_memory: int = setting(
        12,
        "tiles kept in memory; the others are on the disk and come back when the robot "
        "or a question does",
        "",
        9,
        100000,
    )
    max_tiles: int = setting(
        100000,
        "bound of the tiles; ground beyond them is not mapped: its measurements are left "
        "out, and counted. Each on the disk takes .4 kB of memory",
        "",
        9,
        10000000,
    )

    # remembered samples
    memory_size: int = setting(2000, "bound of the memory of past samples", "", 0, 100000)
    memory_rule: str = setting(
        "uniform",
        "which samples a full memory keeps, a quarter of it always the newest: any, "
        "those of much leverage, the newest, or those far from each other; model wiski: any",
        choices=("uniform", "leverage", "newest", "farthest"),
    )

    # other models: wiski, pitc and pic, exact
    wiski_form: str = setting(
        "matrix_free",
        "model wiski: sums on the lattice, solved by conjugate gradients; or the "
        "published form, with a dense root of rank `max_inducing`, for small areas",
        choices=("matrix_free", "dense"),
    )
    grid_density: float = setting(
        8.0,
        "model wiski: lattice nodes in a lengthscale, to the nearest power of two",
        "nodes",
        2.0,
        32.0,
    )
    max_grid_nodes: int = setting(
        500000,
        "model wiski: bound of the lattice; a larger area gets a coarser one",
        "",
        4096,
        4000000,
    )
    refresh_samples: int = setting(
        10,
        "model wiski: samples by which its predictions may be behind, at most one in 50 of all",
        "",
        0,
        1000000,
    )
    tile_side: float = setting(
        2.0,
        "models pitc and pic: side of the square tiles whose samples form a block",
        "lengthscales",
        0.1,
        100.0,
    )
    tile_samples: int = setting(
        100, "models pitc and pic: most samples in one block; a full one closes", "", 2, 5000
    )
    max_exact_samples: int = setting(
        5000, "model exact: samples beyond these are left out, and counted", "", 1, 50000
    )

    # cells, gross errors and changes of the field
    cells: bool = setting(True, "average raw samples into cells along each pass")
    cell_length: float = setting(
        0.1, "longest path of a cell; shorter where a learned field changes in it", "m", 1e-4, 1e4
    )
    cell_lengthscales: float = setting(
        0.1, "longest cell, from 2 cell_length on; 0: never", "lengthscales", 0.0, 0.2
    )
    cell_duration: float = setting(1.0, "longest time in one cell", "s", 1e-3, 1e4)
    robust: bool = setting(
        True,
        "gross errors are left out of their cell, or, where a whole cell is one, weakened; counted",
    )
    follow_changes: bool = setting(
        True, "where scores show that the field has changed, forget what was known there"
    )

    # what one-step-ahead errors change
    predictive_noise: bool = setting(
        True, "noise reported with predictions comes from one-step-ahead errors"
    )
    local_scale: bool = setting(True, "stddev grows or shrinks where one-step-ahead errors say so")
    score_window: int = setting(
        2500, "bound of the window of one-step-ahead scores", "", 10, 1000000
    )
    score_distance: float = setting(
        1.0, "path between a scored sample and the newest data behind its prediction", "m", 0.0, 1e4
    )

    # forgetting, and fixes of a satellite receiver
    forgetting_time: float = setting(
        0.0, "time constant of exponential forgetting; 0 keeps everything", "s", 0.0, 1e9
    )
    max_fixes: int = setting(
        2000,
        "bound of the fixes kept for the datum (fix_topic); beyond it every second one "
        "goes, and of those to come as many",
        "",
        10,
        1000000,
    )

    # the grid that is drawn
    resolution: float = setting(0.05, "side of a grid cell", "m", 1e-3, 1e4)
    margin: float = setting(0.5, "how far the grid extends beyond the path", "m", 0.0, 1e4)
    max_grid_cells: int = setting(
        4000000,
        "bound of the grid; of a larger area a part is drawn, and that is said",
        "",
        16,
        100000000,
    )
    window: float = setting(
        0.0,
        "side of the square about the robot that is drawn and published; 0: all of the "
        "ground, as far as max_grid_cells goes",
        "m",
        0.0,
        1e6,
    )
    unknown_ratio: float = setting(
        0.8, "a cell is unknown where stddev exceeds this fraction of signal_stddev", "", 0.01, 1.0
    )

    # computing
    seed: int = setting(0, "seed of every random choice", "", 0, 2**31 - 1)
    device: str = setting(
        "cpu", "torch device of the map: cpu, cuda, cuda:1, or auto for the faster one"
    )
    dtype: str = setting(
        "float64",
        "precision of kernels and rendering (sums are always float64)",
        choices=("float64", "float32"),
    )

    def __post_init__(self):
        check_settings(self)

        needed = CLASS_TARGETS if self.has_class_targets else ANY_LIKELIHOOD
        if self.likelihood != "gaussian" and not MODELS.has(self.model, needed):
            able = [name for name in MODELS if MODELS.has(name, needed)]
            takes = "Gaussian measurements only"
            if MODELS.has(self.model, CLASS_TARGETS):
                takes += ", and classes with likelihood 'dirichlet'"
            elif MODELS.has(self.model, ANY_LIKELIHOOD):
                takes = "classes with likelihood 'softmax'"
            raise ValueError(
                f"model: {self.model!r} takes {takes}, not likelihood {self.likelihood!r}; write "
                f"model: {' or '.join(able)}"
            )
        low, high = self.limits
        if self.censored and (not low < high or (low, high) == (-math.inf, math.inf)):
            raise ValueError(
                f"lower_limit: {self.lower_limit!r}, upper_limit: {self.upper_limit!r}: likelihood 'censored' "
                "needs what the sensor tells at an end of its range, SI, the lower below the upper"
            )
        if self.bias_stddev > 0 and not self._may_have_biases:
            able = [name for name in MODELS if MODELS.has(name, BIASES)]
            raise ValueError(
                f"bias_stddev: model {self.model!r} with likelihood {self.likelihood!r} knows no "
                f"constants of passes; write bias_stddev: 0.0, or model: {' or '.join(able)}, "
                "likelihood: gaussian"
            )

        defaults = {f.name: f.default for f in fields(self)}
        # what still has its default is replaced by what suits a latent field
        for name, value in latent_starts(self.likelihood).items():
            if getattr(self, name) == defaults[name]:
                object.__setattr__(self, name, value)

        # "1" and "1/s" are what this line gave an earlier copy, from which this one may be made
        if not self.metric and self.field_unit in (defaults["field_unit"], "1", "1/s"):
            object.__setattr__(
                self, "field_unit", "1/s" if self.likelihood == "poisson" and self.observes else "1"
            )

    @property
    def _may_have_biases(self) -> bool:
        """Whether model and likelihood know constants of passes."""
        return MODELS.has(self.model, BIASES) and self.likelihood == "gaussian"

    @property
    def has_biases(self) -> bool:
        """Whether passes have constants: the model knows them, and one is given or learned."""
        return self._may_have_biases and (self.bias_stddev > 0 or self.learns_bias)

    @property
    def learns_bias(self) -> bool:
        """Whether the standard deviation of the passes' constants is learned."""
        return (
            self._may_have_biases
            and self.learn_bias
            and (self.learn_hyperparameters or self.learn_noise)
        )

    @property
    def learns_response(self) -> bool:
        """Whether it is looked for whether the sensor is slow."""
        looks = self.learn_response_time == "always" and not self.response_time
        return looks and self.metric and not self.censored

    @property
    def metric(self) -> bool:
        """Whether a measurement is a value of the field itself, not a class or a count."""
        return LIKELIHOODS.has(self.likelihood, METRIC)

    @property
    def counts(self) -> bool:
        """Whether a measurement is a count of events."""
        return self.likelihood == "poisson"

    @property
    def censored(self) -> bool:
        """Whether an end of the sensor's range says that the field is beyond."""
        return self.likelihood == "censored"

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the sensor's range, SI, at which a measurement is no value; infinite: none."""
        if not self.censored:
            return -math.inf, math.inf
        # the settings' own bounds stand for no limit
        ends = (self.lower_limit, self.upper_limit)
        low, high = (end if abs(end) < 1e15 else math.copysign(math.inf, end) for end in ends)
        return low, high

    @property
    def labels(self) -> bool:
        """Whether what counts of a measurement is on which side of `threshold` it lies."""
        return self.likelihood == "bernoulli"

    @property
    def has_class_targets(self) -> bool:
        """Whether labels become Gaussian targets, in a map for each class."""
        return LIKELIHOODS.has(self.likelihood, CLASS_TARGETS)

    @property
    def of_classes(self) -> bool:
        """Whether a measurement is one of `classes`."""
        return self.likelihood == "softmax" or self.has_class_targets

    @property
    def observes(self) -> bool:
        """Whether a probability or a rate is published instead of the latent field f."""
        return not self.metric and self.published == "observable"


def within_ranges(values: dict[str, float]) -> dict[str, Any]:
    """Limit numbers that were computed from others to the ranges of their settings.

    Args:
        values: by the name of a setting in MapSettings.

    Returns:
        The same names; each value is at least 1e-15 and at most the setting's bound.
    """
    limits = {f.name: f.metadata for f in fields(MapSettings)}
    return {name: min(max(value, 1e-15), limits[name]["high"]) for name, value in values.items()}
