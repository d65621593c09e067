"""Searches on the command line, as far as no host is needed."""

import json
from pathlib import Path

import pytest

from fleetctl.cli.check import check
from fleetctl.cli.search import go_on
from fleetctl.errors import InputError
from fleetctl.store.run_folder import RunFolder
from fleetctl.store.search_log import SearchLog
from fleetctl.workflow.bisect import read_bisect
from fleetctl.workflow.bisect_run import digest_of_job, unfinished
from fleetctl.workflow.minimize import read_minimize

ROOT = Path(__file__).parents[2]
BISECT = ROOT / "experiments/bisect.toml"
MINIMIZE = ROOT / "experiments/minimize.toml"


@pytest.mark.parametrize(("spec", "kind"), [(BISECT, "bisect"), (MINIMIZE, "minimize")])
def test_check_lists_the_changes_in_order(capsys, spec, kind):
    check(spec, as_json=True)
    found = json.loads(capsys.readouterr().out)
    check(spec)
    lines = capsys.readouterr().out.splitlines()

    assert (found["ok"], found["kind"]) == (True, kind)
    assert [line.strip() for line in lines[1:]] == found["changes"]
    assert "captured" in found["changes"]


def test_check_of_commits_says_that_the_host_has_the_list(tmp_path, capsys):
    spec = tmp_path / "c.toml"
    spec.write_text(
        '[experiment]\nname = "c"\ntarget = "a"\n[commits]\ngood = "v1"\nbad = "main"\n'
    )

    check(spec)

    assert "commits of the host's git tree" in capsys.readouterr().out


def begun(root, asked, run_id, digest=None, *events):
    folder = RunFolder.create(root, run_id, {"kind": "bisect", "name": asked.job.purpose})
    SearchLog(folder).begin(digest or digest_of_job(asked.job))
    for kind in events:
        folder.record(0.0, kind)
    return folder


def test_the_newest_unfinished_search_of_the_same_spec_and_patches_goes_on(tmp_path):
    asked = read_bisect(BISECT)
    begun(tmp_path, asked, "1-old")
    wanted = begun(tmp_path, asked, "2-new")
    begun(tmp_path, asked, "3-changed", "f" * 64)
    begun(tmp_path, asked, "4-finished", None, "finished")

    assert unfinished(tmp_path, asked.job).run_id == wanted.run_id


def test_without_one_the_refusal_names_the_search_whose_patches_were_others(tmp_path):
    asked = read_bisect(BISECT)
    with pytest.raises(InputError, match="no unfinished bisect"):
        unfinished(tmp_path, asked.job)
    begun(tmp_path, asked, "1-changed", "f" * 64)

    with pytest.raises(InputError) as refused:
        unfinished(tmp_path, asked.job)

    assert "1-changed" in refused.value.why


@pytest.mark.parametrize(("spec", "read"), [(BISECT, read_bisect), (MINIMIZE, read_minimize)])
def test_a_run_s_own_copy_of_spec_and_patches_is_the_same_search(tmp_path, spec, read):
    asked = read(spec)
    for name, content in asked.job.files.items():
        path = tmp_path / "spec" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    assert digest_of_job(read(tmp_path / "spec" / spec.name).job) == digest_of_job(asked.job)


def test_a_run_without_its_spec_can_not_go_on(tmp_path):
    folder = RunFolder.create(tmp_path, "r", {"kind": "bisect", "spec": "gone.toml"})

    with pytest.raises(InputError, match="can't read"):
        go_on(folder, inventory=None, runs=tmp_path, as_json=False)
