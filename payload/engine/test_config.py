"""Sizes that cannot be are refused at the start, not by the request that finds out."""

from dataclasses import replace

import pytest

from payload.engine.config import EngineConfig, ModelConfig


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"context_tokens": 1000}, "context_tokens must be a multiple of 64: 1000"),
        ({"context_tokens": 0}, "context_tokens must be a multiple of 64: 0"),
        ({"context_tokens": -64}, "context_tokens must be a multiple of 64: -64"),
        ({"cache_pages": 1}, "cache_pages must be at least 2: 1"),
        ({"max_batch": 0}, "max_batch must be at least 1: 0"),
        ({"typical_tokens": 0}, "typical_tokens must be at least 1: 0"),
        ({"model": ModelConfig(depth=-1)}, "depth must be at least 0: -1"),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_name(sizes, message):
    with pytest.raises(ValueError, match=message):
        replace(EngineConfig(), **sizes)


def test_the_least_sizes_are_taken():
    config = EngineConfig(max_batch=1, context_tokens=64, cache_pages=2, typical_tokens=1)

    assert (config.pages_per_row, config.buckets) == (1, (1,))
