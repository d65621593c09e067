"""A GPU: PyTorch's streams, caching allocator and CUDA graphs, used as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from payload.device.contract import Body, Kernel, Outputs


@dataclass
class CudaGraph:
    """Captured segments, with eager calls between them."""

    segments: list[torch.cuda.CUDAGraph] = field(default_factory=list)
    between: list[tuple[Kernel, tuple[object, ...], Outputs]] = field(default_factory=list)

    def replay(self) -> None:
        """Queue the recorded kernels on the current stream."""
        for index, segment in enumerate(self.segments):
            segment.replay()
            if index < len(self.between):
                kernel, inputs, out = self.between[index]
                kernel(*inputs, out=out)


class CudaDevice:
    """Two CUDA streams; all graphs share one memory pool, as in production.

    In a graph the main stream goes first: a kernel of the side stream that fills the GPU is
    issued in full before another stream's next kernel of the same priority, so that without a
    priority both branches would run one after the other.
    """

    def __init__(self, *, overlap: bool, index: int = 0, main_first: bool = True) -> None:
        self.torch_device = torch.device("cuda", index)
        self.overlaps = overlap
        self._side = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        self._capture_stream = torch.cuda.Stream(  # type: ignore[no-untyped-call]
            self.torch_device, priority=-1 if main_first else 0
        )
        self._pool = torch.cuda.graph_pool_handle()
        self._forked = False
        self._graph: CudaGraph | None = None
        self._pool_keeper = self._keep_pool()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return memory of the current stream from PyTorch's caching allocator."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.torch_device)

    def launch(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Launch on the current stream; recorded by CUDA while capturing."""
        kernel(*inputs, out=out)

    def launch_outside_graph(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Launch eagerly; while capturing, end one graph and begin the next behind it.

        The addresses stay good: tensors of the graph pool are planned by one allocator over all
        segments.

        Raises:
            RuntimeError: the side stream has not been joined.
        """
        if self._graph is None:
            kernel(*inputs, out=out)
            return
        if self._forked:
            raise RuntimeError("the side stream must be joined before leaving the graph")
        self._graph.segments[-1].capture_end()
        self._graph.between.append((kernel, inputs, out))
        self._begin(self._graph)

    @contextmanager
    def side(self) -> Iterator[None]:
        """Launch on the side stream, which first waits for the main stream."""
        if not self.overlaps:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream(self.torch_device))
        self._forked = True
        with torch.cuda.stream(self._side):
            yield

    def join(self) -> None:
        """Make the main stream wait for the side stream, if anything was given to it."""
        if self._forked:
            torch.cuda.current_stream(self.torch_device).wait_stream(self._side)
            self._forked = False

    def capture(self, body: Body) -> CudaGraph:
        """Record what `body` launches.

        Raises:
            RuntimeError: `body` left the side stream unjoined.
        """
        graph = CudaGraph()
        torch.cuda.synchronize(self.torch_device)
        self._capture_stream.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.cuda.stream(self._capture_stream):
            self._graph = graph
            try:
                self._begin(graph)
                body()
                graph.segments[-1].capture_end()
            finally:
                self._graph, self._forked = None, False
        torch.cuda.synchronize(self.torch_device)
        return graph

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        torch.cuda.synchronize(self.torch_device)

    def close(self) -> None:
        """Wait for the device; PyTorch owns the rest."""
        self.synchronize()

    def graph_bytes(self) -> int:
        """Return the memory that PyTorch's allocator holds on the device."""
        return torch.cuda.memory_reserved(self.torch_device)

    def _keep_pool(self) -> CudaGraph:
        """Return a graph that is never replayed: a pool ends with its last graph."""
        flag = torch.zeros(1, device=self.torch_device)
        return self.capture(lambda: self.launch(_set_to_zero, out=flag))

    def _begin(self, graph: CudaGraph) -> None:
        segment = torch.cuda.CUDAGraph()
        segment.capture_begin(pool=self._pool)
        graph.segments.append(segment)


def _set_to_zero(*, out: Outputs) -> None:
    for tensor in out if isinstance(out, tuple) else (out,):
        tensor.zero_()
