"""The record of a lab comes back as it was written, or says why it can't be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import LabError
from fleetctl.lab import Kind
from fleetctl.lab.record import HostRecord, LabRecord, Phase, Wanted, read_record, write_record

HOSTS = st.builds(
    HostRecord,
    name=st.from_regex(r"lab-[1-9][0-9]?", fullmatch=True),
    index=st.integers(1, 250),
    address=st.ip_addresses(v=4).map(str),
    port=st.integers(1, 65535),
    service_port=st.integers(1, 65535),
    tree=st.text(),
    phase=st.sampled_from(Phase),
    wanted=st.sampled_from(Wanted),
    is_cut=st.booleans(),
    disk_bytes=st.none() | st.integers(1),
)
RECORDS = st.builds(
    LabRecord,
    token=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    kind=st.sampled_from(Kind),
    network=st.text(),
    user=st.text(),
    python=st.text(),
    engine=st.lists(st.text()).map(tuple),
    gpu=st.text(),
    hosts=st.lists(HOSTS, unique_by=lambda host: host.name).map(tuple),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was_written(tmp_path_factory, record):
    directory = tmp_path_factory.mktemp("lab")
    write_record(directory, record)
    assert read_record(directory) == record
    assert [entry.name for entry in directory.iterdir()] == ["lab.json"]


def test_where_there_is_no_lab_there_is_no_record(tmp_path):
    assert read_record(tmp_path) is None
    assert read_record(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "hosts": []}', '{"version": 1}']
)
def test_an_unreadable_record_is_an_error_with_a_way_out(tmp_path, text):
    (tmp_path / "lab.json").write_text(text)
    with pytest.raises(LabError, match="cannot read") as unreadable:
        read_record(tmp_path)
    assert unreadable.value.next_step == f"fleetctl lab down --dir {tmp_path}"


@given(st.permutations([1, 2, 3]))
def test_hosts_are_kept_in_order(order):
    record = LabRecord("00000000", Kind.PROCESSES, "", "root", "python3")
    for index in order:
        host = HostRecord(f"lab-{index}", index, "127.0.0.1", 22, 30002, "/srv")
        record = record.with_host(host)
    assert [host.index for host in record.hosts] == [1, 2, 3]
