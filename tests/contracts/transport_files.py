"""What every `Transport` promises about whole files; see `transport.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.errors import RemoteFailed
from fleetctl.host.transport import Transport


class FileContract:
    """Whole files."""

    def test_a_file_arrives_with_its_bytes_and_mode(self, transport: Transport, host_dir: Path):
        target = host_dir / 'it\'s a "file" $HOME'
        content = bytes(range(256)) * 5000

        transport.put(content, str(target), mode=0o640)

        assert target.read_bytes() == content
        assert target.stat().st_mode & 0o7777 == 0o640
        assert [path.name for path in host_dir.iterdir()] == [target.name]

    def test_an_empty_file_is_a_file(self, transport: Transport, host_dir: Path):
        transport.put(b"", str(host_dir / "empty"), mode=0o600)

        assert transport.get(str(host_dir / "empty")) == b""

    def test_a_reader_of_the_old_file_keeps_the_old_bytes(
        self, transport: Transport, host_dir: Path
    ):
        target = host_dir / "file"
        target.write_bytes(b"old")
        with target.open("rb") as reader:
            transport.put(b"new", str(target), mode=0o644)

            assert reader.read() == b"old"
        assert target.read_bytes() == b"new"

    def test_a_link_is_replaced_and_not_followed(self, transport: Transport, host_dir: Path):
        for name in ("file", "folder"):
            (host_dir / f"to-{name}").symlink_to(host_dir / name)
        (host_dir / "file").write_bytes(b"untouched")
        (host_dir / "folder").mkdir()

        for name in ("file", "folder"):
            transport.put(b"new", str(host_dir / f"to-{name}"), mode=0o644)

            assert not (host_dir / f"to-{name}").is_symlink()
            assert (host_dir / f"to-{name}").read_bytes() == b"new"
        assert (host_dir / "file").read_bytes() == b"untouched"
        assert list((host_dir / "folder").iterdir()) == []

    def test_a_directory_is_not_replaced(self, transport: Transport, host_dir: Path):
        (host_dir / "folder").mkdir()

        with pytest.raises(RemoteFailed, match="is a directory"):
            transport.put(b"new", str(host_dir / "folder"), mode=0o644)

        assert list(host_dir.rglob("*")) == [host_dir / "folder"]

    def test_a_failed_put_leaves_nothing(self, transport: Transport, host_dir: Path):
        with pytest.raises(RemoteFailed, match=r"cannot write .*missing/file"):
            transport.put(b"new", str(host_dir / "missing" / "file"), mode=0o644)

        assert list(host_dir.iterdir()) == []

    def test_a_file_that_is_not_there_is_an_error_with_its_name(
        self, transport: Transport, host_dir: Path
    ):
        with pytest.raises(RemoteFailed, match=r"cannot read .*nothing") as caught:
            transport.get(str(host_dir / "nothing"))

        assert caught.value.next_step

    def test_a_file_costs_one_channel(self, transport: Transport, host_dir: Path):
        before = transport.channels_opened

        transport.put(b"x", str(host_dir / "file"), mode=0o600)
        transport.get(str(host_dir / "file"))

        assert transport.channels_opened - before == 2
