"""The line of a key is the right one whatever texts, comments and spellings stand around it."""

import pytest

from fleetctl.spec.located import line_of

AROUND = [
    'note = """\n[trials]\nruns = 3\n"""\n',
    "note = '''\n[trials]\nruns = 3\n'''\n",
    'note = """one \\""" and\nruns = 3 ""\n[x]\n"""\n',
    'note = "a # no comment" # a """ comment\n',
    "note = 'C:\\' # it's ''' no text\n",
    'many = ["""a\n""", ' + "'''\n[b]\n''', 'c']\n",
    'note = """a"""""\n',
]


@pytest.mark.parametrize("text", AROUND)
def test_what_stands_in_a_text_is_no_key(text):
    whole = f"[experiment]\n{text}wrong = 1\n[trials]\nruns = 0\n"
    lines = whole.split("\n")
    assert line_of(whole, ("experiment", "wrong")) == lines.index("wrong = 1") + 1
    assert line_of(whole, ("trials", "runs")) == lines.index("runs = 0") + 1


@pytest.mark.parametrize("key", ["a.b", "a . b", '"a".b', "a.'b'", " a. b ", '"a" . "b"'])
def test_a_dotted_key_is_found_however_it_is_spelled(key):
    assert line_of(f"[x]\n[y]\n{key} = 1\n", ("y", "a", "b")) == 3
