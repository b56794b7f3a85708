"""Registries of models, kernels, likelihoods and sensors by name.

A part is built in, registered by a program, or offered by another package; no part is imported
before it is needed. Another package offers parts by entry points of its pyproject.toml, here a
model `own` of the module `my_models`:

    [project.entry-points."gp_mapping.models"]
    own = "my_models:OwnGP"

The entry point may lead to a Part, which has traits, or to what a Part's `make` may be, whose
attribute `traits` counts where it has one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from gp_mapping.errors import not_one_of

__all__ = [
    "ANY_LIKELIHOOD",
    "BIASES",
    "CLASS_TARGETS",
    "EVERY_SAMPLE",
    "KERNELS",
    "LIKELIHOODS",
    "METRIC",
    "MODELS",
    "NO_INDUCING",
    "SUMS",
    "TILES",
    "VECTOR",
    "Part",
    "Parts",
    "register_kernel",
    "register_likelihood",
    "register_model",
]

# traits of models
VECTOR = "vector"  # maps the components of one vector
# takes classes, counts and gross errors, not Gaussian measurements alone
ANY_LIKELIHOOD = "any likelihood"
BIASES = "biases"  # has a constant for each pass
EVERY_SAMPLE = "every sample"  # keeps all samples: its cost is by max_exact_samples
NO_INDUCING = "no inducing inputs"  # none can be given
SUMS = "sums"  # its sites can be formed bag by bag
TILES = "tiles"  # may be the map of each tile
# of models: may map each class by itself; of likelihoods: labels become Gaussian targets of each
CLASS_TARGETS = "class targets"
# traits of likelihoods
METRIC = "metric"  # a measurement is a value of the field itself; else the latent field has no unit


@dataclass(frozen=True)
class Part:
    """One entry of a registry.

    Attributes:
        make: what makes the part, or where that is ("module:name"), so that nothing is imported
            before it is needed.
        traits: what is known of the part without loading it.
    """

    make: Any
    traits: frozenset[str] = frozenset()

    def load(self) -> Any:
        """Return what makes the part, importing it where necessary."""
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(":")
        return getattr(importlib.import_module(module), name)


class Parts(Mapping):
    """A registry: name → what makes a part of one kind.

    Args:
        kind: the setting that takes the names; other packages offer their parts as entry points of
            the group `gp_mapping.<kind>s`.
        builtin: parts of this package.
    """

    # entry points of all groups, read once for all kinds: it looks at each installed package
    _installed: Any = None

    def __init__(self, kind: str, builtin: dict[str, Part]):
        self.kind, self.group = kind, f"gp_mapping.{kind}s"
        self._parts, self._builtin = dict(builtin), frozenset(builtin)
        self._offered: dict[str, EntryPoint] | None = None

    def register(self, name: str, part: object) -> None:
        """Make a part known to this program.

        Args:
            name: a word of letters, digits and _.
            part: a Part, or what makes one.

        Raises:
            ValueError: the name is no word, or another part has it.
        """
        if not name.isidentifier():
            raise ValueError(f"{self.kind} {name!r}: a name is a word of letters, digits and _")
        if name in self:
            raise ValueError(f"{self.kind} {name!r} is there already; known are {', '.join(self)}")
        self._parts[name] = _part(part)

    def part(self, name: str) -> Part:
        """Return the part of that name, loaded where another package offers it.

        Raises:
            ValueError: there is none, or it cannot be loaded.
        """
        if name not in self._parts:
            offered = self._entries()
            if name not in offered:
                raise ValueError(f"{self.kind} {not_one_of(name, self)}")
            try:
                self._parts[name] = _part(offered[name].load())
            # another package's module may raise anything: it is reported in one line
            except Exception as error:
                raise ValueError(
                    f"{self.kind} {name!r} of {offered[name].value!r} cannot be loaded: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return self._parts[name]

    def has(self, name: str, trait: str) -> bool:
        """Return whether a part has a trait; the part is loaded for that.

        Args:
            name: of the part.
            trait: a word of `Part.traits`.

        Raises:
            ValueError: there is no part of that name, or it cannot be loaded.
        """
        return trait in self.part(name).traits

    def is_builtin(self, name: str) -> bool:
        """Return whether a part is one of this package."""
        return name in self._builtin

    def foreign(self) -> list[tuple[str, object]]:
        """Return name and maker of each part that this package has not."""
        return [(name, p.make) for name, p in self._parts.items() if name not in self._builtin]

    def __getitem__(self, name: str) -> Any:
        return self.part(name).load()

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in self._entries()

    def __iter__(self) -> Iterator[str]:
        return iter({**self._parts, **self._entries()})

    def __len__(self) -> int:
        return len({**self._parts, **self._entries()})

    def _entries(self) -> dict[str, EntryPoint]:
        """Return what other packages offer, by name; read at the first call."""
        if self._offered is None:
            if Parts._installed is None:
                Parts._installed = entry_points()

            self._offered = {
                entry.name: entry for entry in Parts._installed.select(group=self.group)
            }
        return self._offered


def _part(part: object) -> Part:
    """Return a Part as it is; wrap anything else, with its attribute `traits`."""
    return part if isinstance(part, Part) else Part(part, frozenset(getattr(part, "traits", ())))


_BUILDERS = "gp_mapping.core.registry:build_"
MODELS = Parts(
    "model",
    {
        "dual_svgp": Part(
            _BUILDERS + "dual_svgp", frozenset({ANY_LIKELIHOOD, BIASES, SUMS, TILES})
        ),
        "solve_gp": Part(_BUILDERS + "solve_gp", frozenset({ANY_LIKELIHOOD, BIASES, TILES})),
        "wiski": Part(_BUILDERS + "wiski", frozenset({BIASES, CLASS_TARGETS, NO_INDUCING})),
        "exact": Part(
            _BUILDERS + "exact", frozenset({BIASES, CLASS_TARGETS, EVERY_SAMPLE, NO_INDUCING})
        ),
        **{
            name: Part(_BUILDERS + "anytime", frozenset({BIASES, TILES}))
            for name in ("sor", "dtc", "fitc", "fic")
        },
        **{name: Part(_BUILDERS + "anytime") for name in ("pitc", "pic")},
        "curl_free": Part(_BUILDERS + "curl_free", frozenset({VECTOR, BIASES})),
    },
)

_STATIONARY = "gp_mapping.core.kernels.stationary:"
KERNELS = Parts(
    "kernel",
    {
        "rbf": Part(_STATIONARY + "RBF"),
        "matern12": Part(_STATIONARY + "Matern12"),
        "matern32": Part(_STATIONARY + "Matern32"),
        "matern52": Part(_STATIONARY + "Matern52"),
        "matern72": Part(_STATIONARY + "Matern72"),
        "matern92": Part(_STATIONARY + "Matern92"),
    },
)

_LIKELIHOODS = "gp_mapping.core.likelihoods:make_"
LIKELIHOODS = Parts(
    "likelihood",
    {
        "gaussian": Part(_LIKELIHOODS + "gaussian", frozenset({METRIC})),
        "student_t": Part(_LIKELIHOODS + "student_t", frozenset({METRIC})),
        "censored": Part(_LIKELIHOODS + "censored", frozenset({METRIC})),
        "bernoulli": Part(_LIKELIHOODS + "bernoulli"),
        "poisson": Part(_LIKELIHOODS + "poisson"),
        "softmax": Part(_LIKELIHOODS + "softmax"),
        "dirichlet": Part(_LIKELIHOODS + "dirichlet", frozenset({CLASS_TARGETS})),
    },
)


def register_model(
    name: str, make: Callable, *, vector: bool = False, any_likelihood: bool = False
) -> None:
    """Make a model of your own known: the setting `model` then takes its name.

    Args:
        name: value of the setting `model`.
        make: `make(settings, **extra)` returns a FieldMap; settings: MapSettings; extra:
            inducing_inputs and centre of create_map, where they are given.
        vector: whether it maps three components of a vector as one.
        any_likelihood: whether it takes the setting `likelihood`, not Gaussian measurements alone.

    Raises:
        ValueError: the name is taken, or is no word.
    """
    MODELS.register(
        name, Part(make, frozenset([VECTOR] * vector + [ANY_LIKELIHOOD] * any_likelihood))
    )


def register_kernel(name: str, kind: type) -> None:
    """Make a kernel of your own known: the setting `kernel` then takes its name.

    Args:
        name: value of the setting `kernel`.
        kind: a subclass of core.kernels.stationary.Stationary with `correlation`.

    Raises:
        ValueError: the name is taken, or is no word.
    """
    KERNELS.register(name, Part(kind))


def register_likelihood(name: str, make: Callable, *, metric: bool = False) -> None:
    """Make a likelihood of your own known: the setting `likelihood` then takes its name.

    Args:
        name: value of the setting `likelihood`.
        make: `make(settings)` returns a core.likelihoods.base.Likelihood.
        metric: whether a measurement is a value of the field itself, in SI; else the latent field
            has no unit.

    Raises:
        ValueError: the name is taken, or is no word.
    """
    LIKELIHOODS.register(name, Part(make, frozenset([METRIC] * metric)))
