import pytest

from payload.cache.layout import KeyFormat
from payload.roofline import Machine, Work, limit_s, logits_work, select_work

H200 = Machine(hbm_bytes_per_s=4.3e12, flops_per_s=790e12)


def test_a_call_is_limited_by_the_slower_of_its_bytes_and_its_operations():
    assert limit_s(Work(hbm_bytes=43, flops=1), Machine(10.0, 10.0)) == pytest.approx(4.3)
    assert limit_s(Work(hbm_bytes=1, flops=43), Machine(10.0, 10.0)) == pytest.approx(4.3)


def test_bf16_logits_read_256_bytes_a_key_and_write_four():
    per_key = (
        logits_work(1, 128, 64, 128, KeyFormat.BF16).hbm_bytes
        - logits_work(1, 64, 64, 128, KeyFormat.BF16).hbm_bytes
    ) / 64

    assert per_key == 256 + 4 + 4 / 64


def test_fp8_logits_read_a_scale_and_half_the_bytes():
    per_key = (
        logits_work(1, 128, 64, 128, KeyFormat.FP8).hbm_bytes
        - logits_work(1, 64, 64, 128, KeyFormat.FP8).hbm_bytes
    ) / 64

    assert per_key == 128 + 4 + 4 + 4 / 64


@pytest.mark.parametrize("key_format", [KeyFormat.BF16, KeyFormat.FP8])
def test_memory_limits_the_logits_of_production_shape(key_format):
    work = logits_work(32, 131072, 64, 128, key_format)

    assert work.flops_per_byte < H200.balance
    assert limit_s(work, H200) == work.hbm_bytes / H200.hbm_bytes_per_s


def test_rows_add_up():
    one, two = (logits_work(batch, 100, 16, 16, KeyFormat.FP32) for batch in (1, 2))

    assert one + one == two


def test_selecting_reads_each_score_once():
    assert select_work(2, 1000, 8).hbm_bytes == 2 * (4000 + 4 + 32)
