"""Parts by name: built in, registered by a program, or offered by other packages. Nothing is imported to know a name.

Another package offers parts by entry points of its pyproject.toml, here a model `own` of the module `my_models`:

    [project.entry-points."gp_mapping.models"]
    own = "my_models:OwnGP"

The name may point to a Part, which says what the part is capable of, or to what a Part's `make` may be: then its
attribute `traits` says so, where it has one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

__all__ = [
    "ANY_LIKELIHOOD",
    "BIASES",
    "KERNELS",
    "LIKELIHOODS",
    "METRIC",
    "MODELS",
    "VECTOR",
    "Part",
    "Parts",
    "register_kernel",
    "register_likelihood",
    "register_model",
]

# traits of models
VECTOR = "vector"  # maps the components of one vector
ANY_LIKELIHOOD = (
    "any likelihood"  # takes classes, counts and gross errors, not Gaussian measurements alone
)
BIASES = "biases"  # knows a constant of each pass
# traits of likelihoods
METRIC = "metric"  # a measurement is a value of the field itself; else the latent field has no unit


@dataclass(frozen=True)
class Part:
    """make: what makes one, or where that is ("module:name"), so that nothing is imported before it is needed.

    traits: what can be told of it by its name alone.
    """

    make: Any
    traits: frozenset[str] = frozenset()

    def load(self) -> Any:
        """What makes one."""
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(":")
        return getattr(importlib.import_module(module), name)


class Parts(Mapping):
    """Name → what makes a part of one kind. group: of the entry points by which other packages offer theirs."""

    _installed: Any = (
        None  # of all groups, read once for all kinds: each installed package is looked at
    )

    def __init__(self, kind: str, builtin: dict[str, Part]):
        self.kind, self.group = kind, f"gp_mapping.{kind}s"
        self._parts = dict(builtin)
        self._offered: dict[str, EntryPoint] | None = None

    def register(self, name: str, part: object) -> None:
        """Make a name known to this program. ValueError where another part has it."""
        if not name.isidentifier():
            raise ValueError(f"{self.kind} {name!r}: a name is a word of letters, digits and _")
        if name in self:
            raise ValueError(f"{self.kind} {name!r} is there already; known are {', '.join(self)}")
        self._parts[name] = _part(part)

    def part(self, name: str) -> Part:
        """ValueError where there is none of that name."""
        if name not in self._parts:
            offered = self._entries()
            if name not in offered:
                raise ValueError(f"{self.kind} {name!r} is not one of {', '.join(self)}")
            try:
                self._parts[name] = _part(offered[name].load())
            except (
                Exception
            ) as error:  # somebody else's module: whatever it raises is told in one line
                raise ValueError(
                    f"{self.kind} {name!r} of {offered[name].value!r} cannot be loaded: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return self._parts[name]

    def has(self, name: str, trait: str) -> bool:
        """Whether the part of that name has a trait."""
        return trait in self.part(name).traits

    def __getitem__(self, name: str) -> Any:
        return self.part(name).load()

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in self._entries()

    def __iter__(self) -> Iterator[str]:
        return iter({**self._parts, **self._entries()})

    def __len__(self) -> int:
        return len({**self._parts, **self._entries()})

    def _entries(self) -> dict[str, EntryPoint]:
        if self._offered is None:
            if Parts._installed is None:
                Parts._installed = entry_points()
            self._offered = {
                entry.name: entry for entry in Parts._installed.select(group=self.group)
            }
        return self._offered


def _part(part: object) -> Part:
    return part if isinstance(part, Part) else Part(part, frozenset(getattr(part, "traits", ())))


_BUILDERS = "gp_mapping.core.registry:build_"
MODELS = Parts(
    "model",
    {
        "dual_svgp": Part(_BUILDERS + "dual_svgp", frozenset({ANY_LIKELIHOOD, BIASES})),
        "solve_gp": Part(_BUILDERS + "solve_gp", frozenset({ANY_LIKELIHOOD, BIASES})),
        "wiski": Part(_BUILDERS + "wiski"),
        "exact": Part(_BUILDERS + "exact", frozenset({BIASES})),
        **{
            name: Part(_BUILDERS + "anytime", frozenset({BIASES}))
            for name in ("sor", "dtc", "fitc", "fic")
        },
        **{name: Part(_BUILDERS + "anytime") for name in ("pitc", "pic")},
        "curl_free": Part(_BUILDERS + "curl_free", frozenset({VECTOR})),
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
    },
)

_LIKELIHOODS = "gp_mapping.core.likelihoods:make_"
LIKELIHOODS = Parts(
    "likelihood",
    {
        "gaussian": Part(_LIKELIHOODS + "gaussian", frozenset({METRIC})),
        "student_t": Part(_LIKELIHOODS + "student_t", frozenset({METRIC})),
        "bernoulli": Part(_LIKELIHOODS + "bernoulli"),
        "poisson": Part(_LIKELIHOODS + "poisson"),
        "softmax": Part(_LIKELIHOODS + "softmax"),
    },
)


def register_model(
    name: str, make: Callable, *, vector: bool = False, any_likelihood: bool = False
) -> None:
    """A model of your own: `make(settings, **extra)` gives a FieldMap; the setting `model` then takes its name.

    Args:
        name: of the setting `model`.
        make: called with MapSettings; extra are inducing_inputs and centre of create_map, where they are given.
        vector: it maps three components of a vector as one.
        any_likelihood: it takes the setting `likelihood`, not Gaussian measurements alone.

    Raises:
        ValueError: the name is taken, or is no word.
    """
    MODELS.register(
        name, Part(make, frozenset([VECTOR] * vector + [ANY_LIKELIHOOD] * any_likelihood))
    )


def register_kernel(name: str, kind: type) -> None:
    """A kernel of your own: a subclass of core.kernels.stationary.Stationary with `correlation`.

    ValueError where the name is taken, or is no word.
    """
    KERNELS.register(name, Part(kind))


def register_likelihood(name: str, make: Callable, *, metric: bool = False) -> None:
    """A likelihood of your own: `make(settings)` gives a core.likelihoods.base.Likelihood; ValueError if taken.

    metric: a measurement is a value of the field itself, in SI; else the latent field has no unit.
    """
    LIKELIHOODS.register(name, Part(make, frozenset([METRIC] * metric)))
