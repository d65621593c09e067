"""What an engine needs is compared with what there is, on a CPU and on a GPU."""

import pytest
import torch

from payload.engine.calibrate import TYPICAL_ROWS
from payload.engine.config import EngineConfig, ModelConfig
from payload.engine.memory import check_memory, free_memory_bytes, least_bytes
from payload.engine.testing import SMALL, small_engine


def test_the_least_that_is_allocated_is_no_more_than_what_is():
    """Else an engine that fits would be refused."""
    assembly = small_engine(runner="eager")
    assembly.device.close()
    shares = least_bytes(SMALL)

    assert shares["cache_pages"] <= assembly.cache.pools.size_bytes
    assert shares["cache_pages"] > assembly.cache.pools.size_bytes / 2
    assert shares["typical_tokens"] == 0, "the depth is given"


def test_what_just_fits_is_taken_and_what_does_not_is_refused():
    config = EngineConfig(model=ModelConfig(depth=0))
    total = sum(least_bytes(config).values())

    check_memory(config, total)
    with pytest.raises(ValueError, match=r"cache_pages is too large: .* lower --cache-pages"):
        check_memory(config, total - 1)


def test_the_free_memory_of_this_machine_is_some():
    assert TYPICAL_ROWS * 1024 < free_memory_bytes(torch.device("cpu")) < 1 << 50


@pytest.mark.gpu
def test_the_free_memory_of_a_gpu_is_what_others_left():
    where = torch.device("cuda")
    total_bytes = torch.cuda.get_device_properties(where).total_memory
    taken = torch.zeros(1 << 30, dtype=torch.uint8, device=where)

    assert 0 < free_memory_bytes(where) <= total_bytes - taken.nbytes
