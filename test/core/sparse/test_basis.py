"""The whitened basis: a(x)ᵀa(x') is the Nyström approximation, and growing gives what starting afresh would."""

import numpy as np
import torch
from core_data import close, covariance, drive, lattice

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.sparse.basis import Basis, greedy_inputs

THETA = Theta(0.5, 10.0, 1.0, 20.0)
X = torch.from_numpy(drive(120)[0])
Z = torch.from_numpy(lattice(0.6))


def empty(theta=THETA, capacity=100):
    return Basis(theta, 2, capacity, torch.float64, "cpu")


def grown(batch=20, tolerance=1.0, capacity=100, theta=THETA):
    basis, added = empty(theta, capacity), []
    white = basis.whitened(X)
    for i in range(0, len(X), batch):
        rows = basis.grow(
            torch.roll(X, -i, 0), torch.roll(white, -i, 1), slice(0, batch), tolerance
        )
        white = torch.cat([white, torch.roll(rows, i, 1)])
        added.append(len(rows))
    return basis, white, added


def test_features_make_the_nystrom_kernel():
    basis = Basis.at(Z, empty())
    a = basis.whitened(X)
    assert a.shape == (1 + len(Z), 120) == (basis.size, 120) and basis.features == 1
    k_zx, k_zz = covariance(Z.numpy(), X.numpy()), covariance(Z.numpy(), Z.numpy())
    close(a.mT @ a, 400.0 + k_zx.T @ np.linalg.solve(k_zz, k_zx), 1e-10)
    close(basis.residual(X, a), 100.0 - (k_zx * np.linalg.solve(k_zz, k_zx)).sum(0), 1e-9)
    close(basis.residual(Z, basis.whitened(Z)), np.zeros(len(Z)), 1e-9)


def test_heading_features_are_there_only_with_a_heading():
    theta = Theta(0.5, 10.0, 1.0, 20.0, heading_stddev=3.0)
    basis = Basis.at(Z, empty(theta))
    heading = torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64)
    with_robot, without = basis.whitened(X[:2], heading), basis.whitened(X[:2])
    assert basis.features == 3 and torch.equal(with_robot[0], without[0])
    close(with_robot[1:3], 3.0 * heading.mT, 1e-15)
    assert not without[1:3].any() and torch.equal(with_robot[3:], without[3:])


def test_grown_basis_is_that_of_its_inputs():
    for batch in (1, 20, 120):
        basis, white, added = grown(batch)
        assert sum(added) == len(basis) > 10
        close(basis.L @ basis.L.mT, basis.kernel(basis.z, basis.z), 1e-12)
        assert torch.equal(basis.L, basis.L.tril())
        close(white, Basis.at(basis.z, empty()).whitened(X), 1e-9)
        assert float(basis.residual(X, white).max()) <= 1.0 * (1 + 1e-9), (
            "a residual above the tolerance"
        )
        assert float(basis.L.diagonal().min()) >= 1.0 - 1e-9, "an input of less than the tolerance"


def test_growth_stops_at_the_capacity_and_at_the_room():
    basis, _, _ = grown(capacity=7)
    assert len(basis) == 7
    basis = empty()
    assert (
        len(basis.grow(X, basis.whitened(X), slice(0, 120), 1e-3, room=3)) == 3 and len(basis) == 3
    )
    assert len(basis.grow(X, basis.whitened(X), slice(0, 120), 1e-3, room=0)) == 0


def test_only_candidates_become_inputs():
    basis = empty()
    basis.grow(X, basis.whitened(X), slice(7, 12), 1e-6)
    assert 0 < len(basis) <= 5 and all(bool((X[7:12] == z).all(1).any()) for z in basis.z)


def test_a_view_taken_earlier_stays_valid():
    basis = empty()
    basis.grow(X[:10], basis.whitened(X[:10]), slice(0, 10), 1.0)
    before, copy_before = basis.L, basis.L.clone()
    basis.grow(X, basis.whitened(X), slice(0, 120), 1.0)
    assert len(basis) > len(before) and torch.equal(before, copy_before)


def test_the_factor_is_whole_rows_which_a_solve_takes_as_they_stand():
    basis, _, _ = grown()
    by_columns = basis.L.mT.contiguous().mT
    for one in (
        basis,
        basis.copy(),
        Basis.at(basis.z, empty()),
        Basis.restored(basis.z, by_columns, empty()),
    ):
        assert one.L.is_contiguous() and one.L.shape == (len(one), len(one))


def test_copy_is_independent():
    basis, _, _ = grown()
    kept = basis.L.clone()
    other = basis.copy(capacity=120)
    far = X + 50.0
    assert len(other.grow(far, other.whitened(far), slice(0, 20), 1.0)) > 0
    assert torch.equal(basis.L, kept) and len(other) > len(basis) and len(basis) == len(kept)


def test_transfer_is_the_projection_and_exact_for_what_is_kept():
    """T a(x) at old inputs: with k(x', x) spanned by both, the features of the new basis."""
    old, new = Basis.at(Z[::2], empty()), Basis.at(Z, empty())
    close(new.transfer_from(old.z, old.L, THETA) @ old.whitened(old.z), new.whitened(old.z), 1e-8)
    same = old.transfer_from(old.z, old.L, THETA)
    close(same, torch.eye(old.size), 1e-9)
    # and the other way it is P = k(z', z)K⁻¹ between the spans
    p = covariance(Z[::2].numpy(), Z.numpy()) @ np.linalg.inv(covariance(Z.numpy(), Z.numpy()))
    close(old.L @ old.transfer_from(new.z, new.L, THETA)[1:, 1:], p @ new.L.numpy(), 1e-8)


def test_transfer_to_other_hyperparameters_holds_the_pseudo_data():
    """K'⁻¹G'K'⁻¹ = K⁻¹GK⁻¹ with G = L(D − I)Lᵀ, at the same z."""
    theta = Theta(0.6, 14.0, 1.2, 10.0)
    old, new = Basis.at(Z, empty()), Basis.at(Z, empty(theta))
    a = old.whitened(X)[1:]
    excess = a @ a.mT
    t = new.transfer_from(old.z, old.L, THETA)
    assert float(t[0, 0]) == 0.5, "the constant's feature scales with s_c"
    moved = t[1:, 1:] @ excess @ t[1:, 1:].mT
    for basis, value in ((old, excess), (new, moved)):
        pseudo = torch.linalg.solve(basis.L.mT, torch.linalg.solve(basis.L.mT, value).mT)
        close(pseudo, torch.linalg.solve(old.L.mT, torch.linalg.solve(old.L.mT, excess).mT), 1e-8)


def test_greedy_inputs_leave_no_residual_above_the_tolerance():
    index = greedy_inputs(THETA.kernel(), X, 1.0, 100)
    basis = Basis.at(X[index], empty())
    assert (
        len(set(index)) == len(index)
        and float(basis.residual(X, basis.whitened(X)).max()) <= 1.0 + 1e-9
    )
    assert len(greedy_inputs(THETA.kernel(), X, 1.0, 4)) == 4
