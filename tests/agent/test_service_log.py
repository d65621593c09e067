"""Journal lines become values, whatever the service wrote."""

from fleetctl.agent.service_log import parse_lines


def parsed(line):
    (found,) = parse_lines([line])
    return found


def test_a_journal_line_says_who_wrote_what_when():
    line = "2026-11-29T19:12:51+0000 lab-1 serve.sh[412]: [variant] indexer=transient: ok"

    found = parsed(line)

    assert (found.pid, found.text) == (412, "[variant] indexer=transient: ok")
    assert found.at_s == 1795979571.0


def test_a_line_without_a_pid_has_pid_0():
    assert parsed("2026-11-29T19:12:51+0000 lab-1 systemd: Started x.").pid == 0


def test_what_is_no_journal_line_is_kept_as_text():
    found = parsed("-- Boot 6f3c --")

    assert (found.pid, found.text) == (0, "-- Boot 6f3c --")
