"""Small changes that may make a wrong program right, the most likely first.

They are the changes that make mutants, and pieces of the program itself: the right text is mostly elsewhere in the same
file, perhaps with other names. Each change concerns one place. Its rank says how common such a repair is: 0 for a
part left out or an operator replaced, 3 for a piece of another kind from another function. Changes near the lines that
are known to go wrong come before others of the same rank. Functions without such lines get only the plain changes.

A build of C takes fifty times as long as a short case, so variants in C are built together: each edited function is
there once for each edit, under a name of its own. Which variant runs depends on a constant of the program, and the
bytes of the constant are replaced in the program that was built.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from grader.search.mutants import Edit, Node, bodies, changes, nodes, root_of, text_of

Ranked = tuple[int, str]
"""A rank, and the text that replaces a node."""

_NAMES = frozenset({"identifier", "attribute", "field_expression"})
_LITERALS = frozenset(["integer", "number_literal", "true", "false", "none", "null", "lambda"])
_LISTS = frozenset({"argument_list", "tuple", "list"})
_EXPRESSIONS = frozenset(
    {
        *(*_NAMES, *_LITERALS, *_LISTS, "subscript", "subscript_expression", "call", "call_expression"),
        *("binary_operator", "unary_operator", "comparison_operator", "boolean_operator", "not_operator"),
        *("binary_expression", "unary_expression", "pointer_expression", "conditional_expression"),
        *("cast_expression", "update_expression", "sizeof_expression", "list_comprehension", "generator_expression"),
    }
)
_RELATIONS = ("<", "<=", ">", ">=", "==", "!=")
_JOINS = frozenset({*_RELATIONS, "&&", "||", "!", "and", "or", "not"})
_TRUTHS = frozenset({"true", "false", "comparison_operator", "boolean_operator", "not_operator"})
_ASSIGNED = frozenset({"assignment", "augmented_assignment", "assignment_expression"})
_SETS = _ASSIGNED | {"for_statement", "for_in_clause"}
_STATEMENTS = frozenset({"expression_statement", "return_statement", "break_statement", "continue_statement"})
_BLOCKS = frozenset({"block", "compound_statement"})
_NO_VALUE = ("name", "attribute", "field", "declarator", "parameters", "type", "label")
"""Fields of a node that are no values."""
_WITHOUT_VALUES = frozenset({"parameters", "lambda_parameters", "expression_statement", "decorator"})
_BINDING = frozenset({"parameters", "lambda_parameters", "pattern_list", "default_parameter"})
_BINDING_FIELDS = ("declarator", "left", "name")
_NOT_BINDING = frozenset({"function_definition", "function_declarator", "keyword_argument", "attribute"})
_KEYWORDS = {
    "continue_statement": ("continue", "break"),
    "break_statement": ("break", "continue"),
    "if_statement": ("if", "while"),
    "while_statement": ("while", "if"),
}
_OPPOSITES = {"0": "-1", "min": "max", "max": "min", "all": "any", "any": "all"}
_OPPOSITES |= {"++": "--", "--": "++", "+=": "-=", "-=": "+="}
_COUNTS = re.compile(r"\+\+|--|[+-]=")
"""Operators that count. A statement is also tried with the opposites: one function counts up, another one down."""
_AROUND = {
    "c": ["{} + 1", "{} - 1", "sizeof({})", "!({})", "({})++", "--{}", "2 * {}"],
    "python": [
        "{} + 1",
        "{} - 1",
        "2 * {}",
        "list({})",
        "dict({})",
        "set({})",
        "sorted({})",
        "reversed({})",
        "{}.copy()",
        "{}[:]",
        "{}[1:]",
        "len({})",
        "max(0, {})",
        "max({}, 0)",
        "not {}",
    ],
}
_WITH_ANOTHER = ((2, "({} - {})"), (2, "({} + {})"), (3, "({} * {})"), (3, "min({}, {})"), (3, "max({}, {})"))
_NEAR = 2
"""A change that is more than this many lines from every reported line has a rank that is higher by 1."""
_FIRST = 2
"""The number of changes in functions with reported lines that are tried before each change elsewhere."""
_LONGEST, _MOST_LINES = 90, 3
"""The most characters of an expression, and the most lines of a statement, that are tried at other places."""
_MOST_NAMES = 3
"""The number of a function's names that are tried instead of a foreign name in a piece of another function."""
_OFTEN = 8
"""The number of attributes, the object's own first, that have rank 0; further ones have rank 1."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the program that may be used elsewhere in it."""

    text: str
    kind: str
    function: str
    names: frozenset[str]
    role: tuple[bool, bool] = False, False
    """Whether it is a condition, and whether it is called."""


