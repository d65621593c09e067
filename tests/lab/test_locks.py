"""The lock of a lab's folder: a folder that can't be is a clear error."""

import pytest

from fleetctl.errors import LabError
from fleetctl.lab.locks import directory_lock


@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_a_file_can_not_hold_a_lab(tmp_path, below):
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(LabError, match="can't hold a lab"),
        directory_lock(tmp_path / "file" / below),
    ):
        pass
