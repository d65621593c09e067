"""Where a patch goes: the service's interpreter decides, and each trap has a name."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import DriftError
from fleetctl.plan.patches import files_by_path, goals_of, module_paths, modules_of, target_paths
from fleetctl.plan.planner import sha256
from fleetctl.plan.targets import module_file, patch_root
from fleetctl.spec.arms import PatchContent
from fleetctl.spec.experiment import Patch
from fleetctl.transaction.code import CodeReport, ModuleSource, ProcessCode

HOST = SimpleNamespace(tree="/srv/dsv4", python="/v/bin/python")
FILES_MODULE = "serve.dsv4.indexer"
FILE = "/srv/dsv4/python/serve/dsv4/indexer.py"


def process(pid=7, prefix="/v", problem="", **module) -> ProcessCode:
    facts = {"module": "serve.dsv4.indexer", "kind": "source", "file": FILE, **module}
    found = () if problem else (ModuleSource(**facts),)
    return ProcessCode(pid, "/v/bin/python", prefix, "3.11", "/", "", "m", 1.0, found, problem)


def code(*processes) -> CodeReport:
    return CodeReport("u", processes or (process(),))


def test_the_file_is_the_one_every_process_would_import():
    assert module_file("h", HOST, "serve.dsv4.indexer", code(process(7), process(8))) == FILE


@pytest.mark.parametrize(
    ("processes", "says"),
    [
        ([process(7), process(8, file="/srv/dsv4/other/serve/dsv4/indexer.py")], "disagree"),
        ([process(file="/usr/lib/serve/dsv4/indexer.py")], "not from the tree"),
        ([process(file="/x/i.py", finder="__editable___serve_finder")], "found by __editable__"),
        ([process(prefix="/other")], "another virtual environment"),
        ([process(kind="missing", file=None, at="serve", searched=("/a",))], "not found in /a"),
        ([process(kind="missing", file=None, at="serve", shadow=("/cwd/serve",))], "shadows"),
        ([process(kind="namespace", file=None)], "of kind namespace"),
        ([process(kind="extension", file=FILE + ".so")], "of kind extension"),
        ([process(problem="no such file")], "can't be asked"),
    ],
)
def test_each_trap_is_named(processes, says):
    with pytest.raises(DriftError) as caught:
        module_file("h", HOST, "serve.dsv4.indexer", code(*processes))
    assert says in str(caught.value)


def test_a_tree_fills_the_package_and_a_diff_starts_above_it():
    package = code(process(module="serve.dsv4", file="/srv/dsv4/python/serve/dsv4/__init__.py"))

    tree = Patch(source="payload/x/", module="serve.dsv4")
    diff = Patch(source="payload/x.diff", module="serve.dsv4")
    assert patch_root("h", HOST, tree, package) == "/srv/dsv4/python/serve/dsv4"
    assert patch_root("h", HOST, diff, package) == "/srv/dsv4/python"
    by_path = Patch(source="x/", path="python/serve")
    assert patch_root("h", HOST, by_path, code()) == "/srv/dsv4/python/serve"


def test_a_diff_through_a_module_starts_where_its_package_lies():
    diff = Patch(source="payload/x.diff", module="serve.dsv4.indexer")

    assert patch_root("h", HOST, diff, code()) == "/srv/dsv4/python"


DIFF = b"--- a/serve/dsv4/indexer.py\n+++ b/serve/dsv4/indexer.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


def test_a_diff_becomes_the_whole_new_file():
    content = PatchContent(Patch(source="p.diff", module="serve.dsv4.indexer"), {"": DIFF})

    assert target_paths("h", HOST, content, code()) == (FILE,)
    (goal,) = goals_of("h", HOST, content, code(), {FILE: b"x = 1\n"}.get)
    assert (goal.path, goal.content) == (FILE, b"x = 2\n")


def content_of(source: str, module: str | None, files: dict[str, bytes]) -> PatchContent:
    path = None if module else "python"
    return PatchContent(Patch(source=source, module=module, path=path), files)


@pytest.mark.parametrize(
    ("content", "modules"),
    [
        (content_of("p.py", "serve.x", {"": b""}), {"": "serve.x"}),
        (content_of("p.diff", "serve", {"": DIFF}), {"serve/dsv4/indexer.py": FILES_MODULE}),
        (
            content_of("t/", "serve", {"dsv4/__init__.py": b"", "a.so": b"", "b-c.py": b""}),
            {"dsv4/__init__.py": "serve.dsv4"},
        ),
        (content_of("t/", "serve", {"__init__.py": b""}), {"__init__.py": "serve"}),
        (content_of("t/", None, {"a.py": b""}), {}),
    ],
    ids=["file", "diff", "tree", "the package itself", "by path"],
)
def test_every_module_that_a_patch_brings_is_known_by_name(content, modules):
    assert modules_of(content) == modules


def test_a_diff_through_a_module_names_the_file_of_each_module_it_touches():
    """Made in a repository that keeps its package in a directory: the host's counts."""
    diff = DIFF.replace(b"/serve/", b"/python/serve/") + DIFF.replace(b"indexer", b"added")
    content = content_of("p.diff", FILES_MODULE, {"": diff})

    assert module_paths("h", HOST, content, code()) == {
        FILES_MODULE: FILE,
        "serve.dsv4.added": FILE.replace("indexer", "added"),
    }


