"""Every row of the reference cases holds within its tolerance.

Another file of the same form can be named by FLEETCTL_CASES_STATISTICS. A row whose `fn` is
unknown here fails.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from fleetctl.analysis import (
    change_point,
    dispersion,
    exact,
    matrix_effects,
    permutation,
    power,
    qbf,
    rates,
    sequential,
    simulate,
    strata,
    two_arms,
)
from fleetctl.analysis.counts import Cluster, arm
from fleetctl.analysis.design import Design
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import Flag
from fleetctl.analysis.verdict import judge

OWN_CASES = Path(__file__).parent.parent / "cases" / "statistics.json"
CASES = Path(os.environ.get("FLEETCTL_CASES_STATISTICS") or OWN_CASES)
ROWS = json.loads(CASES.read_text(encoding="utf-8"))["rows"]
WIDE = {"boschloo_p", "barnard_p"}


def holds(got, expected, tol, key=""):
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(
            name in got and holds(got[name], value, tol, name) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            got is not None
            and len(got) == len(expected)
            and all(holds(g, e, tol, key) for g, e in zip(got, expected, strict=True))
        )
    if expected is None or isinstance(expected, str | bool | int):
        return got == expected and isinstance(got, bool) == isinstance(expected, bool)
    if got is None or abs(got - expected) > tol:
        return False
    relative = 5e-2 if key in WIDE else 1e-3
    return not 0 < abs(expected) < 1e-3 or abs(got - expected) <= relative * abs(expected)


def clusters(inputs):
    return [Cluster(x, n) for x, n in zip(inputs["x"], inputs["n"], strict=True)]


def the_arm(name, inputs):
    return arm(name, inputs["x"], inputs["n"])


def history(inputs):
    return Dispersion(inputs.get("phi0", 1.0), inputs["d0"]) if inputs.get("d0") else None


def rate_ci(i, _):
    x, n, conf = i["x"], i["n"], i.get("conf", 0.95)
    return {
        "rate": x / n if n else None,
        "wilson": rates.wilson(x, n, conf),
        "clopper_pearson": rates.clopper_pearson(x, n, conf),
        "jeffreys": rates.jeffreys(x, n, conf),
    }


def compare_sessions(i, expected):
    counts = (i["base_x"], i["base_n"], i["cand_x"], i["cand_n"])
    if not (counts[1] and counts[3]):
        return dict.fromkeys(expected)
    return {
        "diff": counts[2] / counts[3] - counts[0] / counts[1],
        "fisher_p": two_arms.fisher_p(*counts),
        "boschloo_p": two_arms.boschloo_p(*counts),
        "barnard_p": two_arms.barnard_p(*counts),
        "newcombe95": two_arms.newcombe(*counts),
        "mn95": two_arms.miettinen_nurminen(*counts),
        "bayes_p_cand_lower": two_arms.p_rate_below(*counts),
    }


def run_dispersion(i, _):
    found = dispersion.run_dispersion(clusters(i))
    if found is None:
        return None
    named = asdict(found)
    renamed = {
        "rate": "p", "x2": "X2", "icc": "icc_anova",
        "design_effect": "deff_icc", "rao_scott": "rao_scott_deff",
    }  # fmt: skip
    return {renamed.get(name, name): value for name, value in named.items()}


def sample_size(i, expected):
    size = power.sample_size_per_arm(i["p1"], i["p2"], i.get("alpha", 0.05), i.get("power", 0.8))
    found = {"fleiss": size.fleiss, "arcsine": size.arcsine, "fleiss_ceil": size.runs(1, 1.0)}
    for name in expected:
        if wanted := re.fullmatch(r"runs(\d+)_deff(\d+(?:_\d+)?)", name):
            found[name] = size.runs(int(wanted[1]), float(wanted[2].replace("_", ".")))
    return found


def obf_bounds(i, _):
    info = i.get("info", "equal")
    equal = [look / i["looks"] for look in range(1, i["looks"] + 1)]
    looks = sequential.obf_looks(equal if info == "equal" else info, i.get("alpha_two_sided", 0.05))
    return {"z": [look.z for look in looks], "nominal_p": [look.nominal_p for look in looks]}


def ci_coverage(i, _):
    methods = {
        "wilson": rates.wilson,
        "clopper_pearson": rates.clopper_pearson,
        "jeffreys": rates.jeffreys,
    }
    where = (i["p"], i["rho"], i["runs"], i["run_size"], i.get("conf", 0.95))
    return {name: exact.coverage(method, *where) for name, method in methods.items()}


def firth_logit(i, _):
    level, bad, sessions = zip(*i["cells"], strict=True)
    fit = matrix_effects.firth_fit([[v] for v in level], bad, sessions)
    odds = fit.coefficients[0]
    return {"log_or": odds, "or_": 2.718281828459045**odds, "plr_p": fit.p[0]}


def firth_factorial(i, _):
    terms = [term for term in i["terms"] if term != "intercept"]
    rows = [dict(zip(i["factors"], cell, strict=False)) for cell in i["cells"]]

    def column(row, term):
        value = 1
        for factor in re.split(r"[:*]", term):
            value *= row[factor.strip()]
        return value

    design = [[column(row, term) for term in terms] for row in rows]
    bad, sessions = zip(*(cell[-2:] for cell in i["cells"]), strict=True)
    fit = matrix_effects.firth_fit(design, bad, sessions)
    names = [*terms, "intercept"]
    return {
        "coef": dict(zip(names, fit.coefficients, strict=True)),
        "plr_p": dict(zip(names, fit.p, strict=True)),
    }


def bisect_posterior(i, _):
    prior = i["prior"]
    belief = change_point.Rates(i["p_good"], i["p_bad"], i.get("rho", 0.0))
    if isinstance(prior, str):
        state = change_point.uniform(int(re.search(r"\d+", prior)[0]), belief)
    else:
        state = change_point.ChangePoint(tuple(prior), belief)
    return state.after(i["tested_index"], i["bad"], i["n"]).mass


def information(i, expected):
    told = change_point.information_per_run(
        change_point.Rates(i["p_good"], i["p_bad"], i.get("rho", 0.0)), i["sessions"]
    )
    wanted = [name for name in expected if name.startswith("min_runs_")]
    return {"bits": told.bits} | {n: told.min_runs(int(n.rsplit("_", 1)[1])) for n in wanted}


def verdict(i, _):
    design = Design(
        target=i.get("target", i.get("tau", 0.01)),
        margin=i.get("margin"),
        alpha=i.get("alpha", 0.05),
        looks=tuple(i.get("looks", ())),
    )
    told = judge(
        the_arm("control", i["base"]),
        the_arm("treatment", i["cand"]),
        design=design,
        history=history(i),
    )
    found = {
        "verdict": told.word,
        "reason": told.reason,
        "cand_upper95": told.treatment.upper95,
        "cand_lower95": told.treatment.lower95,
        "elimination_refuted": Flag.ELIMINATION_REFUTED in told.flags,
    }
    if told.numbers is not None:
        seen = told.numbers.comparison
        found |= {"phi": seen.phi, "df": seen.df, "diff": seen.difference}
        found["p"] = seen.test and seen.test.p
        found["diff_ci"] = seen.test and seen.test.ci95
    return found


def truth(i):
    p = i.get("p")
    return simulate.Truth(
        i.get("p_base", p), i.get("p_cand", p), i["rho"], i["run_size"], i.get("history_runs", 0)
    )


EXPERIMENTS = 40_000
SEED = 7  # not the seed of the rows: an independent simulation must agree


FUNCTIONS = {
    "rate_ci": rate_ci,
    "upper_bound_one_sided": lambda i, _: rates.upper_bound(i["x"], i["n"], i["conf"]),
    "clean_sessions_needed": lambda i, _: rates.clean_sessions_needed(**i),
    "clean_runs_needed": lambda i, _: rates.clean_runs_needed(**i)._asdict(),
    "compare_sessions": compare_sessions,
    "dispersion": run_dispersion,
    "betabinom_mle": lambda i, _: nullable(dispersion.betabinom_mle(clusters(i))),
    "qbf_test": lambda i, _: qbf.qbf_test(
        the_arm("control", i["base"]), the_arm("treatment", i["cand"]), history(i)
    )._asdict(),
    "run_permutation_test": lambda i, _: nullable(
        permutation.run_permutation_test(i["base"], i["cand"])
    ),
    "min_p_paired_blocks": lambda i, _: permutation.min_p_paired_blocks(i["pairs"]),
    "sample_size_per_arm": sample_size,
    "exact_power_fisher": lambda i, _: exact.fisher_power(**i),
    "prob_at_least_one": lambda i, _: rates.prob_at_least_one(i["p"], i["n"]),
    "sprt_design": lambda i, _: sequential.sprt_design(**i)._asdict(),
    "obf_bounds": obf_bounds,
    "evalue_two_arm": lambda i, _: sequential.evalue_two_arm(
        i["base"], i["cand"], i["run_size"], i["alt"]
    ),
    "evalue_permuted_block": lambda i, _: sequential.evalue_permuted_blocks(
        [sequential.Block(tuple(i["base"]), tuple(i["cand"]))],
        i["psi"],
        two_sided=i.get("two_sided", True),
    ),
    "rate_confidence_sequence": lambda i, _: rates.confidence_sequence(
        i["x"], i["n"], i["alpha"], tuple(i["prior"])
    ),
    "type1_naive_fisher_peeking": lambda i, _: exact.fisher_peeking(**i),
    "type1_naive_z_peeking": lambda i, _: exact.z_peeking(**i),
    "type1_obf_z": lambda i, _: exact.obf_peeking(
        i["p"], i["sessions_per_look_per_arm"], i["looks"], i["alpha"]
    ),
    "type1_evalue_sessions": lambda i, _: exact.evalue_crossing(
        i["p"], i["p"], i["run_size"], i["looks"], i["threshold"], i["alts"]
    ),
    "power_evalue_sessions": lambda i, _: exact.evalue_crossing(
        i["p1"], i["p2"], i["run_size"], i["looks"], i["threshold"], i["alts"]
    ),
    "type1_fisher_correlated_runs": lambda i, _: exact.fisher_type1(**i),
    "ci_coverage": ci_coverage,
    "firth_logit": firth_logit,
    "firth_logit_factorial": firth_factorial,
    "adjust_p": lambda i, _: {
        "holm": matrix_effects.adjust_p(i["p"], "holm"),
        "bh": matrix_effects.adjust_p(i["p"], "fdr_bh"),
    },
    "cmh": lambda i, _: strata.cmh([strata.TwoByTwo(*table) for table in i["tables"]])._asdict(),
    "drift_test": lambda i, _: nullable(permutation.drift_test(i["bad_per_run_in_time_order"])),
    "linear_drift_bias": lambda i, _: permutation.linear_drift_bias(**i),
    "bisect_posterior": bisect_posterior,
    "information_per_run": information,
    "verdict": verdict,
    "sim_qbf_reject": lambda i, _: {
        "rate": simulate.qbf_rejection(
            truth(i), i["runs"], seed=SEED, experiments=EXPERIMENTS, alpha=i.get("alpha", 0.05)
        )
    },
    "sim_gs_reject": lambda i, _: {
        "rate": simulate.group_sequential_rejection(
            truth(i), i["looks"], i["nominal"], seed=SEED, experiments=EXPERIMENTS
        )
    },
    "sim_naive_peek": lambda i, _: {
        "rate": exact.fisher_peeking(
            i["p"], i["run_size"], i["looks"], i.get("alpha", 0.05), i["rho"]
        )[-1]
    },
    "sim_block_evalue_reject": lambda i, _: {
        "rate": simulate.block_evalue_rejection(
            truth(i),
            i["runs"],
            tuple(int(runs) for runs in i["block"].split("+")),
            seed=SEED,
            threshold=i["threshold"],
            psi=i["psi"],
            experiments=EXPERIMENTS,
        )
    },
}


def nullable(named):
    return None if named is None else named._asdict()


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_reference_case_holds_within_its_tolerance(row):
    assert row["fn"] in FUNCTIONS, f"no function is known for {row['fn']}"

    got = FUNCTIONS[row["fn"]](row["inputs"], row["expected"])

    assert holds(got, row["expected"], row["tol"]), f"{got} is not {row['expected']}"


def test_the_comparison_refuses_what_it_should():
    assert not holds(None, 0.5, 1e-6)
    assert not holds(0.5, None, 1e-6)
    assert not holds({"p": 0.1}, {"p": 0.2}, 0.05)
    assert not holds({}, {"p": 0.2}, 0.05)
    assert not holds(2.2e-6, 2.1e-6, 1e-3, "fisher_p")
    assert holds(2.2e-6, 2.1e-6, 1e-3, "boschloo_p")
    assert not holds(True, 1, 0)
