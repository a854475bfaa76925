"""Postgres's expression grammar, as much of it as the allow-list can use. What is not understood is Unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from frostline.gateway.expressions.tree import (
    Boolean,
    Call,
    Case,
    Cast,
    Column,
    Items,
    Node,
    Null,
    Number,
    Operation,
    Parameter,
    Quantified,
    String,
    Test,
    TypeName,
    Unknown,
)
from frostline.gateway.lexer import Token

# From weakest to strongest, as in Postgres's manual ("Operator Precedence").
OR, AND, NOT, IS, COMPARISON, RANGE, OTHER, SUM, PRODUCT, POWER, SIGN, CAST = range(1, 13)
_BINDING = {
    **dict.fromkeys(("<", ">", "=", "<=", ">=", "<>", "!="), COMPARISON),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "%"), PRODUCT),
    "^": POWER,
}
_TYPES = {
    "smallint": "int2",
    "integer": "int4",
    "int": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "decimal": "numeric",
    "boolean": "bool",
    "character varying": "varchar",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    **{
        name: name
        for name in (
            *("int2", "int4", "int8", "float4", "float8", "numeric", "bool", "text", "varchar", "bpchar", "date"),
            *("timestamp", "timestamptz", "uuid", "bytea", "interval"),
        )
    },
}
# Words that are no names unless quoted: some are functions without parentheses, the others syntax not known here.
_RESERVED = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema
    current_time current_timestamp current_user default deferrable desc distinct do else end except exists extract
    false fetch for foreign freeze from full grant group grouping having ilike in initially inner intersect interval
    into is isnull join lateral leading left like limit localtime localtimestamp natural not notnull null offset on
    only operator or order outer overlaps overlay placing position primary references returning right row select
    session_user setof similar some substring symmetric system_user table tablesample then to trailing treat trim
    true union unique user using values variadic verbose when where window with xmlattributes xmlconcat xmlelement
    """.split()  # noqa: SIM905  a list of a hundred quoted words would fill two screens
)
_END = Token("end", "", 0, 0, 0)
# Unquoted they are syntax with arguments like a function's.
_CALLED = frozenset({"coalesce", "nullif"})


def parse(tokens: Sequence[Token]) -> Node:
    """One whole expression."""
    return Parser(tokens).whole()


def parse_list(tokens: Sequence[Token]) -> list[Node]:
    """Expressions separated by commas."""
    parser = Parser(tokens)
    nodes = parser.expressions()
    parser.end()
    return nodes


def string(token: Token) -> str:
    """A string constant's value."""
    text = token.text
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] not in "eE":
        raise Unknown("a constant of another notation")
    return re.sub(r"\\(.)|''", _unescaped, text[2:-1], flags=re.S)


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is None:
        return "'"
    if match[1] not in "\\'":
        raise Unknown("an escape in a constant")
    return match[1]


