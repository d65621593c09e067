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
from payload.cache.contract import Pools, store
from payload.device.contract import Device
from payload.engine import kernels
from payload.engine.config import EngineConfig
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
        hidden = self._code(device, weights.position, inputs.cursor)
        for layer in range(self._shape.layers):
            value = word if layer == self._shape.layers - 1 else own
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
        rows, dim = own.shape
        pair = device.empty((rows, 2 * dim), torch.float32)
        device.launch(key_and_value, own, self._weights.rotate[layer], value, out=pair)
        device.launch(store, inputs.slot, pair[:, :dim], out=self._pools.index_keys[layer])
        device.launch(store, inputs.slot, pair, out=self._pools.kv[layer])

    def _layer(self, device: Device, layer: int, inputs: StepInputs, hidden: Tensor) -> Tensor:
        latent = self._latent(device, hidden)
        call = self._index_call(device, layer, inputs, latent)
        slots = self._indexer.select(device, call)
        query = self._query(device, layer, latent)
        device.join()
        out = device.empty(hidden.shape, torch.float32)
        device.launch(kernels.attend, query, self._pools.kv[layer], slots, out=out)
        return out

    def _latent(self, device: Device, hidden: Tensor) -> Tensor:
        """Return `[B, W]`: the hidden state, lifted to the width of the dense layers."""
        weights, shape = self._weights, (hidden.shape[0], self._shape.width)
        lifted, mixed, back, latent = (device.empty(shape, torch.float32) for _ in range(4))
        device.launch(kernels.dense, hidden, weights.lift, out=lifted)
        device.launch(kernels.dense, lifted, weights.mix, out=mixed)
        device.launch(kernels.dense, mixed, weights.unmix, out=back)
        device.launch(kernels.mean_of, lifted, back, out=latent)
        return latent

    def _index_call(
        self, device: Device, layer: int, inputs: StepInputs, latent: Tensor
    ) -> IndexerCall:
        rows, heads, dim = latent.shape[0], self._shape.heads, self._shape.code_dim
        wide = device.empty((rows, heads * dim), torch.float32)
        q = device.empty((rows, heads, dim), torch.bfloat16)
        head_weights = device.empty((rows, heads), torch.float32)
        device.launch(kernels.dense, latent, self._weights.query_heads[layer], out=wide)
        device.launch(kernels.cast, wide, out=q)
        device.launch(kernels.head_weights, latent, (dim * heads) ** -0.5, out=head_weights)
        return IndexerCall(
            layer=layer,
            q=q,
            weights=head_weights,
            k_pages=self._pools.index_keys[layer],
            page_table=inputs.page_table,
            lengths=inputs.length,
            capacity=self._config.context_tokens,
            top_k=self._shape.top_k,
            stash=inputs.stash,
        )

    def _query(self, device: Device, layer: int, latent: Tensor) -> Tensor:
        """Return the attention's query `[B, D]`: the main stream's work beside the indexer."""
        weights, rows = self._weights, latent.shape[0]
        before, last = latent, latent
        for weight in weights.dense:
            following = device.empty(latent.shape, torch.float32)
            device.launch(kernels.dense, last, weight, out=following)
            before, last = last, following
        norm = device.empty((rows,), torch.float32)
        device.launch(kernels.inverse_rms, last, out=norm)
        query = device.empty((rows, self._shape.code_dim), torch.float32)
        ends = (weights.query_last[layer], weights.query_before[layer])
        device.launch(kernels.attention_query, last, before, *ends, norm, out=query)
        return query


def key_and_value(own: Tensor, rotate: Tensor, value: Tensor, *, out: Tensor) -> Tensor:
    """`out = [own @ rotate | value]`, `[B, 2 * D]`."""
    dim = own.shape[1]
    torch.mm(own, rotate, out=out[:, :dim])
    out[:, dim:] = value
    return out
