"""The glass box: four layers that follow a pointer each, through indexer, top-k and attention.

Every position holds a word code, its own position code and three pointers (codes of other
positions). Layer 0 asks for the program entry of the next token; layers 1 and 2 follow what they
read; the last layer asks for the position of the token itself and reads its word code:

    cursor -> entry i -> entry j -> entry k -> position of the token -> token

A layer that attends to wrong positions reads a wrong pointer, so a wrong index in any layer is a
wrong token. The prompt's own keys and values need no attention: prefill is projections only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from payload.cache import layout
from payload.cache.contract import Pools
from payload.device.contract import Device
from payload.engine import kernels
from payload.engine.config import SPLIT_ROWS, EngineConfig
from payload.engine.weights import Weights
from payload.indexer.contract import Indexer, IndexerCall
from payload.runner.contract import StepInputs


@dataclass(frozen=True)
class Prefill:
    """A context to be written into the caches.

    Attributes:
        tokens: `[n]` int64.
        pointers: `[layers - 1, n]` int64: the position that each layer's value points to.
        slots: `[n]` int64, where the keys go.
    """

    tokens: Tensor
    pointers: Tensor
    slots: Tensor


@dataclass(frozen=True)
class DenseBranch:
    """What the main stream works on beside the indexer.

    Attributes:
        latent: `[B, W]`, the dense layers' input, and one of the buffers that they fill in turn.
        left: `[B, W]`, the second.
        right: `[B, W]`, the third.
        query: `[B, D]`, the result: the attention's query.
    """

    latent: Tensor
    left: Tensor
    right: Tensor
    query: Tensor


class GlassBox:
    """The model's step and prefill."""

    def __init__(
        self, config: EngineConfig, weights: Weights, pools: Pools, indexer: Indexer
    ) -> None:
        self._config = config
        self._shape = config.model
        self._weights = weights
        self._pools = pools
        self._indexer = indexer

    def prefill(self, context: Prefill) -> None:
        """Write a context's keys and values, all layers."""
        weights = self._weights
        codes = weights.position[: context.tokens.shape[0]]
        words = weights.word.index_select(0, context.tokens)
        for layer in range(self._shape.layers):
            keys = codes @ weights.rotate[layer]
            is_last = layer == self._shape.layers - 1
            values = words if is_last else weights.position[context.pointers[layer]]
            layout.store(self._pools.index_keys[layer], context.slots, keys)
            layout.store(self._pools.kv[layer], context.slots, torch.cat((keys, values), dim=1))

    def step(self, device: Device, inputs: StepInputs) -> None:
        """Launch one decode step; the answer is `inputs.next_token`."""
        weights = self._weights
        own = self._code(device, weights.position, inputs.position)
        word = self._code(device, weights.word, inputs.token)
        end = self._code(device, weights.position, inputs.end)
        hidden = self._code(device, weights.position, inputs.cursor)
        values = (own, own, end, word)  # as `pointers` has it for positions behind the program
        for layer, value in enumerate(values):
            self._remember(device, layer, inputs, own, value)
            hidden = self._layer(device, layer, inputs, hidden)
        device.launch(kernels.best_token, hidden, weights.word, out=inputs.next_token)

    def _code(self, device: Device, table: Tensor, ids: Tensor) -> Tensor:
        code = device.empty((ids.shape[0], self._shape.code_dim), torch.float32)
        device.launch(kernels.lookup, table, ids, out=code)
        return code

    def _remember(
        self, device: Device, layer: int, inputs: StepInputs, own: Tensor, value: Tensor
    ) -> None:
        """Store the step's own key and value in the caches."""
        pools = (self._pools.index_keys[layer], self._pools.kv[layer])
        rotate = self._weights.rotate[layer]
        device.launch(kernels.remember, own, rotate, value, inputs.slot, out=pools)

    def _layer(self, device: Device, layer: int, inputs: StepInputs, hidden: Tensor) -> Tensor:
        """Return the value that the layer's attention reads, `[B, D]`."""
        out = device.empty(hidden.shape, torch.float32)
        gates, branch, call = self._branches(device, layer, inputs, hidden)
        slots = self._indexer.select(device, call)
        del gates  # only the main stream read them: their blocks may serve its next kernels
        query = self._query(device, layer, branch)
        device.join()
        device.launch(kernels.attend, query, self._pools.kv[layer], slots, out=out)
        return out

    def _branches(
        self, device: Device, layer: int, inputs: StepInputs, hidden: Tensor
    ) -> tuple[tuple[Tensor, Tensor], DenseBranch, IndexerCall]:
        """Return the gates, and what both branches start from."""
        weights, shape, rows = self._weights, self._shape, hidden.shape[0]
        latent = device.empty((rows, shape.width), torch.float32)
        gate_in = device.empty((rows, shape.gate), torch.float32)
        left = device.empty((rows, shape.width), torch.float32)
        gate = device.empty((rows, shape.gate), torch.float32)
        right = device.empty((rows, shape.width), torch.float32)
        query = device.empty((rows, shape.code_dim), torch.float32)
        keys = self._pools.index_keys[layer]
        q = device.empty((rows, shape.heads, shape.code_dim), _query_dtype(keys))
        head_weights = device.empty((rows, shape.heads), torch.float32)
        device.launch(kernels.dense, hidden, weights.lift, out=latent)
        device.launch(kernels.dense, hidden, weights.gate_in, out=gate_in)
        device.launch(kernels.dense, gate_in, weights.gate, out=gate)
        device.launch(kernels.head_weights, gate, shape.score_scale, out=head_weights)
        device.launch(kernels.head_queries, latent, weights.query_heads[layer], out=q)
        call = IndexerCall(
            layer=layer,
            q=q,
            weights=head_weights,
            k_pages=keys,
            page_table=inputs.page_table,
            lengths=inputs.length,
            capacity=self._config.context_tokens,
            top_k=shape.top_k,
            stash=inputs.stash,
        )
        return (gate_in, gate), DenseBranch(latent, left, right, query), call

    def _query(self, device: Device, layer: int, branch: DenseBranch) -> Tensor:
        """Launch the main stream's work beside the indexer; return the query `[B, D]`."""
        weights, rows = self._weights, branch.latent.shape[0]
        before, last = branch.latent, branch.left
        spare = branch.right
        for weight in weights.dense:
            device.launch(kernels.dense, before, weight, out=last)
            before, last, spare = last, spare, before
        norms = device.empty((rows, self._shape.norm_groups), torch.float32)
        splits = self._shape.splits if rows >= SPLIT_ROWS else 1
        parts = device.empty((splits, rows, self._shape.code_dim), torch.float32)
        ends = (weights.query_last[layer], weights.query_before[layer])
        results = (branch.query, parts, norms, last)
        device.launch(kernels.attention_query, before, spare, *ends, out=results)
        return branch.query


def _query_dtype(keys: Tensor) -> torch.dtype:
    """Return what index queries are kept in: fp8 for fp8 keys on a GPU, as in production.

    A CPU multiplies neither, and widens bf16 faster.
    """
    is_fp8 = keys.dtype is torch.uint8 and keys.device.type == "cuda"
    return torch.float8_e4m3fn if is_fp8 else torch.bfloat16
