"""Arguments are right in form, or it is said how they aren't."""

from __future__ import annotations

import socket
import threading

import pytest

from fleetctl.trial.arguments import declared_tools, form_flags, is_expected, strings_in
from fleetctl.trial.events import Expectation
from fleetctl.trial.reply import Call

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "size": {"enum": ["s", "m"]}},
    "required": ["id"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ('{"id": "a"}', None),
        (' {"id": "a", "size": "s"}\n', None),
        ("", "args_against_schema"),
        ("{}", "args_against_schema"),
        ('{"id": 7}', "args_against_schema"),
        ('{"id": "a", "size": "xl"}', "args_against_schema"),
        ('{"id": "a", "more": 1}', "args_against_schema"),
        ('{"id": "a"', "args_not_json"),
        ("id=a", "args_not_json"),
        ("{'id': 'a'}", "args_not_json"),
        ('{"id": "a"} trailing', "args_duplicate_object"),
        ('{"id": "a"}{"id": "a"}', "args_duplicate_object"),
        ('{"id": "a", "id": "b"}', "args_duplicate_key"),
        ('["a"]', "args_not_an_object"),
        ('"{\\"id\\": \\"a\\"}"', "args_not_an_object"),
        ("[" * 100_000, "args_not_json"),
    ],
)
def test_each_fault_of_form_has_its_flag(text, flag):
    found = form_flags(Call("c", "f", text), {"f": SCHEMA})
    assert found == (frozenset({flag}) if flag else frozenset())


def test_a_tool_without_a_schema_takes_any_object():
    assert form_flags(Call("c", "f", '{"x": 1}'), {"f": {}}) == frozenset()
    assert form_flags(Call("c", "g", '{"x": 1}'), {"f": SCHEMA}) == frozenset()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"$ref": "http://127.0.0.1:1/never-fetched.json"},
        {"$ref": "#/nowhere"},
        {"pattern": "("},
    ],
)
def test_a_schema_that_can_not_be_used_is_no_fault_of_the_model_and_fetches_nothing(schema):
    found = form_flags(Call("c", "f", '{"x": 1}'), {"f": schema})
    assert found <= {"schema_unusable"}


def test_a_schema_never_makes_this_client_fetch_anything():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        schema = {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"}
        asking = threading.Thread(
            target=form_flags, args=(Call("c", "f", '{"x": 1}'), {"f": schema})
        )
        asking.start()
        with pytest.raises(TimeoutError):
            server.accept()
    asking.join()


def test_declared_tools_are_read_from_any_request():
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    assert declared_tools({"tools": [tool, {"type": "web"}, 7, {"function": {"name": 3}}]}) == {
        "f": SCHEMA
    }
    assert declared_tools({"tools": None}) == {}
    assert declared_tools({}) == {}


def test_the_expected_call_has_the_name_and_the_exact_arguments():
    wanted = Expectation("f", {"id": "a"})
    assert is_expected(Call("", "f", '{ "id":"a" }'), wanted)
    assert not is_expected(Call("", "g", '{"id": "a"}'), wanted)
    assert not is_expected(Call("", "f", '{"id": "b"}'), wanted)
    assert is_expected(Call("", "f", '{"id": "b"}'), Expectation("f"))


def test_strings_inside_a_value_are_found_at_any_depth():
    assert list(strings_in({"a": ["b", {"c": 1, "d": "e"}], "f": None})) == [
        "a", "b", "c", "d", "e", "f"
    ]  # fmt: skip
