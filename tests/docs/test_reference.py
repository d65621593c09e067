"""The reference says what the code does today."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def maker():
    found = importlib.util.spec_from_file_location(
        "make_reference", ROOT / "scripts/make_reference.py"
    )
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["spec.md", "inventory.md", "exit-codes.md", "commands.md"])
def test_the_reference_is_what_the_code_says(maker, page):
    text = (ROOT / "docs/reference" / page).read_text()

    assert text == maker.PAGES[page]().rstrip() + "\n", "run scripts/make_reference.py"


def test_every_key_has_a_meaning(maker):
    for page in ("spec.md", "inventory.md"):
        rows = re.findall(
            r"^\| `(\w+)` \|.*\| (.*) \|$", (ROOT / "docs/reference" / page).read_text(), re.M
        )
        assert rows
        assert [name for name, meaning in rows if not meaning.strip()] == []


def test_every_link_in_the_docs_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_spec_in_the_readme_passes_check(tmp_path):
    for number, text in enumerate(
        re.findall(r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    ):
        spec = tmp_path / f"{number}.toml"
        spec.write_text(text)
        (tmp_path / "payload").symlink_to(ROOT / "payload")

        argv = [sys.executable, "-m", "fleetctl", "check", str(spec)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stderr
