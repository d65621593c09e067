"""The report as Markdown."""

from dataclasses import replace

from fleetctl.report import markdown


def test_the_sentence_is_the_first_thing_after_the_title(report_of):
    lines = markdown.render(report_of([6, 5, 7], [0] * 3)).splitlines()

    assert lines[0] == "# Verdict"
    assert lines[2].startswith("**REDUCED: 15% -\\> 0% of sessions are bad")


def test_tables_are_tables_and_every_row_has_as_many_cells_as_its_header(measured):
    rows = [line for line in markdown.render(measured).splitlines() if line.startswith("|")]

    assert any(line.startswith("| control | 2 | 13/78 = 16.7% |") for line in rows)
    assert all(line.endswith(" |") for line in rows)


def test_what_a_model_wrote_is_no_markup(measured):
    nasty = replace(measured, name="<b>x</b>", notes=("a | b `c` [d](e)\nf",))

    told = markdown.render(nasty)

    assert told.startswith("# \\<b\\>x\\</b\\>\n")
    assert told.endswith("- a \\| b \\`c\\` \\[d\\](e) f\n")
    assert "- hypothesis: The buffer is the victim." in told


def test_a_verdict_without_a_next_step_has_no_such_heading(report_of):
    assert "## Next" not in markdown.render(report_of([6] * 8, [0] * 8))
