import pytest
import torch

from payload.numerics import Tolerance, assert_close, relative_error, tolerance

LIMIT = Tolerance(0.1, "for this test")
NAN, INF = float("nan"), float("inf")


def test_the_error_is_relative_to_the_size_of_the_truth():
    assert relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("side", ["actual", "expected"])
def test_what_is_not_finite_never_passes(bad, side):
    call = {"actual": torch.ones(3), "expected": torch.ones(3)}
    call[side][1] = bad

    assert relative_error(**call) == INF
    with pytest.raises(AssertionError):
        assert_close(**call, limit=LIMIT)


def test_equal_infinities_do_not_pass_either():
    both = torch.tensor([1.0, INF])

    assert relative_error(both, both.clone()) == INF


def test_a_truth_of_zeros_is_met_only_by_zeros():
    zeros = torch.zeros(2)

    assert relative_error(torch.zeros(2), zeros) == 0.0
    assert relative_error(torch.tensor([0.0, 1e-30]), zeros) == INF


def test_nothing_is_equal_to_nothing():
    assert relative_error(torch.empty(0), torch.empty(0)) == 0.0


def test_shapes_are_never_broadcast():
    with pytest.raises(ValueError, match="shapes differ"):
        relative_error(torch.ones(2), torch.ones(1))


def test_an_error_past_the_limit_fails_and_names_both():
    with pytest.raises(AssertionError, match=r"relative error 2\.000e-01 exceeds 1e-01"):
        assert_close(torch.tensor([1.2]), torch.tensor([1.0]), LIMIT)


def test_an_error_within_the_limit_passes():
    assert_close(torch.tensor([1.05]), torch.tensor([1.0]), LIMIT)


def test_a_dtype_without_a_tolerance_is_refused():
    with pytest.raises(ValueError, match=r"no tolerance for torch\.int8"):
        tolerance(torch.int8)
