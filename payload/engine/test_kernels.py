"""The model's kernels: right by their definition, without memory of their own where it matters."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from payload.engine import kernels

ROWS, WIDTH, DIM = 5, 64, 16


class Storages(TorchDispatchMode):
    """Notes the storage of everything that an operator returns."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.seen.add(leaf.untyped_storage().data_ptr())
        return result


def query_case(splits):
    torch.manual_seed(splits)
    last, before = torch.randn(2, ROWS, WIDTH)
    w_last, w_before = torch.randn(2, WIDTH, DIM)
    out = tuple(
        torch.full(shape, float("nan"))
        for shape in ((ROWS, DIM), (splits, ROWS, DIM), (ROWS, 2), (ROWS, WIDTH))
    )
    return (last, before, w_last, w_before), out


@pytest.mark.parametrize("splits", [1, 2, 4, 64])
def test_queries_are_the_sum_of_both_products_at_the_length_sqrt_d(splits):
    (last, before, w_last, w_before), out = query_case(splits)

    kernels.attention_query(last, before, w_last, w_before, out=out)

    wanted = last.double() @ w_last.double() + before.double() @ w_before.double()
    lengths = wanted.view(ROWS, 2, -1).norm(dim=2)
    wanted *= DIM**0.5 / wanted.norm(dim=1, keepdim=True)
    torch.testing.assert_close(out[0].double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out[2].double(), lengths, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("splits", [1, 4])
def test_beside_the_indexer_the_main_stream_allocates_nothing_behind_the_devices_back(splits):
    inputs, out = query_case(splits)
    square = torch.randn(WIDTH, WIDTH)
    given = {tensor.untyped_storage().data_ptr() for tensor in (*inputs, square, *out)}

    with Storages() as storages:
        kernels.dense(inputs[0], square, out=out[3])
        kernels.attention_query(*inputs, out=out)

    assert storages.seen <= given
