"""Telemetry: what is known, and what is said to be unknown."""

import time

from fleetctl.agent.telemetry import parse_gpu, sample


def test_a_look_at_this_machine():
    found = sample(time.time() - 60)

    assert abs(found.at_s - time.time()) < 60
    assert len(found.boot_id) == 36
    assert found.memory_available_bytes > 2**20
    assert found.xid_lines == ()


def test_a_line_of_nvidia_smi():
    row = "0, NVIDIA H200, 570.124.06, 1980, 41, 1024, 97, 0x0000000000000000"

    gpu = parse_gpu(row)

    assert (gpu.index, gpu.name, gpu.sm_clock_mhz, gpu.temperature_c) == (
        0,
        "NVIDIA H200",
        1980.0,
        41.0,
    )


def test_what_the_driver_does_not_say_is_none_and_not_zero():
    gpu = parse_gpu("1, NVIDIA H200, 570.1, [N/A], 41, [N/A], 0, [N/A]")

    assert (gpu.sm_clock_mhz, gpu.memory_used_mib, gpu.utilisation_percent) == (None, None, 0.0)


def test_other_output_is_no_gpu():
    assert (
        parse_gpu("NVIDIA-SMI has failed because it couldn't communicate with the driver") is None
    )
