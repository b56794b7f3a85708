"""Accuracy on the recordings: Protocol P, all methods in one run; leave one trial out; orders and seeds; Fig. 5(b)."""

from __future__ import annotations

import sys
import time

from benchmark import protocol
from benchmark.batch import SGPR, GPyTorchExact, kmeans_inputs
from benchmark.papers import figure5
from benchmark.protocol import (
    GIVEN,
    TEST,
    TRAIN,
    columns,
    distance,
    evaluate,
    exact_beside,
    positions,
    row,
    stream,
    trials,
)
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.types import Samples

__all__ = ["run"]

_FOLDS = (1, 2, 3, 4, 5)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"accuracy: {text}", file=sys.stderr, flush=True)


def sessions(table: Table, quick: bool) -> dict[str, dict]:
    """Our maps on Protocol P; results by the name of the row."""
    train, (test,) = trials(TRAIN, quick), trials([TEST], quick)
    where, results = positions(train), {}
    ways = {
        "session, θ given, cells": GIVEN,
        "session, θ given, cells, time offset learned": GIVEN | {"learn_time_offset": True},
        "session, θ given, raw samples": GIVEN | {"cells": False},
        "exact GP on the cells, θ given": GIVEN | {"model": "exact", "max_exact_samples": 20000},
        "session, θ learned online, defaults": {},
    }
    for name, settings in ways.items():
        say(name)
        start = time.process_time()
        session = stream(train, **settings)
        seconds = time.process_time() - start
        size = len(session.inducing) or session.cell_count
        results[name] = evaluate(session, where, test)
        table.add(*row(name, size, results[name], seconds))
        if not settings.get("cells", True):
            own = evaluate(session.map, where, test)
            table.add(*row("the same map, the model's noise for intervals", size, own, None))
        if not settings:
            table.add(
                *row(
                    "the same map, motion not given",
                    size,
                    evaluate(session, where, test, still=True),
                    None,
                )
            )
            results["hyperparameters"] = session.report()["hyperparameters"]
    return results


def judges(table: Table, quick: bool) -> None:
    """Batch models on the same samples."""
    train, (test,) = trials(TRAIN, quick), trials([TEST], quick)
    data, where = Samples.concatenate(train), positions(train)
    theta = (protocol.LENGTHSCALE, protocol.SIGNAL, protocol.NOISE)
    size = 1000 if quick else 6000
    for seed in range(3):
        say(f"GPyTorch, seed {seed}")
        start = time.process_time()
        result = evaluate(GPyTorchExact(data, size, seed, *theta), where, test)
        seconds = time.process_time() - start
        table.add(
            *row(f"GPyTorch, exact GP on a random {size}, seed {seed}", None, result, seconds)
        )
    for count in (100,) if quick else (200, 400):
        for seed in range(2):
            say(f"batch SGPR, M = {count}, seed {seed}")
            start = time.process_time()
            model = SGPR(data, kmeans_inputs(data.x, count, seed), *theta)
            seconds = time.process_time() - start
            table.add(
                *row(
                    f"batch SGPR, z by k-means, seed {seed}",
                    count,
                    evaluate(model, where, test),
                    seconds,
                )
            )


def protocol_p(quick: bool) -> tuple[Table, list[Goal], dict]:
    """Stream trials 1, 2, 3, 5; test on all of trial 4."""
    table = Table(
        "Protocol P: stream trials 1, 2, 3, 5 in time order in batches of 100, test on all of trial 4",
        columns("method"),
    )
    results = sessions(table, quick)
    judges(table, quick)
    h = results["hyperparameters"]
    table.notes = [
        f"θ given: Matérn-5/2, ℓ {protocol.LENGTHSCALE} m, s² {protocol.SIGNAL:g} µT², noise "
        f"{protocol.NOISE} µT². M of the exact GP is its number of cells. s: processor time of streaming; "
        "of fit and prediction for GPyTorch; of the fit, with k-means, for SGPR.",
        "θ given: nothing is learned, as with GPyTorch and SGPR. Where the time offset is learned the name "
        "says so; GPyTorch and SGPR have none, so compare them with the other rows.",
        "Learned: "
        + ", ".join(
            f"{k} {v * 1e6:.3g} µT" if k.endswith("stddev") else f"{k} {v:.3g}"
            for k, v in h.items()
            if isinstance(v, float)
        )
        + ".",
    ]
    learned, goals = results["session, θ learned online, defaults"], []
    for extra in ("", ", time offset learned"):
        given, name = results[f"session, θ given, cells{extra}"], f"Protocol P, θ given{extra}"
        goals += [
            Goal(f"{name}: RMSE", given["rmse_ut"], high=2.65, unit="µT"),
            Goal(f"{name}: NLPD", given["nlpd"], high=2.15),
            Goal(f"{name}: in 95 %", given["coverage"], low=0.92, high=0.97),
        ]
    goals += [
        Goal("Protocol P, θ learned: RMSE", learned["rmse_ut"], high=3.0, unit="µT"),
        Goal("Protocol P, θ learned: in 95 %", learned["coverage"], low=0.90, high=0.98),
    ]
    return table, goals, learned


