"""The anytime family of sparse GPs (Hoang et al. 2015): one posterior, six models.

A member is a choice of Γ and of the test conditional:

          Γ_i                  test conditional       streams by
    sor   σ²I                  deterministic          adding
    dtc   σ²I                  p(f*|u)                adding: it is DualSVGP
    fitc  diag(K − Q) + σ²I    p(f*|u)                adding; k − q again where new z lower it
    fic   diag(K − Q) + σ²I    p(f*|u), points apart  the same
    pitc  K_BB − Q_BB + σ²I    p(f*|u)                replacing a tile's (h_B, G_B) as it gains data
    pic   K_BB − Q_BB + σ²I    p(f*|y_B, u)           the same

Everything lives in the whitened basis of DualSVGP. That also chooses z, remembers samples, learns
hyper-parameters (which the paper leaves open), forgets and merges; this module has what Γ changes.
Sites of samples that leave the memory stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gp_mapping.core.field_map import LIKELIHOODS
from gp_mapping.core.models.anytime.posterior import AnytimePosterior, posterior_fields
from gp_mapping.core.models.dual_svgp.memory_sites import MemorySites
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.sparse.basis import Basis

__all__ = ["MEMBERS", "AnytimeMap", "Member"]

# fraction of Γ by which new inducing inputs may have lowered it before a sample's site is replaced
STALE = 1e-6


@dataclass(frozen=True)
class Member:
    """A member of the family.

    Attributes:
        residual: what of K − Q is in Γ: "none", "diagonal" or "block".
        conditional: the test conditional, as of AnytimePosterior.
    """

    residual: str
    conditional: str


MEMBERS = {
    "sor": Member("none", "deterministic"),
    "dtc": Member("none", "joint"),
    "fitc": Member("diagonal", "joint"),
    "fic": Member("diagonal", "independent"),
    "pitc": Member("block", "joint"),
    "pic": Member("block", "local"),
}


class AnytimeMap(DualSVGP):
    """SoR, DTC, FITC and FIC: Γ is diagonal.

    Args:
        name: a key of MEMBERS.
        theta: hyper-parameters in inner units (of `scale` SI).
        settings: DualSVGP's.

    Raises:
        ValueError: the likelihood is not Gaussian.
    """

    tempers = False

    def __init__(self, name: str, theta, **settings):
        super().__init__(theta, **settings)
        if not self.likelihood.conjugate:
            raise ValueError(f"model {name} has a Gaussian likelihood; use dual_svgp for another")

        self.name, self.member = name, MEMBERS[name]
        if self.member.conditional == "deterministic":
            # an input at a fantasy would raise SoR's variance there, which is 0 far from every z
            self.fantasy_tolerance = float("inf")

    # the sites hold what the basis does not reach, and are made of all samples together
    may_slice = False

    @property
    def capabilities(self) -> frozenset[str]:
        """As DualSVGP.capabilities, without other likelihoods."""
        return super().capabilities - {LIKELIHOODS}

    def extra_variance(self, basis: Basis, whitened: Tensor) -> Tensor:
        """What Γ has in addition to σ²: diag(K − Q), or 0; (N,).

        Args:
            basis: of the features.
            whitened: a(x) (R, N).
        """
        if self.member.residual == "none":
            return whitened.new_zeros(whitened.shape[1])
        return (
            basis.theta.signal_stddev**2 - whitened[basis.features :].square().sum(0)
        ).clamp_min(0.0)

    def own_noise(self, theta) -> Tensor:
        """σ² of each remembered sample, grown by what was forgotten: (m,)."""
        return self.noise(self.memory.noise, self.memory.extra, theta) / self.memory.weight

    def add_sites(
        self,
        whitened: Tensor,
        places: Tensor,
        y: Tensor,
        noise: Tensor,
        count: Tensor,
        pass_numbers: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As DualSVGP.add_sites, with the member's Γ for the noise."""
        return super().add_sites(
            whitened,
            places,
            y,
            noise + self.extra_variance(self.basis, whitened),
            count,
            pass_numbers,
        )

    def _extend_remembered(self, old: int, remembered: Tensor, new_rows: Tensor) -> None:
        """Border the sites by new inputs, then replace sites whose Γ has become smaller by them."""
        super()._extend_remembered(old, remembered, new_rows)

        memory = self.memory
        if self.member.residual == "none" or not len(memory):
            return

        stale = (new_rows.square().sum(0) * memory.beta > STALE).nonzero()[:, 0]
        if not len(stale):
            return

        whitened = memory.whitened(self.basis.size)[:, stale]
        beta = 1.0 / (self.own_noise(self.theta)[stale] + self.extra_variance(self.basis, whitened))
        lam = beta[:, None] * memory.y[stale]
        self.sites.add(
            whitened, beta - memory.beta[stale], lam - memory.lam[stale], memory.pass_number[stale]
        )

        memory.keep_columns()
        memory.beta[stale], memory.lam[stale] = beta, lam

    def memory_sites_at(self, theta, basis: Basis, whitened: Tensor) -> MemorySites:
        """As RememberedSites.memory_sites_at: β = 1/Γ."""
        beta = 1.0 / (self.own_noise(theta) + self.extra_variance(basis, whitened))
        return MemorySites(
            whitened, {"beta": beta, "lam": beta[:, None] * self.memory.y}, self.memory.pass_number
        )

    def merge_memory(self, values: dict[str, Tensor], whitened: Tensor, arrivals: int) -> int:
        """As MergingMap.merge_memory, with β and λ of this map's basis."""
        self._rate(values, whitened)
        return super().merge_memory(values, whitened, arrivals)

    def _rate(self, values: dict[str, Tensor], whitened: Tensor) -> None:
        """Set β and λ of the samples, each by itself, in this map's basis."""
        noise = self.noise(values["noise"], values["extra"], self.theta) / values["weight"]
        values["beta"] = 1.0 / (noise + self.extra_variance(self.basis, whitened))
        values["lam"] = values["beta"][:, None] * values["y"]

    def _scale(self, factor: float) -> None:
        """Let σ² of each remembered sample grow by 1/factor; K − Q stays.

        The unremembered sites are scaled.
        """
        if self.member.residual == "none":
            return super()._scale(factor)

        unremembered, raw = self.unremembered_sites(), self.remembered_features(self.basis.size)
        unremembered.scale(factor)

        # K − Q does not grow: the remembered samples' sites are made anew
        self.memory.scale(factor)
        self.sites, memory_sites = unremembered, self.memory_sites_at(self.theta, self.basis, raw)
        memory_sites.add_to(unremembered)
        memory_sites.write(self.memory)

        self.mark_changed()

    @property
    def posterior(self) -> AnytimePosterior:
        """The present posterior, with this member's test conditional."""
        if self._posterior is None:
            plain = super().posterior  # RuntimeError where nothing was seen
            self._posterior = AnytimePosterior(
                **posterior_fields(plain), conditional=self.member.conditional, **self._local()
            )
        return self._posterior

    def _local(self) -> dict:
        """What a local test conditional needs in addition to the sites."""
        return {}
