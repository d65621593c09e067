"""Arms carry the bytes of their patches, and bad sources are refused before any host is touched."""

import os
from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.arms import arms_of, read_patch
from fleetctl.spec.experiment import Patch
from fleetctl.spec.loader import load_experiment


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "payload").mkdir()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "payload/good.py").write_text("x = 1\n")
    return tmp_path


def arms(repository: Path, body: str, name: str = "e.toml"):
    path = repository / "experiments" / name
    path.write_text(f'[experiment]\nname = "e"\ntarget = "t"\n{body}')
    return arms_of(load_experiment(path), path)


PATCH = '[[patch]]\nsource = "payload/{}"\nmodule = "serve.x"\n'


def test_sources_are_found_from_the_spec_s_repository(repository):
    found = arms(repository, PATCH.format("good.py") + '[env]\nA = "1"\nB = false\n')

    assert found.treatment.patches[0].files == {"": b"x = 1\n"}
    assert found.treatment.flags == {"A": "1", "B": None}
    assert found.control.is_as_found


def test_a_missing_source_names_the_nearest_file(repository):
    with pytest.raises(InputError, match=r"did you mean `good.py`"):
        arms(repository, PATCH.format("god.py"))


def test_a_symlink_that_leads_nowhere_is_named_with_its_target(repository):
    (repository / "payload/link.py").symlink_to("gone.py")

    with pytest.raises(InputError, match="leads nowhere") as caught:
        arms(repository, PATCH.format("link.py"))
    assert "points to gone.py" in caught.value.why
    assert "did you mean" not in str(caught.value)


def test_arms_share_caches_of_kernels_only_for_a_reason(repository):
    shared = arms(repository, PATCH.format("good.py") + '[jit]\nshare = true\nreason = "why"\n')

    assert shared.treatment.jit_shared_because == "why"
    assert arms(repository, PATCH.format("good.py")).treatment.jit_shared_because == ""
    with pytest.raises(InputError, match="needs a `reason`"):
        arms(repository, PATCH.format("good.py") + "[jit]\nshare = true\n")


def test_python_that_does_not_compile_names_its_line(repository):
    (repository / "payload/bad.py").write_text("x = 1\ndef f(:\n")

    with pytest.raises(InputError, match=r"bad\.py:2") as caught:
        arms(repository, PATCH.format("bad.py"))
    assert "nothing was touched" in caught.value.next_step


def test_a_control_may_be_another_spec(repository):
    arms(repository, PATCH.format("good.py"), name="base.toml")
    found = arms(repository, '[control]\nspec = "base.toml"\n')

    assert found.control.patches[0].patch.module == "serve.x"
    assert found.treatment.is_as_found


def _dangle(tree):
    (tree / "x").symlink_to("gone.py")


def _link_a_directory(tree):
    (tree / "x").symlink_to(tree.parent, target_is_directory=True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_dangle, "leads nowhere (gone.py)"),
        (_link_a_directory, "symlink to a directory is not followed"),
        (lambda tree: os.mkfifo(tree / "x"), "neither a file nor a directory"),
    ],
    ids=["dangling", "directory", "pipe"],
)
def test_a_tree_is_taken_whole_or_refused(repository, spoil, said):
    tree = repository / "payload/tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a/b.py").write_text("y = 2\n")
    spoil(tree / "a")
    with pytest.raises(InputError) as refused:
        arms(repository, '[[patch]]\nsource = "payload/tree/"\npath = "python"\n')
    assert said in refused.value.why
    assert "payload/tree/a/x" in refused.value.why


def test_a_link_to_a_file_brings_the_files_bytes_wherever_the_repository_lies(tmp_path):
    root = tmp_path / ".git" / "copy"
    (root / "payload/tree").mkdir(parents=True)
    (root / "one.py").write_text("y = 2\n")
    (root / "payload/tree/b.py").symlink_to("../../one.py")
    patch = Patch(source="payload/tree/", path="python")
    assert dict(read_patch(patch, root / "spec.toml").files) == {"b.py": b"y = 2\n"}


def test_a_tree_patch_brings_every_file_but_caches(repository):
    tree = repository / "payload/tree"
    (tree / "a/__pycache__").mkdir(parents=True)
    (tree / "a/b.py").write_text("y = 2\n")
    (tree / "a/__pycache__/b.pyc").write_bytes(b"stale")

    found = arms(repository, '[[patch]]\nsource = "payload/tree/"\npath = "python"\n')

    assert dict(found.treatment.patches[0].files) == {"a/b.py": b"y = 2\n"}
    assert found.treatment.patches[0].patch.kind == "tree"


def test_a_directory_is_no_source_of_a_file_patch(repository):
    with pytest.raises(InputError, match="can't read patch source payload") as caught:
        arms(repository, '[[patch]]\nsource = "payload"\nmodule = "serve.x"\n')
    assert "kind" not in caught.value.next_step


@pytest.mark.parametrize(
    "source", ["../{}/payload/good.py", "/{}/good.py", "payload/../payload/good.py"]
)
def test_a_source_outside_the_repository_is_refused(repository, source):
    """A run's folder keeps sources by name: `..` would write beside it."""
    with pytest.raises(InputError, match=r"through `\.\.` or `/`"):
        arms(
            repository, f'[[patch]]\nsource = "{source.format(repository.name)}"\nmodule = "s.x"\n'
        )


def test_the_hint_for_a_source_named_through_dots_can_be_typed(repository):
    with pytest.raises(InputError) as caught:
        arms(repository, '[[patch]]\nsource = "../payload/good.py"\nmodule = "s.x"\n')

    name = caught.value.next_step.split('"')[1]

    written = arms(repository, f'[[patch]]\nsource = "{name}"\nmodule = "s.x"\n')

    assert written.treatment.patches[0].files


def test_a_source_that_is_missing_is_named_with_its_line(repository):
    with pytest.raises(InputError, match=r"e\.toml:5 names a missing file"):
        arms(repository, PATCH.format("gone.py"))


def test_a_source_whose_name_is_too_long_for_any_file_is_refused_and_no_traceback(repository):
    with pytest.raises(InputError, match="can't be looked for") as caught:
        arms(repository, PATCH.format("x" * 5_000))
    assert len(str(caught.value)) < 600
