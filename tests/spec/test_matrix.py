"""A matrix expands to stable cells."""

from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.loader import load_matrix

TEXT = """
[experiment]
name = "m"
target = "lab"
[matrix]
baseline = { runner = "captured", keys = "bf16" }
exclude = [{ runner = "eager", keys = "fp8" }]
[[factor]]
name = "runner"
[[factor.level]]
name = "eager"
[[factor.level]]
name = "captured"
env = { A = "1" }
[[factor]]
name = "keys"
[[factor.level]]
name = "bf16"
[[factor.level]]
name = "fp8"
env = { B = "0" }
"""


def matrix(tmp_path: Path, text: str = TEXT):
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return load_matrix(path)


def test_the_product_without_the_excluded_baseline_first(tmp_path):
    cells = matrix(tmp_path).cells()

    assert [cell.name for cell in cells] == [
        "runner=captured,keys=bf16",
        "runner=eager,keys=bf16",
        "runner=captured,keys=fp8",
    ]
    assert dict(cells[2].env) == {"A": "1", "B": "0"}


def test_a_cell_s_digest_follows_its_content_only(tmp_path):
    before = {cell.name: cell.digest for cell in matrix(tmp_path).cells()}
    after = {
        cell.name: cell.digest
        for cell in matrix(tmp_path, TEXT.replace('A = "1"', 'A = "2"')).cells()
    }

    assert before["runner=eager,keys=bf16"] == after["runner=eager,keys=bf16"]
    assert before["runner=captured,keys=bf16"] != after["runner=captured,keys=bf16"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('runner = "captured",', "", "one level of every factor"),
        ('runner = "captured",', 'runner = "captrued",', "did you mean `captured`"),
        (
            'exclude = [{ runner = "eager", keys = "fp8" }]',
            'exclude = [{ keys = "bf16" }]',
            "baseline cell is excluded",
        ),
        ('name = "fp8"', 'name = "bf16"', "must differ"),
    ],
)
def test_impossible_matrices_are_refused(tmp_path, old, new, says):
    with pytest.raises(InputError, match=says):
        matrix(tmp_path, TEXT.replace(old, new))
