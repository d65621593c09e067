"""Every kernel compiles for a Hopper GPU, also on a machine without one.

The interpreter accepts programs that the compiler refuses, so a green CPU run alone proves little.
Run as a program (in its own process, where Triton compiles rather than interprets) this file prints
the resources of each kernel at the production shape.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

F32, I32 = "*fp32", "*i32"


def kernels():
    """Return (name, kernel, types of its arguments, constexprs, warps) for each launch."""
    import triton.language as tl

    from payload.indexer import kernel, select_bisect, select_list

    listed = []
    for name, operand, page, scaled in (
        ("bf16", tl.bfloat16, (8192, 0), False),
        ("fp8e4nv", tl.float8e4nv, (8448, 2112), True),
    ):
        dtype = torch.bfloat16 if name == "bf16" else torch.float8_e4m3fn
        tiling = kernel.TILINGS[dtype]
        types = {
            "q": f"*{name}",
            "weights": F32,
            "values": f"*{name}",
            "scales": F32,
            "page_table": I32,
        }
        types |= {
            "lengths": I32,
            "out": F32,
            "table_stride": "i32",
            "out_stride": "i32",
            "run_tokens": "i32",
            "columns": "i32",
        }
        consts = {"H": 64, "D": 128, "PAGE": 64, "VALUES_STRIDE": page[0], "SCALES_STRIDE": page[1]}
        consts |= {"BLOCK": tiling.block_tokens, "SCALED": scaled, "OPERAND": operand}
        consts |= {"STAGES": tiling.stages}
        listed.append((f"logits {name}", kernel._logits_kernel, types, consts, tiling.warps))
    for k in (512, 2048):
        listed += selection(select_bisect, select_list, k)
    return listed


def selection(module, listing, k):
    cut = module.Cut.of(131072, k)
    types = dict.fromkeys(("logits", "scores", "maxima", "coarse"), F32)
    types |= dict.fromkeys(("lengths", "bounds", "candidates", "out"), I32)
    integers = ("k", "columns", "divisor", "groups")
    strides = ("logits_stride", "scores_stride", "maxima_stride", "out_stride")
    types |= dict.fromkeys((*integers, *strides, "candidates_stride", "bounds_stride"), "i32")
    common = {"FAN": cut.fan, "VECTOR": cut.vector, "EARLY": True}
    lists = {"SEGMENTS": cut.segments, "SHARE": cut.share}
    maxima = {"BLOCK": cut.tile, "BOTH": True, "BOUNDED": True}
    listed = {"GROUPS": cut.groups, "SEGMENT": listing.SEGMENT}
    pick = {"K": cut.chosen, "TOP": cut.top, "LEVELS": cut.levels, "WIDTH": cut.width}
    pick |= {"SPREAD": cut.segments, "ROOM": cut.room}
    return [
        (f"maxima {k}", module._maxima_kernel, types, common | maxima, cut.tile // 1024),
        (f"list {k}", listing._list_kernel, types, common | lists | listed, 4),
        (f"pick {k}", module._pick_kernel, types, common | lists | pick, cut.warps),
    ]


def compiled(function, types, consts, warps):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(function.arg_names)
    types = {name: types[name] for name in types if name in names}
    signature = {name: types.get(name, "constexpr") for name in names}
    values = {(names.index(name),): value for name, value in consts.items()}
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name in types
        if name not in ("k", "divisor", "bounds")
    }
    source = ASTSource(function, signature, values, aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


def main():
    report = {}
    for name, *launch in kernels():
        ptx = compiled(*launch).asm["ptx"]
        report[name] = {
            "is_wgmma": "wgmma.mma_async" in ptx,
            "is_async_copy": "cp.async" in ptx,
            "is_early": "griddepcontrol" in ptx,
            "is_wide_load": "ld.global.v4" in ptx or ".v4.b32" in ptx,
        }
    print(json.dumps(report))


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the other tests compile them here")
def test_every_kernel_compiles_for_hopper_with_the_instructions_it_was_written_for(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "payload.indexer.test_kernel_compile"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report) == 8
    for name in ("logits bf16", "logits fp8e4nv"):
        assert report[name]["is_wgmma"]
        assert report[name]["is_async_copy"]
    for k in (512, 2048):
        for name in (f"maxima {k}", f"list {k}", f"pick {k}"):
            assert report[name]["is_wide_load"]
            assert report[name]["is_early"]


if __name__ == "__main__":
    main()
