# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the public C headers: enums, structures, handles, callbacks, functions, constants.

This is no C parser. It knows the few forms that our headers use, and anything else is an error with
file and line, so that a new form is noticed when the bindings are built and not when they run.
"""

from __future__ import annotations

import ast
import operator
import pathlib
import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, NoReturn, Optional, Tuple, Union

Number = Union[int, float]

LIMITS: Dict[str, Number] = {
    "INT32_MIN": -(2**31),
    "INT32_MAX": 2**31 - 1,
    "UINT32_MAX": 2**32 - 1,
    "INT64_MIN": -(2**63),
    "INT64_MAX": 2**63 - 1,
    "UINT64_MAX": 2**64 - 1,
    "SIZE_MAX": 2**64 - 1,
}
# Conditions of #if and #ifdef, and how they come out: for a C compiler that is not a C++ compiler.
CONDITIONS = {"__cplusplus": False, "defined(__GNUC__)": True}
SYSTEM_HEADERS = {"<stddef.h>", "<stdint.h>"}
# Macros without a value that bindings could use.
IGNORED_MACROS = {"ONEBIT_API"}


class HeaderError(Exception):
    """A header has a form that the parser does not know."""


@dataclass(frozen=True)
class CType:
    """A type: `text` is its C spelling, `pointers` the number of stars behind the name `base`."""

    base: str
    pointers: int
    is_const: bool

    @property
    def text(self) -> str:
        return ("const " if self.is_const else "") + self.base + "*" * self.pointers


@dataclass(frozen=True)
class Variable:
    """A structure's member, or a function's parameter; only members can be arrays."""

    name: str
    type: CType
    array_length: Optional[int] = None


@dataclass(frozen=True)
class Enum:
    name: str
    members: Tuple[Tuple[str, int], ...]


@dataclass(frozen=True)
class Struct:
    name: str
    members: Tuple[Variable, ...]


@dataclass(frozen=True)
class Signature:
    """A function, or the type of a callback."""

    name: str
    result: CType
    parameters: Tuple[Variable, ...]


@dataclass
class Api:
    """All declarations of the headers, in their order."""

    constants: Dict[str, Number] = field(default_factory=dict)
    enums: List[Enum] = field(default_factory=list)
    structs: List[Struct] = field(default_factory=list)
    handles: List[str] = field(default_factory=list)
    callbacks: List[Signature] = field(default_factory=list)
    functions: List[Signature] = field(default_factory=list)


@dataclass(frozen=True)
class _Line:
    """A line of a header without its comments."""

    path: pathlib.Path
    number: int
    text: str

    def fail(self, why: str) -> NoReturn:
        raise HeaderError(f"{self.path}:{self.number}: {why}: {self.text.strip()}")


_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TYPE = re.compile(r"(?P<const>const )?(?:struct )?(?P<base>\w+)\s*(?P<stars>\**)")
_VARIABLE = re.compile(_TYPE.pattern + r"\s*\b(?P<name>[A-Za-z_]\w*)(?:\[(?P<length>\w+)\])?")
_ENUM = re.compile(r"typedef enum \{(.*)\} (\w+)")
_STRUCT = re.compile(r"typedef struct \{(.*)\} (\w+)")
_HANDLE = re.compile(r"typedef struct \w+\* (\w+)")
_CALLBACK = re.compile(r"typedef ([\w* ]+?) \(\*(\w+)\)\((.*)\)")
_FUNCTION = re.compile(r"ONEBIT_API ([\w* ]+?)\s*\b(\w+)\((.*)\)")
_DEFINE = re.compile(r"#define (\w+)(\(?)(.*)")


def parse_headers(include_folder: pathlib.Path, name: str) -> Api:
    """Parses `name` and all headers of the project that it includes."""
    api = Api()
    seen = {name}
    _parse_header(include_folder, name, api, seen)
    return api


def _parse_header(include_folder: pathlib.Path, name: str, api: Api, seen: set) -> None:
    included: List[str] = []
    code = list(_preprocess(_lines(include_folder / name), api, included))
    for first, statement in _statements(code):
        _parse_statement(first, statement, api)
    # onebit.h includes the others behind its own declarations, which they use.
    for other in included:
        if other not in seen:
            seen.add(other)
            _parse_header(include_folder, other, api, seen)


def _lines(path: pathlib.Path) -> List[_Line]:
    """Without comments, and with continued lines joined."""
    text = path.read_text(encoding="utf-8")
    text = _COMMENT.sub(lambda match: " " + "\n" * match[0].count("\n"), text)
    lines: List[_Line] = []
    begun = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        lines.append(_Line(path, number, begun + line))
        begun = ""
    return lines


def _preprocess(lines: List[_Line], api: Api, included: List[str]) -> Iterator[_Line]:
    """The lines of code that a C compiler sees. Macros with values become constants."""
    guard = None
    taken: List[bool] = []  # for each open condition
    for line in lines:
        text = " ".join(line.text.split())
        if text.startswith(("#if ", "#ifdef ", "#ifndef ")):
            directive, condition = text.split(" ", 1)
            if directive == "#ifndef" and guard is None and condition.endswith("_H_"):
                guard = condition
                taken.append(True)
            elif directive != "#ifndef" and condition in CONDITIONS:
                taken.append(CONDITIONS[condition])
            else:
                line.fail("unknown condition")
        elif text in ("#else", "#endif") and not taken:
            line.fail("no condition is open")
        elif text == "#else":
            taken[-1] = not taken[-1]
        elif text == "#endif":
            taken.pop()
        elif not all(taken):
            continue
        elif text.startswith("#include "):
            header = text.split(" ", 1)[1]
            if header.startswith('"onebit/'):
                included.append(header.strip('"'))
            elif header not in SYSTEM_HEADERS:
                line.fail("unknown header")
        elif text.startswith("#define "):
            _parse_define(line, text, guard, api)
        elif text.startswith("#"):
            line.fail("unknown directive")
        elif text:
            yield _Line(line.path, line.number, text)
    if taken:
        lines[-1].fail("a condition has no #endif")


def _parse_define(line: _Line, text: str, guard: Optional[str], api: Api) -> None:
    match = _DEFINE.fullmatch(text)
    if match is None or (match[2] and not match[3].endswith(")")):
        line.fail("unknown macro")
    name, value = match[1], (match[2] + match[3]).strip()
    if name == guard or name in IGNORED_MACROS:
        return
    if name.endswith("_INIT") and value.startswith("{"):
        return  # onebitStructInit gives its content
    if name in api.constants:
        line.fail("the macro is defined twice")
    api.constants[name] = _evaluate(line, value, api.constants)


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.USub: operator.neg,
}


def _evaluate(line: _Line, text: str, constants: Dict[str, Number]) -> Number:
    """The value of a sum or product of numbers and constants."""

    def value_of(node: ast.expr) -> Number:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.Name) and node.id in LIMITS:
            return LIMITS[node.id]
        if isinstance(node, ast.Name) and node.id in constants:
            return constants[node.id]
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value_of(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))
        return line.fail("unknown constant")

    without_suffixes = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
    try:
        return value_of(ast.parse(without_suffixes, mode="eval").body)
    except SyntaxError:
        return line.fail("unknown constant")


def _statements(lines: List[_Line]) -> Iterator[Tuple[_Line, str]]:
    """Splits code at semicolons outside of braces; each statement comes with its first line."""
    begin: Optional[_Line] = None
    text, depth = "", 0
    for line in lines:
        begin = begin or line
        text = f"{text} {line.text}".strip()
        depth += line.text.count("{") - line.text.count("}")
        if depth == 0 and line.text.endswith(";"):
            yield begin, text[:-1]
            begin, text = None, ""
    if begin is not None:
        begin.fail("the statement has no end")


def _parse_statement(line: _Line, text: str, api: Api) -> None:
    line = _Line(line.path, line.number, text)  # errors show all of it
    if match := _ENUM.fullmatch(text):
        api.enums.append(Enum(match[2], tuple(_parse_enumerators(line, match[1]))))
    elif match := _STRUCT.fullmatch(text):
        members = [member.strip() for member in match[1].split(";")]
        if members.pop():
            line.fail("a member has no semicolon")
        api.structs.append(Struct(match[2], tuple(_parse_variable(line, text) for text in members)))
    elif match := _HANDLE.fullmatch(text):
        api.handles.append(match[1])
    elif match := _CALLBACK.fullmatch(text):
        api.callbacks.append(_parse_signature(line, *match.groups()))
    elif match := _FUNCTION.fullmatch(text):
        api.functions.append(_parse_signature(line, *match.groups()))
    else:
        line.fail("unknown statement")


def _parse_enumerators(line: _Line, text: str) -> Iterator[Tuple[str, int]]:
    for enumerator in text.split(","):
        match = re.fullmatch(r"\s*(\w+) = (-?\d+)\s*", enumerator)
        if match is None:
            line.fail("an enumerator has no value")
        yield match[1], int(match[2])


def _parse_signature(line: _Line, result: str, name: str, parameters: str) -> Signature:
    types = [] if parameters == "void" else parameters.split(",")
    return Signature(
        name,
        _parse_type(line, result),
        tuple(_parse_variable(line, parameter.strip()) for parameter in types),
    )


def _parse_type(line: _Line, text: str) -> CType:
    match = _TYPE.fullmatch(text)
    if match is None:
        line.fail(f"unknown type {text!r}")
    return CType(match["base"], len(match["stars"]), match["const"] is not None)


def _parse_variable(line: _Line, text: str) -> Variable:
    match = _VARIABLE.fullmatch(text)
    if match is None or (match["length"] and not match["length"].isdigit()):
        line.fail(f"unknown declaration {text!r}")
    return Variable(
        match["name"],
        CType(match["base"], len(match["stars"]), match["const"] is not None),
        int(match["length"]) if match["length"] else None,
    )