def repairs(content: bytes, language: str, lines: Sequence[int]) -> Iterator[Edit]:
    """Yield edits of a program, the most likely first. `lines` are known to go wrong, the most likely line first.

    Raises `ImportError` if tree-sitter is not installed.
    """
    found: dict[Edit, tuple[int, int]] = {}
    away: dict[int, int] = {}
    others: dict[Edit, int] = {}
    for is_near, rank, edit in _ParsedProgram(content, language).edits(lines):
        if edit.text.split() == content[edit.start : edit.end].decode(errors="replace").split():
            continue
        if not is_near:
            others.setdefault(edit, rank)
            continue
        if edit.start not in away:
            at = edit.line(content)
            away[edit.start] = min((abs(at - line) + place for place, line in enumerate(lines)), default=0)
        order = rank + (away[edit.start] > _NEAR), away[edit.start]
        found[edit] = min(order, found.get(edit, order))
    near, far = iter(sorted(found, key=found.__getitem__)), iter(sorted(others, key=others.__getitem__))
    while some := [*islice(near, _FIRST), *islice(far, 1)]:
        yield from some


class _ParsedProgram:
    """A parsed program, and the pieces of its functions. Code outside of functions has the name ""."""

    def __init__(self, content: bytes, language: str) -> None:
        self.content, self.language, self.is_c = content, language, language == "c"
        root = root_of(content, language)
        functions = dict(bodies(root))
        inside = {node.id for body in functions.values() for node in nodes(body)}
        self.scopes = {name: list(nodes(body)) for name, body in functions.items()}
        self.scopes[""] = [] if self.is_c else [node for node in nodes(root) if node.id not in inside]
        whole = {name: list(nodes(body.parent)) for name, body in functions.items()} | {"": self.scopes[""]}
        self.names = {name: frozenset(self._names_in(scope)) for name, scope in whole.items()}
        self.bound = {name: list(dict.fromkeys(self._bound_in(scope))) for name, scope in whole.items()} | {"": []}
        self.values = [piece for name, scope in self.scopes.items() for piece in self._values_of(name, scope)]
        self.statements = [piece for name, scope in self.scopes.items() for piece in self._statements_of(name, scope)]
        self.attributes = self._attributes()

    def edits(self, lines: Collection[int]) -> Iterator[tuple[bool, int, Edit]]:
        """Yield for each change whether its function has one of these lines, its rank, and the edit.

        In functions that have none of the lines, only plain changes are made.
        """
        for name, scope in self.scopes.items():
            is_near = not lines or not {node.start_point[0] + 1 for node in scope}.isdisjoint(lines)
            for node in (node for node in scope if not node.has_error):
                yield from ((is_near, 0, edit) for edit in changes(node, self.content, self.language))
                if node.type in _BLOCKS:
                    yield from ((is_near, *ranked) for ranked in self._in_block(name, node, is_near=is_near))
                for rank, text in self._instead(name, node, is_near=is_near):
                    yield is_near, rank, Edit(node.start_byte, node.end_byte, text)

    def _instead(self, name: str, node: Node, *, is_near: bool) -> Iterator[Ranked]:
        """Yield what may replace a node."""
        if node.type in _KEYWORDS:
            yield 0, self._text(node).replace(*_KEYWORDS[node.type], 1)
        if node.type == "if_statement" and node.child_by_field_name("alternative") is None:
            text = self._text(node.child_by_field_name("consequence")).strip()
            yield from [(1, text)] * (self.is_c or "\n" not in text)
        if node.type == "expression_statement":
            yield from ((1, text) for text in self._other_statements(name, node))
        if self._is_value(node):
            yield from ((int(not is_near), self._text(part)) for part in nodes(node) if part.type in _EXPRESSIONS)
            plain = _OPPOSITES.get(self._text(node), "")
            yield from [(0, plain)] * (plain != "")
            if is_near:
                yield from ((0, text) for text in self._written_otherwise(node))
                yield from self._other_values(name, node)
                yield from self._with_more(name, node)

    def _written_otherwise(self, node: Node) -> Iterator[str]:
        """Yield common corrections of a value that need no other part of the program."""
        old, parts = self._text(node), [self._text(child) for child in node.children]
        for sign in (child for child in node.children if self._text(child) in _RELATIONS):
            head, tail = self.content[node.start_byte : sign.start_byte], self.content[sign.end_byte : node.end_byte]
            yield from ((head + other.encode() + tail).decode(errors="replace") for other in _RELATIONS)
        if node.type == "update_expression":  # before or after
            yield "".join(reversed(parts))
        elif len(parts) == 3 and parts[1] in {"/", "//"}:  # rounded up
            yield f"({parts[0]} + {parts[2]} - 1) {parts[1]} {parts[2]}"
        elif node.type == "subscript" and len(parts) == 4:
            yield from (f"{parts[0]}.{call}({parts[2]})" for call in ("pop", "get"))
        elif node.type == "call" and ".append(" in old:
            yield old.replace(".append(", ".insert(0, ", 1)
        yield from ("0", "1") if not any(self._role(node)) else ()

    def _other_values(self, name: str, node: Node) -> Iterator[Ranked]:
        """Yield other values of the program, with a foreign name replaced, and other attributes of the same object."""
        if node.type in {"attribute", "field_expression"}:
            head, dot, _ = self._text(node).rpartition("->" if "->" in self._text(node) else ".")
            others = enumerate(self.attributes.get(head, ()))
            yield from ((int(place >= _OFTEN), f"{head}{dot}{other}") for place, other in others)
        names, role = {*self._names_in(nodes(node))} - {"self"}, self._role(node)
        for piece in self.values:
            if piece.role == role:
                for rank, text in self._adapted(piece, name):
                    yield 1 + rank + (piece.kind != node.type) - (not names.isdisjoint(piece.names)), text

    def _with_more(self, name: str, node: Node) -> Iterator[Ranked]:
        """Yield the value with something more around it or in it."""
        old, (is_condition, is_called) = self._text(node), self._role(node)
        own = [piece for piece in self.values if piece.function == name and not any(piece.role) and piece.text != old]
        if is_condition:
            yield from self._conditions(name, node)
        elif is_called:
            return
        elif node.type in _LISTS and len(old) > 2:
            for text in dict.fromkeys([*(piece.text for piece in own), "0", "NULL" if self.is_c else "None"]):
                yield from ((2, whole) for whole in (f"{old[:-1]}, {text}{old[-1]}", f"{old[0]}{text}, {old[1:]}"))
        elif node.type not in _LITERALS - {"integer", "number_literal"}:
            yield from ((1, text.format(old)) for text in _AROUND[self.language])
            for text in dict.fromkeys(piece.text for piece in own if piece.kind in _NAMES):
                yield from ((rank, whole.format(old, text)) for rank, whole in _WITH_ANOTHER)

    def _conditions(self, name: str, node: Node) -> Iterator[Ranked]:
        """Yield the opposite of a condition, other conditions, and the condition joined to others by `and` or `or`."""
        old, joins = self._text(node), ("&&", "||") if self.is_c else ("and", "or")
        no, more = ("!({})", ()) if self.is_c else ("not {}", ("({}) is not None",))
        whole = "({})" if node.parent.type in {"binary_expression", "boolean_operator"} else "{}"
        yield from ((0, text.format(old)) for text in (no, "({}) == 0", "({}) > 0", *more))
        for piece in self.values:
            if (piece.role[0] or piece.kind in _NAMES) and not piece.role[1] and piece.text != old:
                for rank, text in self._adapted(piece, name):
                    for part in (text, no.format(text)):
                        longer = (whole.format(f"({old}) {join} ({part})") for join in joins)
                        yield from ((1 + rank + (not piece.role[0]), other) for other in (part, *longer))

    def _other_statements(self, name: str, node: Node) -> Iterator[str]:
        """Yield what may replace an assignment or a call."""
        if not node.named_children:  # an empty statement
            return
        old, end, inner = self._text(node).rstrip("; "), ";" * self.is_c, node.named_children[0]
        if inner.type in _ASSIGNED and inner.child_by_field_name("right") is not None:
            left, right = (self._text(inner.child_by_field_name(side)) for side in ("left", "right"))
            yield from (f"{left} {text}{end}" for text in ("+= 1", "-= 1", f"= {right}", f"+= {right}", f"-= {right}"))
            yield from (f"{right}{end}", f"{left}[:] = {right}{end}")
        else:
            lefts = {
                self._text(each.child_by_field_name("left")) for each in self.scopes[name] if each.type in _ASSIGNED
            }
            yield from (f"{left} {sign}= {old}{end}" for left in sorted(lefts) for sign in ("+", "-", ""))

    def _in_block(self, name: str, block: Node, *, is_near: bool) -> Iterator[tuple[int, Edit]]:
        """Yield edits that swap two adjacent statements, or insert a statement of the program at one place."""
        inside = [child for child in block.named_children if child.type != "comment"]
        for before, node in pairwise(inside):
            if node.type in _STATEMENTS | {"if_statement"}:
                between = self.content[before.end_byte : node.start_byte].decode(errors="replace")
                yield 1, Edit(before.start_byte, node.end_byte, f"{self._text(node)}{between}{self._text(before)}")
        if not inside or not is_near:
            return
        start = inside[0].start_byte
        indent = self.content[self.content.rfind(b"\n", 0, start) + 1 : start].decode(errors="replace")
        indent = indent if not indent.strip() else ""
        for piece in self.statements:
            for rank, text in self._adapted(piece, name):
                first, *others = text.split("\n")
                least = min((len(line) - len(line.lstrip()) for line in others), default=0)
                lines = f"\n{indent}".join(
                    [first, *(line[max(0, least - 4 * (len(others) == 1)) :] for line in others)]
                )
                yield 1 + rank, Edit(start, start, f"{lines}\n{indent}")
                yield from ((1 + rank, Edit(node.end_byte, node.end_byte, f"\n{indent}{lines}")) for node in inside)

    def _adapted(self, piece: _Piece, name: str) -> Iterator[Ranked]:
        """Yield a piece as the function `name` can have it: one name that it lacks is replaced by one of its own."""
        is_foreign = piece.function != name
        strange = piece.names.intersection(self.bound[piece.function]) - self.names[name] if is_foreign else ()
        if not strange:
            yield int(is_foreign), piece.text
        elif len(strange) == 1:
            (old,) = strange
            for new in [each for each in self.bound[name] if each != "self"][:_MOST_NAMES]:
                yield 1, re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, piece.text)

    def _values_of(self, name: str, scope: Iterable[Node]) -> Iterator[_Piece]:
        for node in scope:
            text = self._text(node)
            if self._is_value(node) and len(text) <= _LONGEST and "\n" not in text:
                yield _Piece(text, node.type, name, frozenset(self._names_in(nodes(node))), self._role(node))

    def _statements_of(self, name: str, scope: Iterable[Node]) -> Iterator[_Piece]:
        known = set()
        for node in scope:
            text = self._text(node)
            is_one = node.type in _STATEMENTS | {"if_statement"} and node.parent.type in _BLOCKS
            if is_one and text not in known and text.count("\n") < _MOST_LINES and '"""' not in text:
                for each in dict.fromkeys([text, _COUNTS.sub(lambda match: _OPPOSITES[match[0]], text)]):
                    known.add(each)
                    yield _Piece(each, node.type, name, frozenset(self._names_in(nodes(node))))

    def _attributes(self) -> dict[str, list[str]]:
        """Map the text of each object to its attributes in this program; in Python, those of other objects follow."""
        found: dict[str, dict[str, None]] = {}
        for piece in self.values:
            if piece.kind in {"attribute", "field_expression"}:
                head, _, last = piece.text.rpartition("->" if "->" in piece.text else ".")
                found.setdefault(head, {})[last] = None
        everywhere = {} if self.is_c else {last: None for own in found.values() for last in own}
        return {head: list(own | everywhere) for head, own in found.items()}

    def _is_value(self, node: Node) -> bool:
        if node.type not in _EXPRESSIONS or node.parent is None or node.parent.type in _WITHOUT_VALUES:
            return False
        fields = (*_NO_VALUE, "left") if node.parent.type in _SETS else _NO_VALUE
        return not any(_is_field(node, name) for name in fields)

    def _role(self, node: Node) -> tuple[bool, bool]:
        """Return whether a value is a condition, and whether it is called."""
        around = node.parent.parent if node.parent.type == "parenthesized_expression" else node.parent
        is_condition = node.type in _TRUTHS or any(child.type in _JOINS for child in node.children)
        return is_condition or _is_field(node, "condition", around), _is_field(node, "function")

    def _names_in(self, scope: Iterable[Node]) -> Iterator[str]:
        yield from (
            self._text(each) for each in scope if each.type == "identifier" and not _is_field(each, "attribute")
        )

    def _bound_in(self, scope: Iterable[Node]) -> Iterator[str]:
        """Yield the names of parameters and variables."""
        for each in scope:
            is_name = each.type == "identifier" and each.parent.type not in _NOT_BINDING
            if is_name and (each.parent.type in _BINDING or any(_is_field(each, field) for field in _BINDING_FIELDS)):
                yield self._text(each)

    def _text(self, node: Node) -> str:
        return text_of(node, self.content)