class Parser:
    """A cursor over tokens; each method takes what it names."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = (*tokens, _END)
        self._at = 0
        self._token = self._tokens[0]  # the next one
        self._words_between: dict[str, tuple[int, Callable[[Node], Node]]] = {
            "or": (OR, self._or),
            "and": (AND, self._and),
            "is": (IS, self._is),
            **dict.fromkeys(("not", "in", "between", "like"), (RANGE, self._range)),
        }

    def whole(self) -> Node:
        """One expression and nothing after it."""
        node = self.expression()
        self.end()
        return node

    def end(self) -> None:
        if self._token is not _END:
            raise Unknown(self._token.text)

    def expressions(self) -> list[Node]:
        found = [self.expression()]
        while self._take(","):
            found.append(self.expression())
        return found

    def expression(self, binding: int = OR) -> Node:
        """Everything that binds at least as tightly as `binding`."""
        left = self._prefixed()
        while (found := self._infix(binding)) is not None:
            left = found(left)
        return left

    def _prefixed(self) -> Node:
        if self._take_word("not"):
            return Operation("not", (self.expression(NOT),))
        token = self._token
        if token.kind == "operator" and token.text in ("-", "+", "~", "@"):
            self._step()
            return _signed(token.text, self.expression(SIGN if token.text in "+-" else OTHER))
        return self._primary()

    def _infix(self, binding: int) -> Callable[[Node], Node] | None:
        """What goes on with the expression on the left, if it binds tightly enough."""
        token = self._token
        found: tuple[int, Callable[[Node], Node]] | None = None
        if token.kind == "typecast":
            found = CAST, self._cast
        elif token.kind == "operator":
            found = _BINDING.get(token.text, OTHER), self._operator
        elif token.kind == "word":
            found = self._words_between.get(token.text)
        return found[1] if found is not None and found[0] >= binding else None

    def _or(self, left: Node) -> Node:
        self._step()
        return _joined("or", left, self.expression(AND))

    def _and(self, left: Node) -> Node:
        self._step()
        return _joined("and", left, self.expression(NOT))

    def _cast(self, left: Node) -> Node:
        self._step()
        return Cast(left, self._type())

    def _operator(self, left: Node) -> Node:
        name = self._next().text
        name = "<>" if name == "!=" else name
        strength = _BINDING.get(name, OTHER)
        every = self._take_word("all")
        if every or self._take_word("any", "some"):
            self._need("(")
            right = self.expression()
            self._need(")")
            return Quantified(name, left, right, every)
        right = self.expression(strength + 1)
        if strength == COMPARISON and _BINDING.get(self._token.text) == COMPARISON:
            raise Unknown("a comparison of a comparison")
        return Operation(name, (left, right))

    def _is(self, left: Node) -> Node:
        self._step()
        negated = self._take_word("not")
        if self._take_word("distinct"):
            if not self._take_word("from"):
                raise Unknown("IS DISTINCT")
            return Operation("is not distinct from" if negated else "is distinct from", (left, self.expression(RANGE)))
        for word, value in (("null", None), ("unknown", None), ("true", True), ("false", False)):
            if self._take_word(word):
                return Test(left, value, negated)
        raise Unknown("IS")

    def _range(self, left: Node) -> Node:
        negated = self._take_word("not")
        if self._take_word("in"):
            self._need("(")
            items = Items(tuple(self.expressions()))
            self._need(")")
            return Quantified("<>" if negated else "=", left, items, every=negated)
        if self._take_word("like"):
            return Operation("!~~" if negated else "~~", (left, self.expression(OTHER)))
        if not self._take_word("between"):
            raise Unknown("NOT")
        low = self.expression(OTHER)
        if not self._take_word("and"):
            raise Unknown("BETWEEN")
        bounds = Operation(">=", (left, low)), Operation("<=", (left, self.expression(OTHER)))
        found = Operation("and", bounds)
        return Operation("not", (found,)) if negated else found

    def _primary(self) -> Node:
        token = self._next()
        if token.kind in _CONSTANTS:
            return _CONSTANTS[token.kind](token)
        if token.kind == "word" and token.text in _WORDS:
            return _WORDS[token.text]
        if token.text == "(" and token.kind == "punctuation":
            inner = self.expression()
            self._need(")")
            return inner
        if token.word("case"):
            return self._case()
        if token.word("cast"):
            return self._cast_call()
        return self._array() if token.word("array") else self._named(token)

    def _named(self, token: Token) -> Node:
        name = _name(token)
        table = None
        if self._take("."):
            table, name = name, _name(self._next(), after_dot=True)
        if self._take("("):
            if table not in (None, "pg_catalog"):
                raise Unknown(f"function {table}.{name}")
            return self._call(name)
        if token.word(*_CALLED):
            raise Unknown(token.text)
        return Column(name, table)

    def _call(self, name: str) -> Node:
        star = self._take("*")
        distinct = not star and self._take_word("distinct")
        arguments: tuple[Node, ...] = ()
        if not star and not self._take(")"):
            arguments = tuple(self.expressions())
            self._need(")")
        elif star:
            self._need(")")
        where = None
        if self._take_word("filter"):
            self._need("(")
            if not self._take_word("where"):
                raise Unknown("FILTER")
            where = self.expression()
            self._need(")")
        return Call(name, arguments, star, distinct, where)

    def _case(self) -> Node:
        subject = None if self._token.word("when") else self.expression()
        branches = []
        while self._take_word("when"):
            condition = self.expression()
            if not self._take_word("then"):
                raise Unknown("CASE")
            branches.append((condition, self.expression()))
        default = self.expression() if self._take_word("else") else None
        if not branches or not self._take_word("end"):
            raise Unknown("CASE")
        return Case(subject, tuple(branches), default)

    def _cast_call(self) -> Node:
        self._need("(")
        operand = self.expression()
        if not self._take_word("as"):
            raise Unknown("CAST")
        found = Cast(operand, self._type())
        self._need(")")
        return found

    def _array(self) -> Node:
        self._need("[")
        if self._take("]"):
            return Items(())
        items = Items(tuple(self.expressions()))
        self._need("]")
        return items

    def _type(self) -> TypeName:
        token = self._next()
        name = _name(token, after_dot=True)
        if self._take("."):
            name = f"{name}.{_name(self._next(), after_dot=True)}".removeprefix("pg_catalog.")
        elif token.kind == "quoted" and name not in _TYPES:
            name = f'"{name}"'
        elif token.kind == "word":
            name = " ".join([name, *self._words(name)])
        modifiers = self._modifiers()
        if name in ("timestamp", "time") and modifiers:
            self._words(name)
        array = self._take("[")
        if array:
            self._need("]")
        return TypeName(_TYPES.get(name, name), modifiers, array)

    def _words(self, first: str) -> list[str]:
        """The rest of a type's name of several words."""
        for rest in (["precision"], ["varying"], ["with", "time", "zone"], ["without", "time", "zone"]):
            following = [token.text for token in self._tokens[self._at : self._at + len(rest)] if token.kind == "word"]
            if following == rest and first in ("double", "character", "bit", "timestamp", "time"):
                self._step(len(rest))
                return rest
        return []

    def _modifiers(self) -> bool:
        if not self._take("("):
            return False
        while not self._take(")"):
            self._next()
        return True

    def _step(self, count: int = 1) -> None:
        self._at += count
        self._token = self._tokens[self._at]

    def _next(self) -> Token:
        token = self._token
        if token is _END:
            raise Unknown("an expression that ends early")
        self._step()
        return token

    def _take(self, text: str) -> bool:
        token = self._token
        if token.text != text or token.kind not in ("punctuation", "operator"):
            return False
        self._step()
        return True

    def _take_word(self, *words: str) -> bool:
        token = self._token
        if token.text not in words or token.kind != "word":
            return False
        self._step()
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise Unknown(f"no {text}")


def _name(token: Token, *, after_dot: bool = False) -> str:
    if token.kind not in ("word", "quoted") or (token.kind == "quoted" and token.text[:2] in ('U&"', 'u&"')):
        raise Unknown(token.text)
    if token.kind == "word" and token.text in _RESERVED and not after_dot:
        raise Unknown(token.text)
    return token.text


def _signed(sign: str, operand: Node) -> Node:
    if sign == "-" and isinstance(operand, Number) and operand.text[0] != "-":
        return Number(f"-{operand.text}")
    return Operation(sign, (operand,))


def _joined(word: str, left: Node, right: Node) -> Node:
    """A long chain stays flat, so that nothing recurses as deep as it is long."""
    first = left.operands if isinstance(left, Operation) and left.name == word else (left,)
    return Operation(word, (*first, right))


_CONSTANTS: dict[str, Callable[[Token], Node]] = {
    "number": lambda token: Number(token.text),
    "string": lambda token: String(string(token)),
    "parameter": lambda token: Parameter(int(token.text[1:])),
}
_WORDS: dict[str, Node] = {"true": Boolean(True), "false": Boolean(False), "null": Null()}
