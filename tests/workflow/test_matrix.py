"""A matrix, read: content hashes, equal cells, and the order of its runs."""

from collections import Counter
from types import SimpleNamespace

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.inventory import Inventory
from fleetctl.workflow.matrix import cell_runs, refuse_equal_on_host
from fleetctl.workflow.site import named_sites
from tests.workflow.matrices import TEXT, asked, fleet, host

PATCHED = TEXT.replace(
    'env = {{ KEYS = "1" }}', 'patch = [{{ source = "a.py", module = "serve.keys" }}]'
).replace('env = {{ KEYS = "0" }}', 'patch = [{{ source = "b.py", module = "serve.keys" }}]')


@pytest.fixture
def patches(tmp_path):
    (tmp_path / "a.py").write_text("A = 1\n")
    (tmp_path / "b.py").write_text("A = 2\n")
    return tmp_path


def digests(matrix, block="gpu=h200"):
    return {cell.name: matrix.digest(cell, block) for cell in matrix.cells}


def test_the_content_hash_follows_the_bytes_of_a_patch_and_not_its_name(patches):
    before = digests(asked(patches, text=PATCHED))
    (patches / "a.py").rename(patches / "c.py")
    renamed = digests(asked(patches, text=PATCHED.replace("a.py", "c.py")))
    (patches / "c.py").write_text("A = 3\n")
    changed = digests(asked(patches, text=PATCHED.replace("a.py", "c.py")))

    assert renamed == before
    assert {name for name in before if changed[name] != before[name]} == {
        "keys=bf16,overlap=on",
        "keys=bf16,overlap=off",
    }


def test_the_content_hash_follows_flags_workload_and_the_labels_of_equal_hosts(tmp_path):
    before = digests(asked(tmp_path))
    flag = digests(asked(tmp_path, text=TEXT.replace('KEYS = "1"', 'KEYS = "2"')))
    load = digests(asked(tmp_path, text=TEXT.replace('["true"]', '["false"]')))
    other_hosts = digests(asked(tmp_path), "gpu=h100")

    assert Counter(flag[name] == before[name] for name in before) == {True: 2, False: 2}
    assert not set(load.values()) & set(before.values())
    assert not set(other_hosts.values()) & set(before.values())


def test_two_levels_with_the_same_bytes_are_refused_before_anything_starts(patches):
    (patches / "b.py").write_text("A = 1\n")

    with pytest.raises(InputError, match="two cells are equal in their content") as refused:
        asked(patches, text=PATCHED)

    assert "keys bf16 and fp8" in refused.value.why


def test_two_levels_that_leave_the_same_bytes_on_a_host_are_refused(tmp_path):
    matrix = asked(tmp_path)
    wanted = {cell.service: {"/s.sh": cell.service} for cell in matrix.cells}

    def plan():
        reached = SimpleNamespace(name="gpu-3")
        return SimpleNamespace(hosts=[SimpleNamespace(reached=reached, wanted=wanted)])

    refuse_equal_on_host(matrix, plan())
    wanted["keys=fp8,overlap=on"] = wanted["keys=bf16,overlap=on"]

    with pytest.raises(InputError, match="equal on gpu-3: keys=bf16,overlap=on and keys=fp8"):
        refuse_equal_on_host(matrix, plan())


def test_the_same_file_always_gives_the_same_runs(tmp_path):
    first = cell_runs(asked(tmp_path, runs=3), fleet())
    again = cell_runs(asked(tmp_path, runs=3), fleet())

    assert first == again
    assert len({run.id for run in first}) == 12
    assert [run.position for run in first] == list(range(12))
    assert first[0].cell == first[-1].cell == "keys=bf16,overlap=on"


def test_unequal_hosts_are_blocks_that_get_whole_replicates(tmp_path):
    hosts = {
        "a1": host(gpu="h200", driver="550"),
        "a2": host(gpu="h200", driver="550"),
        "b1": host(gpu="h200", driver="560"),
    }

    runs = cell_runs(asked(tmp_path, runs=3), Inventory(hosts=hosts))

    blocks = Counter((run.block, run.run) for run in runs)
    assert blocks == {
        ("gpu=h200 driver=550", 0): 4,
        ("gpu=h200 driver=550", 1): 4,
        ("gpu=h200 driver=560", 2): 4,
    }


def test_runs_of_one_service_follow_each_other_when_restarts_are_saved(tmp_path):
    text = TEXT.replace('env = {{ OVERLAP = "0" }}', "workload = {{ sessions = 8 }}").replace(
        'env = {{ OVERLAP = "1" }}', ""
    )
    rules = 'order = "fewest_restarts"'
    matrix = asked(tmp_path, rules=rules, runs=2, trials="boot_per_run = false", text=text)

    arms = [run.arm for run in cell_runs(matrix, fleet())]

    assert arms == ["keys=bf16"] * 4 + ["keys=fp8"] * 4
    assert [arm.name for arm in matrix.job.arms] == ["keys=bf16", "keys=fp8"]
    assert {matrix.job_of(run).workload.sessions for run in cell_runs(matrix, fleet())} == {8, 40}


def test_sites_are_named_without_a_connection():
    router = host(gpu="h200").model_copy(update={"router_url": "http://r:1"})
    first = router.model_copy(update={"restart_order": -1})
    hosts = {"p": router, "d": first, "alone": host()}

    sites = named_sites(Inventory(hosts=hosts), "fleet")

    assert [(site.name, site.block, site.machine) for site in sites] == [
        ("d+p", "gpu=h200 + gpu=h200", "d+p"),
        ("alone", "unlabelled", "alone"),
    ]


def test_a_cell_that_is_no_more_is_refused(tmp_path):
    with pytest.raises(InputError, match="no cell keys=int4"):
        asked(tmp_path).cell("keys=int4")