def test_a_tree_for_a_module_that_is_no_package_is_refused():
    with pytest.raises(DriftError, match="needs a package"):
        patch_root("h", HOST, Patch(source="t/", module=FILES_MODULE), code())


def test_a_patch_made_for_other_bytes_is_refused():
    patch = Patch(source="p.py", module="serve.dsv4.indexer", base_sha256=sha256(b"old"))
    content = PatchContent(patch, {"": b"new"})

    assert goals_of("h", HOST, content, code(), {FILE: b"old"}.get)
    with pytest.raises(DriftError, match="another version"):
        goals_of("h", HOST, content, code(), {FILE: b"changed"}.get)


def test_a_tree_patch_names_every_file():
    content = PatchContent(Patch(source="t/", path="python/serve"), {"a.py": b"1", "b/c.py": b"2"})

    assert [goal.path for goal in goals_of("h", HOST, content, code(), {}.get)] == [
        "/srv/dsv4/python/serve/a.py",
        "/srv/dsv4/python/serve/b/c.py",
    ]


def namespace(*directories: str) -> CodeReport:
    return code(process(module="serve.extra", kind="namespace", file=None, searched=directories))


def test_a_tree_fills_a_package_without_an_init_file():
    tree = Patch(source="payload/x/", module="serve.extra")

    place = "/srv/dsv4/python/serve/extra"
    assert patch_root("h", HOST, tree, namespace(place)) == place


@pytest.mark.parametrize(
    ("directories", "says"),
    [
        (("/srv/dsv4/a/extra", "/srv/dsv4/b/extra"), "made of /srv/dsv4/a/extra and /srv/dsv4/b"),
        (("/opt/extra",), "not in the tree"),
    ],
)
def test_a_package_without_an_init_file_that_is_no_one_place_is_named_with_a_way_out(
    directories, says
):
    tree = Patch(source="payload/x/", module="serve.extra")

    with pytest.raises(DriftError) as caught:
        patch_root("h", HOST, tree, namespace(*directories))

    assert says in str(caught.value)
    assert "say `path" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "files", "expected"),
    [
        ("payload/x.py", {"": b""}, ("/srv/dsv4/python",)),
        (
            "payload/x/",
            {"a.py": b"", "b/c": b""},
            ("/srv/dsv4/python/a.py", "/srv/dsv4/python/b/c"),
        ),
    ],
)
def test_files_of_a_patch_by_path_are_known_without_asking_anybody(source, files, expected):
    content = PatchContent(Patch(source=source, path="python"), files)

    assert files_by_path(HOST, content) == expected
    by_module = PatchContent(Patch(source=source, module="serve"), files)
    assert files_by_path(HOST, by_module) == ()