def leave_one_out(quick: bool, fourth: dict) -> tuple[Table, list[Goal]]:
    """Each of trials 1–5 in turn is the test, the others are streamed in order; θ learned online.

    fourth: the result of Protocol P, which is the fold of trial 4.
    """
    table = Table(
        "Leave one trial out, trials 1 to 5, θ learned online from the default start",
        columns("test trial"),
    )
    results, still = [], []
    for k in _FOLDS[:2] if quick else _FOLDS:
        say(f"leave out trial {k}")
        train, (test,) = trials([j for j in _FOLDS if j != k], quick), trials([k], quick)
        start = time.process_time()
        session = stream(train)
        seconds = time.process_time() - start
        results.append(evaluate(session, positions(train), test))
        still.append(evaluate(session, positions(train), test, still=True))
        table.add(*row(str(k), len(session.inducing), results[-1], seconds))
        if k == TEST and results[-1]["rmse_ut"] != fourth["rmse_ut"]:
            raise RuntimeError(
                f"two runs of Protocol P differ: RMSE {results[-1]['rmse_ut']} and {fourth['rmse_ut']}"
            )
    mean = protocol.average(results)
    table.add(*row("mean", None, mean, None))
    table.add(*row("mean, motion not given", None, protocol.average(still), None))
    table.notes = [
        "Motion not given: the maps predict the field at each place, without the time offset and the part "
        "that turns with the robot, which they have learned."
    ]
    return table, [
        Goal("Leave one trial out, θ learned: RMSE", mean["rmse_ut"], high=3.2, unit="µT"),
        Goal("Leave one trial out, θ learned: NLPD", mean["nlpd"], high=2.6),
        Goal("Leave one trial out, θ learned: in 95 %", mean["coverage"], low=0.88),
    ]


def spread(quick: bool) -> Table:
    """Protocol P again with other seeds, other orders of the trials and three budgets, beside the exact GP."""
    table = Table(
        "Protocol P, θ learned online: other seeds, other orders of the trials, three times the budget",
        [
            *columns("run"),
            ("exact: RMSE", ".3f"),
            ("mean from exact, sd", ".2f"),
            ("log sd ratio", ".2f"),
        ],
    )
    orders = [(1, 2, 3, 5), (5, 3, 2, 1), (3, 5, 1, 2), (2, 1, 5, 3)]
    runs = [(TRAIN, {"seed": seed}) for seed in (1, 2)] + [(order, {}) for order in orders[1:]]
    runs.append((TRAIN, {"max_inducing": 1200}))
    results, (test,) = [], trials([TEST], quick)
    for order, settings in runs[:2] if quick else runs:
        say(f"order {order}, {settings}")
        train = trials(order, quick)
        start = time.process_time()
        session = stream(train, keep=True, **settings)
        seconds = time.process_time() - start
        where, exact = positions(train), exact_beside(session)
        results.append(evaluate(session, where, test))
        right = evaluate(exact, where, test)["rmse_ut"]
        name = f"trials {', '.join(map(str, order))}; " + ", ".join(
            f"{k} {v}" for k, v in settings.items()
        )
        table.add(
            *row(name, len(session.inducing), results[-1], seconds),
            right,
            *distance(session.map, exact, test.x[::7]),
        )
    rmse = [r["rmse_ut"] for r in results]
    table.notes = [
        f"RMSE from {min(rmse):.3f} to {max(rmse):.3f} µT.",
        "Exact: the exact GP at the θ that the map has learned, given the same cells. The last columns, at "
        "every seventh place of the test: root mean square of the difference of the means, in the exact sd, "
        "and of the logarithm of the ratio of the two sd.",
    ]
    return table


def run(quick: bool, environment: dict) -> Part:
    """All tables. RecordingsAbsent where there is nothing to run on."""
    first, goals, learned = protocol_p(quick)
    second, more = leave_one_out(quick, learned)
    third = spread(quick)
    fourth, last = figure5.table(quick)
    return Part("accuracy", goals + more + last, [first, second, third, fourth], environment)
