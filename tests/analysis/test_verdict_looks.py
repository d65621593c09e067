"""The verdict at declared and undeclared looks: what may be decided early, and at which level."""

import pytest

from fleetctl.analysis.counts import ArmCounts, DrawnBlock, Run, arm
from fleetctl.analysis.design import Design
from fleetctl.analysis.guards import GuardFacts
from fleetctl.analysis.judgement import Flag, Word
from fleetctl.analysis.verdict import judge
from tests.analysis.test_verdict import control, treatment

SEQUENTIAL = Design(runs=8, looks=(4, 6))


def drawn(name, bad, runs=4):
    blocks = [DrawnBlock(str(i // 2), runs) for i in range(len(bad))]
    return ArmCounts(
        name, tuple(Run(x, 40, block=block) for x, block in zip(bad, blocks, strict=True))
    )


def test_a_declared_look_has_its_own_level():
    p_values = [
        judge(control(*[6] * k), treatment(*[3] * k), design=SEQUENTIAL).numbers.comparison.level
        for k in (4, 6, 8)
    ]

    assert p_values == pytest.approx([0.00305, 0.01832, 0.04400], abs=1e-4)


def test_a_result_that_is_significant_only_without_looks_is_undecided_at_one():
    arms = control(6, 5, 7, 6), treatment(1, 1, 2, 1)

    assert judge(*arms).word is Word.REDUCED
    assert judge(*arms, design=SEQUENTIAL).word is Word.INCONCLUSIVE
    assert judge(*arms, design=SEQUENTIAL).numbers.outlook.next_look == 6


@pytest.mark.parametrize("runs", [3, 5, 9])
def test_an_undeclared_look_decides_nothing_without_drawn_blocks(runs):
    found = judge(control(*[20] * runs), treatment(*[0] * runs), design=SEQUENTIAL)

    assert (found.word, found.reason) == (Word.INCONCLUSIVE, "undeclared_look")
    assert Flag.PEEKED in found.flags
    assert found.numbers.evalue is None


def test_an_undeclared_look_may_be_decided_by_the_evalue_of_three_drawn_blocks():
    design = Design(runs=20)
    two = judge(drawn("control", [9] * 4), drawn("treatment", [0] * 4), design=design)
    three = judge(drawn("control", [9] * 6), drawn("treatment", [0] * 6), design=design)

    assert two.word is Word.INCONCLUSIVE
    assert three.word is Word.REDUCED
    assert three.numbers.evalue > 20
    assert Flag.PEEKED in three.flags


def test_an_unfinished_block_does_not_count():
    half = judge(drawn("control", [9] * 5), drawn("treatment", [0] * 5), design=Design(runs=20))

    assert half.numbers.evalue < 20


def test_runs_that_were_given_up_end_the_trial_at_the_last_level():
    cut_short = judge(
        control(*[6] * 7),
        treatment(*[0] * 7),
        design=SEQUENTIAL,
        guards=GuardFacts(given_up_runs=1),
    )

    assert cut_short.numbers.comparison.level == pytest.approx(0.0440, abs=1e-4)
    assert Flag.PEEKED not in cut_short.flags


def test_a_control_from_another_day_does_not_make_the_planned_end_a_peek():
    lump = arm("control", [18], [120])

    found = judge(
        lump,
        treatment(0, 0, 0),
        design=Design(runs=3),
        guards=GuardFacts(historical_control=True),
    )

    assert found.flags == (Flag.HISTORICAL_CONTROL,)
    assert found.numbers.comparison.level == pytest.approx(0.05)


def test_looks_count_runs_even_where_runs_share_a_boot():
    shared = [
        ArmCounts(name, tuple(Run(bad, 40, boot=f"{name}{i // 2}") for i in range(4)))
        for name, bad in (("control", 6), ("treatment", 1))
    ]

    found = judge(*shared, design=Design(runs=4))

    assert Flag.PEEKED not in found.flags
    assert found.numbers.comparison.df == 2
