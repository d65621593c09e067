"""From shfmt's JSON to the nodes of `shell_tree`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fleetctl.environment.shell.parser import Parser, comment_spans
from fleetctl.environment.shell.tree import (
    Arithmetic,
    Assignment,
    Case,
    CaseItem,
    Chain,
    Command,
    Comment,
    CountingFor,
    Declaration,
    DoubleQuoted,
    For,
    Function,
    Group,
    If,
    Literal,
    Parameter,
    Part,
    Pattern,
    Pipe,
    Redirect,
    Script,
    Simple,
    SingleQuoted,
    Statement,
    Substitution,
    Test,
    While,
    Word,
    Wrapped,
    text_of,
)

Node: TypeAlias = Mapping[str, Any]

_DEFAULTS = frozenset({":-", "-", ":=", "=", ":?", "?", ":+", "+"})
_ASSIGNING = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=", "**="})
_ARITHMETIC_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"})


def parse(content: bytes, parser: Parser, *, base: int = 0) -> Script:
    """Return the script as nodes.

    Args:
        content: the whole file, or a script that lies inside one.
        parser: the effect.
        base: where `content` begins in its file; added to every offset.

    Raises:
        ScriptRejected: shfmt does not accept it.
    """
    root = parser.tree(content)
    builder = _Builder(content, base)
    comments = tuple(
        Comment(start + base, text_of(content[start + 1 : end]))
        for start, end in sorted(comment_spans(root))
    )
    return Script(content=content, body=builder.statements(root), comments=comments)


class _Builder:
    def __init__(self, content: bytes, base: int) -> None:
        self.content = content
        self.base = base
        self.commands: dict[str, Callable[[Node], Command]] = {
            "CallExpr": self.simple,
            "DeclClause": self.declaration,
            "IfClause": self.if_clause,
            "WhileClause": self.while_clause,
            "ForClause": self.for_clause,
            "CaseClause": self.case_clause,
            "Block": lambda node: Group(self.statements(node), subshell=False),
            "Subshell": lambda node: Group(self.statements(node), subshell=True),
            "BinaryCmd": self.binary,
            "FuncDecl": self.function,
            "ArithmCmd": lambda node: Test((), self.arithmetic(node, [node.get("X")])),
            "LetClause": lambda node: Test((), self.arithmetic(node, node["Exprs"])),
            "TestClause": self.test,
            "TimeClause": lambda node: self.wrapped(node, coprocess=False),
            "CoprocClause": lambda node: self.wrapped(node, coprocess=True),
        }

    # ---- positions and text

    def start(self, node: Node) -> int:
        return int(node["Pos"]["Offset"]) + self.base

    def end(self, node: Node) -> int:
        return int(node["End"]["Offset"]) + self.base

    def text(self, node: Node, *, lead: int = 0, tail: int = 0) -> str:
        first, last = node["Pos"]["Offset"] + lead, node["End"]["Offset"] - tail
        return text_of(self.content[first:last])

    # ---- statements

    def statements(self, node: Node, key: str = "Stmts") -> tuple[Statement, ...]:
        return tuple(self.statement(s) for s in node.get(key) or ())

    def statement(self, node: Node) -> Statement:
        command = node.get("Cmd")
        return Statement(
            start=self.start(node),
            end=self.end(node),
            command=self.command(command) if command else None,
            redirects=tuple(self.redirect(r) for r in node.get("Redirs") or ()),
            background=bool(node.get("Background")),
            negated=bool(node.get("Negated")),
        )

    def command(self, node: Node) -> Command:
        build = self.commands.get(node["Type"])
        # A kind this package does not know can write anything: an arithmetic write to any name.
        return build(node) if build else Test(self.words_within(node), self.anything(node))

    def anything(self, node: Node) -> Arithmetic:
        return Arithmetic(self.start(node), self.end(node), ("",), ())

    def redirect(self, node: Node) -> Redirect:
        word, heredoc = node.get("Word"), node.get("Hdoc")
        number = (node.get("N") or {}).get("Value", "")
        return Redirect(
            operator=node["Op"],
            word=self.word(word) if word else None,
            heredoc=self.word(heredoc) if heredoc else None,
            variable=number[1:-1] if number.startswith("{") else "",
            start=self.start(node),
        )

    def simple(self, node: Node) -> Simple:
        return Simple(
            start=self.start(node),
            end=self.end(node),
            assignments=tuple(self.assignment(a) for a in node.get("Assigns") or ()),
            words=self.words(node.get("Args")),
        )

    def declaration(self, node: Node) -> Declaration:
        return Declaration(
            start=self.start(node),
            end=self.end(node),
            variant=node["Variant"]["Value"],
            arguments=tuple(self.assignment(a) for a in node.get("Args") or ()),
        )

    def assignment(self, node: Node) -> Assignment:
        value, array, name = node.get("Value"), node.get("Array"), node.get("Name")
        naked = bool(node.get("Naked"))
        end = self.end(node)
        places = [node.get("Index"), *(e.get("Index") for e in (array or {}).get("Elems") or ())]
        return Assignment(
            start=self.start(node),
            end=end,
            name=name["Value"] if name else "",
            value=self.word(value) if value else None,
            elements=self.elements(array) if array else None,
            append=bool(node.get("Append")),
            naked=naked,
            indexed=bool(node.get("Index")),
            value_start=self.start(value) if value else end,
            subscripts=self.arithmetic(node, places) if any(places) else None,
        )

    def elements(self, array: Node) -> tuple[Word, ...]:
        return tuple(
            self.word(element["Value"])
            for element in array.get("Elems") or ()
            if element.get("Value")
        )

    def if_clause(self, node: Node) -> If:
        otherwise = node.get("Else")
        return If(
            condition=self.statements(node, "Cond"),
            body=self.statements(node, "Then"),
            otherwise=self.if_clause(otherwise) if otherwise else None,
        )

    def while_clause(self, node: Node) -> While:
        return While(
            until=bool(node.get("Until")),
            condition=self.statements(node, "Cond"),
            body=self.statements(node, "Do"),
        )

    def for_clause(self, node: Node) -> For | CountingFor:
        loop = node["Loop"]
        body = self.statements(node, "Do")
        if loop["Type"] == "CStyleLoop":
            expressions = [loop.get(key) for key in ("Init", "Cond", "Post")]
            return CountingFor(self.arithmetic(loop, expressions), body)
        items = self.words(loop.get("Items"))
        return For(
            name=loop["Name"]["Value"],
            items=items if "InPos" in loop else None,
            body=body,
            select=bool(node.get("Select")),
            line_start=self.start(loop),
        )

    def case_clause(self, node: Node) -> Case:
        items = (
            CaseItem(
                patterns=self.words(item.get("Patterns")),
                body=self.statements(item),
                terminator=item.get("Op", ";;"),
            )
            for item in node.get("Items") or ()
        )
        return Case(self.word(node["Word"]), tuple(items))

    def binary(self, node: Node) -> Chain | Pipe:
        left, right = self.statement(node["X"]), self.statement(node["Y"])
        if node["Op"] in ("&&", "||"):
            return Chain(node["Op"], left, right)
        return Pipe(left, right)

    def function(self, node: Node) -> Function:
        return Function(name=node["Name"]["Value"], body=self.statement(node["Body"]))

    def wrapped(self, node: Node, *, coprocess: bool) -> Command:
        inner = node.get("Stmt")
        if inner is None:
            return Test((), None)
        name = self.text(node["Name"]) if node.get("Name") else "COPROC"
        return Wrapped(self.statement(inner), coprocess=coprocess, name=name)

    def test(self, node: Node) -> Test:
        assigned: list[str] = []
        self.collect_tested(node.get("X"), assigned)
        arithmetic = Arithmetic(self.start(node), self.end(node), tuple(assigned), ())
        return Test(self.words_within(node.get("X")), arithmetic if assigned else None)

    def collect_tested(self, node: Node | None, assigned: list[str]) -> None:
        """Find what `[[ A=4 -eq 4 ]]` and `[[ -v x[A=4] ]]` assign: arithmetic in words."""
        if not node:
            return
        if node.get("Op") in _ARITHMETIC_TESTS:
            for each in (node.get("X"), node.get("Y")):
                self.collect_assigned(each, assigned)
            return
        for key in ("X", "Y"):
            self.collect_tested(node.get(key), assigned)

    # ---- words

    def words(self, nodes: Sequence[Node] | None) -> tuple[Word, ...]:
        return tuple(self.word(node) for node in nodes or ())

    def word(self, node: Node) -> Word:
        parts = tuple(self.part(part) for part in node.get("Parts") or ())
        return Word(self.start(node), self.end(node), parts)

    def part(self, node: Node) -> Part:
        start, end = self.start(node), self.end(node)
        match node["Type"]:
            case "Lit":
                return Literal(start, end, self.text(node))
            case "SglQuoted":
                ansi = bool(node.get("Dollar"))
                return SingleQuoted(start, end, self.text(node, lead=1 + ansi, tail=1), ansi)
            case "DblQuoted":
                parts = tuple(self.part(part) for part in node.get("Parts") or ())
                return DoubleQuoted(start, end, parts, bool(node.get("Dollar")))
            case "ParamExp":
                return self.parameter(node)
            case "CmdSubst" | "ProcSubst":
                backquoted = bool(node.get("Backquotes"))
                return Substitution(start, end, self.statements(node), backquoted)
            case "ArithmExp":
                return self.arithmetic(node, [node.get("X")])
            case _:
                return Pattern(start, end)

    def parameter(self, node: Node) -> Parameter:
        expansion = node.get("Exp") or {}
        operator = expansion.get("Op", "")
        unknown = any(
            node.get(key)
            for key in ("Length", "Excl", "Width", "IsSet", "Slice", "Repl", "Names", "NestedParam")
        )
        unknown = unknown or (operator and operator not in _DEFAULTS)
        index = node.get("Index")
        argument = expansion.get("Word")
        piece = node.get("Slice") or {}
        places = [index, piece.get("Offset"), piece.get("Length")]
        inner = [*self.words_within(index), *self.words_within(piece)]
        inner += self.words_within(node.get("Repl"))
        if unknown and argument:
            inner.append(self.word(argument))
        return Parameter(
            start=self.start(node),
            end=self.end(node),
            name=(node.get("Param") or {}).get("Value", ""),
            operator="other" if unknown else operator,
            argument=self.word(argument) if argument and not unknown else None,
            index=self.text(index) if index else "",
            inner=tuple(inner),
            computed=self.arithmetic(node, places) if any(places) else None,
            indirect=bool(node.get("Excl")) and not index and not node.get("Names"),
        )

    def arithmetic(self, node: Node, expressions: Sequence[Node | None]) -> Arithmetic:
        assigned: list[str] = []
        for expression in expressions:
            self.collect_assigned(expression, assigned)
        inner = [word for e in expressions for word in self.words_within(e)]
        return Arithmetic(self.start(node), self.end(node), tuple(assigned), tuple(inner))

    def collect_assigned(self, node: Node | None, assigned: list[str]) -> None:
        if not node:
            return
        kind, operator = node.get("Type"), node.get("Op")
        target = (kind == "BinaryArithm" and operator in _ASSIGNING) or (
            kind == "UnaryArithm" and operator in ("++", "--")
        )
        if target:
            assigned.append(self.assigned_name(node["X"]))
        elif kind == "Word" and self.may_assign(self.text(node)):
            assigned.append("")
        for key in ("X", "Y"):
            self.collect_assigned(node.get(key), assigned)

    def may_assign(self, text: str) -> bool:
        # let "A=1" hides an assignment in a word
        return "=" in text or "++" in text or "--" in text

    def assigned_name(self, node: Node) -> str:
        text = self.text(node).partition("[")[0]
        return text if text.isidentifier() and text.isascii() else ""

    def words_within(self, node: object) -> tuple[Word, ...]:
        """Return every word below a node of any kind, so that its effects are seen."""
        if isinstance(node, list):
            return tuple(word for item in node for word in self.words_within(item))
        if not isinstance(node, dict):
            return ()
        if "Parts" in node and "Pos" in node:
            return (self.word(node),)
        inner = (v for v in node.values() if isinstance(v, dict | list))
        return tuple(word for value in inner for word in self.words_within(value))