def _is_field(node: Node, name: str, parent: Node = None) -> bool:
    """Return whether a node is, or is in, this field of its parent."""
    field = (parent or node.parent).child_by_field_name(name)
    return field is not None and field.start_byte <= node.start_byte and node.end_byte <= field.end_byte


_CHOICE = 0x6368_6F69_6365_2121
"""The placeholder of the number that chooses the variant. No other constant of a program is likely to be the same."""
_NUMBER = struct.Struct("<q")
_CHOOSES = b'#pragma GCC optimize "O0"\nstatic volatile const long choice_of_a_variant = 0x%x;\n'
"""Without optimization gcc needs a quarter of the time for these many functions."""


def chosen(program: bytes, number: int) -> bytes:
    """Return the built program that is the variant with this number, from 1."""
    return program.replace(_NUMBER.pack(_CHOICE), _NUMBER.pack(number))


def together(content: bytes, edits: Sequence[Edit]) -> tuple[bytes, list[range]]:
    """Return a program that has all variants of its functions, numbered from 1, and the lines of each variant."""
    text = _CHOOSES % _CHOICE
    at, spans = 0, [range(0)] * len(edits)
    for _, body in bodies(root_of(content, "c")):
        function = body.parent
        own = [place for place, edit in enumerate(edits) if body.start_byte <= edit.start <= body.end_byte]
        if not own or not _is_plain(function):
            continue
        signature = _CHead(function, content)
        text += content[at : function.start_byte] + signature.of(b"") + b";\n"
        at = function.end_byte
        for place in [None, *own]:
            first = text.count(b"\n") + 1
            whole = content if place is None else edits[place].of(content)
            longer = len(whole) - len(content)
            text += b"static " + signature.of(b"_variant_%d" % (0 if place is None else place + 1))
            text += whole[body.start_byte : body.end_byte + longer] + b"\n"
            if place is not None:
                spans[place] = range(first, text.count(b"\n") + 1)
        text += signature.choosing([place + 1 for place in own])
    return text + content[at:], spans


