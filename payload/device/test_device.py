"""Every device keeps the same contract: streams, joins, graphs that know addresses only."""

import pytest
import torch

from payload.device.cpu import CpuDevice
from payload.device.cuda import CudaDevice
from payload.device.hazards import hazards
from payload.device.schedules import ScheduledDevice, main_before, main_first, side_first

DEVICES = [
    pytest.param(CpuDevice, id="cpu"),
    pytest.param(CudaDevice, id="cuda", marks=pytest.mark.gpu),
]


@pytest.fixture(params=DEVICES)
def make_device(request):
    made = []

    def make(*, overlap):
        made.append(request.param(overlap=overlap))
        return made[-1]

    yield make
    for device in made:
        device.close()


def add(x, y, *, out):
    torch.add(x, y, out=out)


def double(x, *, out):
    torch.mul(x, 2, out=out)


def fill(value, *, out):
    out.fill_(value)


def zeros(device, size=256):
    return torch.zeros(size, device=device.torch_device)


@pytest.mark.parametrize("overlap", [False, True])
def test_eager_launches_on_both_streams_give_the_sum_after_the_join(make_device, overlap):
    device = make_device(overlap=overlap)
    total = zeros(device)
    left, right = (device.empty((256,), torch.float32) for _ in range(2))

    device.launch(fill, 1, out=left)
    with device.side():
        device.launch(double, left, out=right)
    device.join()
    device.launch(add, left, right, out=total)
    device.synchronize()

    assert total.eq(3).all()


@pytest.mark.parametrize("overlap", [False, True])
def test_a_graph_runs_only_when_replayed_and_reads_its_inputs_anew(make_device, overlap):
    device = make_device(overlap=overlap)
    source, total = zeros(device), zeros(device)

    def body():
        left = device.empty((256,), torch.float32)
        right = device.empty((256,), torch.float32)
        device.launch(double, source, out=left)
        with device.side():
            device.launch(double, left, out=right)
        device.join()
        device.launch(add, left, right, out=total)

    body()  # warm up
    total.zero_()
    graph = device.capture(body)
    device.synchronize()
    assert total.eq(0).all()
    for value in (1.0, 5.0):
        source.fill_(value)
        graph.replay()
        device.synchronize()
        assert total.eq(6 * value).all()


def test_a_launch_outside_the_graph_runs_between_its_parts_at_each_replay(make_device):
    device = make_device(overlap=True)
    source, total = zeros(device), zeros(device)
    seen = []

    def look(x, *, out):
        seen.append(float(x[0]))
        torch.mul(x, 10, out=out)

    def body():
        left = device.empty((256,), torch.float32)
        right = device.empty((256,), torch.float32)
        device.launch(double, source, out=left)
        device.launch_outside_graph(look, left, out=right)
        device.launch(double, right, out=total)

    graph = device.capture(body)
    for value in (1.0, 3.0):
        source.fill_(value)
        graph.replay()
        device.synchronize()
        assert total.eq(40 * value).all()
    assert seen == [2.0, 6.0]


def test_leaving_the_graph_with_the_side_stream_unjoined_is_refused():
    device = CpuDevice(overlap=True)
    total = zeros(device)

    def body():
        with device.side():
            device.launch(fill, 1, out=total)
        device.launch_outside_graph(fill, 2, out=total)

    with pytest.raises(RuntimeError, match="joined"):
        device.capture(body)
    device.close()


def test_a_capture_must_join_the_side_stream():
    device = CpuDevice(overlap=True)
    total = zeros(device)

    def body():
        with device.side():
            device.launch(fill, 1, out=total)

    with pytest.raises(RuntimeError, match="joined"):
        device.capture(body)
    device.close()


def test_a_kernel_that_fails_in_a_replay_raises_there_and_the_device_lives_on():
    device = CpuDevice(overlap=True)
    total = zeros(device)

    def fail(*, out):
        raise ArithmeticError("no")

    def body():
        with device.side():
            device.launch(fail, out=total)
        device.join()
        device.launch(fill, 1, out=total)

    broken = device.capture(body)
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            broken.replay()
    device.capture(lambda: device.launch(fill, 4, out=total)).replay()
    assert total.eq(4).all()
    device.close()


def racing_body(device, source, result):
    """The bug in small: the side stream still needs `doubled` when its block is handed out."""

    def body():
        doubled = device.empty((256,), torch.float32)
        with device.side():
            device.launch(double, source, out=doubled)
            device.launch(double, doubled, out=result)
        del doubled
        other = device.empty((256,), torch.float32)
        device.launch(fill, -1, out=other)
        device.join()

    return body


def test_captured_a_block_freed_before_the_join_is_reused_while_the_side_stream_needs_it():
    device = ScheduledDevice(side_first)
    source, result = zeros(device).fill_(3), zeros(device)
    graph = device.capture(racing_body(device, source, result))

    assert {hazard.main.kernel for hazard in hazards(graph)} == {"fill"}
    graph.replay()
    assert result.eq(12).all()

    device.rule = main_before("double")
    graph.replay()
    assert result.eq(12).all(), "written before the first double, the block is filled anew"

    calls = iter(["side", "side"])
    device.rule = lambda ready: next(calls, "main")
    graph.replay()
    assert result.eq(-2).all(), "between write and read, what the main stream wrote is read"
    device.close()


def test_eager_the_same_step_is_right_because_launches_do_not_overlap():
    device = ScheduledDevice(main_first)
    source, result = zeros(device).fill_(3), zeros(device)

    racing_body(device, source, result)()

    assert result.eq(12).all()
    device.close()


def test_with_overlap_off_nothing_can_race():
    device = ScheduledDevice(main_first, overlap=False)
    source, result = zeros(device).fill_(3), zeros(device)
    graph = device.capture(racing_body(device, source, result))

    graph.replay()

    assert hazards(graph) == ()
    assert result.eq(12).all()
    device.close()