class _CHead:
    """What comes before the body of a function in C."""

    def __init__(self, function: Node, content: bytes) -> None:
        declarator = function.child_by_field_name("declarator")
        self.gives = function.child_by_field_name("type").text != b"void" or declarator.type != "function_declarator"
        while declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        name = declarator.child_by_field_name("declarator")
        start, end = function.start_byte, function.child_by_field_name("body").start_byte
        self.before, self.name = content[start : name.start_byte], content[name.start_byte : name.end_byte]
        self.after = content[name.end_byte : end].rstrip()
        parameters = declarator.child_by_field_name("parameters").named_children
        self.arguments = b", ".join(filter(None, map(_declared, parameters)))

    def of(self, suffix: bytes) -> bytes:
        """Return the signature of a variant, to which `static` can be added; with b"" that of the function itself."""
        before = self.before if not suffix else re.sub(rb"\b(static|extern)\s+", b"", self.before)
        return before + self.name + suffix + self.after

    def choosing(self, numbers: Sequence[int]) -> bytes:
        """Return a function that calls the variant with the chosen number if it is in `numbers`, or else variant 0."""
        call = b"%b%b_variant_%%d(%b);%b" % (
            b"return " * self.gives,
            self.name,
            self.arguments,
            b" return;" * (not self.gives),
        )
        cases = b" ".join(b"case %d: " % number + call % number for number in numbers)
        return self.of(b"") + b" { switch (choice_of_a_variant) { %b default: %b } }\n" % (cases, call % 0)


def _is_plain(function: Node) -> bool:
    """Return whether a function has the form `TYPE NAME(PARAMETERS)`; a macro with a body looks like a function."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type == "pointer_declarator":
        declarator = declarator.child_by_field_name("declarator")
    is_function = declarator is not None and declarator.type == "function_declarator"
    name = declarator.child_by_field_name("declarator") if is_function else None
    return function.child_by_field_name("type") is not None and name is not None and name.type == "identifier"


def _declared(parameter: Node) -> bytes | None:
    """Return the name of a parameter; None for `void`."""
    node = parameter
    while (inner := node.child_by_field_name("declarator")) is not None:
        node = inner
    return node.text if node.type == "identifier" else None
