#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes what the Python package knows of the C API, from the headers:

    generate.py INCLUDE_FOLDER --module FILE --check FILE

The module has enumerations, structures, constants and the types of functions for ctypes. The check
is a C program that includes the headers, declares every function again as the module has it, and
prints what the compiler makes of each size, offset and value, as lines `expression value` where the
expression is one of Python on the module.
"""

from __future__ import annotations

import argparse
import pathlib
import re
from typing import Iterator, List, Tuple

from header_parser import Api, CType, Enum, HeaderError, Signature, Struct, parse_headers

HEADER = "onebit/onebit.h"
STRUCT_KINDS = "onebitStruct_t"

SPDX = ("SPDX-FileCopyrightText: The onebit authors", "SPDX-License-Identifier: Apache-2.0")

NUMBERS = {
    "char": "ctypes.c_char",
    "int": "ctypes.c_int",
    "size_t": "ctypes.c_size_t",
    "uint8_t": "ctypes.c_uint8",
    "int32_t": "ctypes.c_int32",
    "uint32_t": "ctypes.c_uint32",
    "int64_t": "ctypes.c_int64",
    "uint64_t": "ctypes.c_uint64",
    "float": "ctypes.c_float",
    "double": "ctypes.c_double",
}


def python_name(c_name: str) -> str:
    """onebitCommStats_t is CommStats."""
    match = re.fullmatch(r"onebit([A-Z]\w*?)(_t)?", c_name)
    if match is None:
        raise HeaderError(f"the name {c_name} does not begin with onebit")
    return match[1]


def words_of(name: str) -> List[str]:
    """onebitCodecInt8Stochastic is onebit, Codec, Int8, Stochastic. DeepSpeed is one word."""
    return re.findall(r"DeepSpeed|[A-Z]?[a-z0-9]+|[A-Z]+", name)


def upper_name(words: List[str]) -> str:
    return "_".join(words).upper()


def member_names(enum: Enum) -> List[Tuple[str, str, int]]:
    """C name, Python name and value of each enumerator. The words that all begin with are left out,
    but for the last word of an enumerator."""
    words = [words_of(name) for name, _ in enum.members]
    common = 0
    while all(len(each) > common + 1 and each[common] == words[0][common] for each in words):
        common += 1
    if common == 0:
        raise HeaderError(f"enumerators of {enum.name} have no common prefix")
    return [
        (name, upper_name(each[common:]), value) for each, (name, value) in zip(words, enum.members)
    ]


class Types:
    """The ctypes of C types."""

    def __init__(self, api: Api):
        self._enums = {enum.name for enum in api.enums}
        self._classes = (
            {struct.name for struct in api.structs}
            | set(api.handles)
            | {callback.name for callback in api.callbacks}
        )

    def ctype(self, c_type: CType, where: str) -> str:
        """Names the ctypes type of a member or parameter."""
        if c_type.base == "void" and c_type.pointers > 0:
            text, pointers = "ctypes.c_void_p", c_type.pointers - 1
        elif c_type.base == "char" and c_type.is_const and c_type.pointers > 0:
            text, pointers = "ctypes.c_char_p", c_type.pointers - 1
        elif c_type.base in self._enums:
            text, pointers = "ctypes.c_int", c_type.pointers
        elif c_type.base in self._classes:
            text, pointers = python_name(c_type.base), c_type.pointers
        elif c_type.base in NUMBERS:
            text, pointers = NUMBERS[c_type.base], c_type.pointers
        else:
            raise HeaderError(f"{where}: unknown type {c_type.text}")
        return "ctypes.POINTER(" * pointers + text + ")" * pointers

    def result(self, function: Signature) -> str:
        if function.result == CType("void", 0, False):
            return "None"
        if function.result == CType("onebitResult_t", 0, False):
            return "Result"
        return self.ctype(function.result, function.name)


def annotation(ctype: str) -> str:
    """Returns the Python type of a member, as a reader gets it."""
    if ctype in ("ctypes.c_float", "ctypes.c_double"):
        return "float"
    if ctype in ("ctypes.c_char", "ctypes.c_char_p"):
        return "bytes"
    return "int" if re.fullmatch(r"ctypes\.c_\w+", ctype) else "Any"


def has_size(struct: Struct) -> bool:
    first = struct.members[0]
    return first.name == "size" and first.type == CType("size_t", 0, False)


def module_lines(api: Api) -> Iterator[str]:
    types = Types(api)
    yield from (f"# {line}" for line in SPDX)
    yield f'"""The C API for ctypes, made from {HEADER} by generate.py. Do not edit."""'
    yield from (
        "",
        "from __future__ import annotations",
        "",
        "import ctypes",
        "from typing import Any, Dict",
        "",
        "from ._types import Enumeration, Flags, Structure",
        "",
    )
    for name, value in api.constants.items():
        yield f"{name} = {value!r}"

    for enum in api.enums:
        base = "Flags" if enum.name.endswith("Flags_t") else "Enumeration"
        yield from ("", "", f"class {python_name(enum.name)}({base}):")
        for _, name, value in member_names(enum):
            yield f"    {name} = {value}"

    for handle in api.handles:
        yield from ("", "", f"class {python_name(handle)}(ctypes.c_void_p):", "    pass")

    yield from ("", "")
    for callback in api.callbacks:
        result = types.result(callback).replace("Result", "ctypes.c_int")
        parameters = [types.ctype(each.type, callback.name) for each in callback.parameters]
        yield f"{python_name(callback.name)} = ctypes.CFUNCTYPE({', '.join([result, *parameters])})"

    kinds = {
        name for enum in api.enums if enum.name == STRUCT_KINDS for name, _, _ in member_names(enum)
    }
    for struct in api.structs:
        name = python_name(struct.name)
        yield from ("", "", f"class {name}(Structure):")
        if has_size(struct):
            if f"onebitStruct{name}" not in kinds:
                raise HeaderError(f"{STRUCT_KINDS} does not have {struct.name}")
            yield f"    KIND = Struct.{upper_name(words_of(name))}"
        fields = []
        for member in struct.members:
            ctype = types.ctype(member.type, f"{struct.name}.{member.name}")
            yield f"    {member.name}: {annotation(ctype)}"
            if member.array_length is not None:
                ctype = f"{ctype} * {member.array_length}"
            fields.append(f'("{member.name}", {ctype})')
        yield "    _fields_ = ["
        yield from (f"        {each}," for each in fields)
        yield "    ]"

    yield from (
        "",
        "",
        "# Result and parameters of each function.",
        "FUNCTIONS: Dict[str, Any] = {",
    )
    for function in api.functions:
        parameters = [
            types.ctype(each.type, f"{function.name}, {each.name}") for each in function.parameters
        ]
        yield f'    "{function.name}": ({types.result(function)}, [{", ".join(parameters)}]),'
    yield "}"


def check_lines(api: Api) -> Iterator[str]:
    yield from (
        f"/* {SPDX[0]}",
        f" * {SPDX[1]}",
        " *",
        " * Prints what a C compiler makes of the headers. Made by generate.py; do not edit. */",
        "#include <stdio.h>",
        "",
        f"#include <{HEADER}>",
        "",
        "/* An error here means that generate.py has misread a function. */",
    )
    for function in api.functions:
        parameters = ", ".join(each.type.text for each in function.parameters) or "void"
        yield f"{function.result.text} {function.name}({parameters});"
    yield from ("", "int main(void) {")
    for name, value in api.constants.items():
        if isinstance(value, float):
            yield f'  printf("{name} %.17g\\n", {name});'
        else:
            yield f'  printf("{name} %lld\\n", (long long){name});'
    for enum in api.enums:
        for c_name, name, _ in member_names(enum):
            yield f'  printf("{python_name(enum.name)}.{name}.value %d\\n", {c_name});'
    for struct in api.structs:
        name = python_name(struct.name)
        yield f'  printf("ctypes.sizeof({name}) %zu\\n", sizeof({struct.name}));'
        for member in struct.members:
            where = f"{name}.{member.name}"
            yield (
                f'  printf("{where}.offset %zu\\n{where}.size %zu\\n", '
                f"offsetof({struct.name}, {member.name}), "
                f"sizeof((({struct.name}*)0)->{member.name}));"
            )
    yield from ("  return 0;", "}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("include", type=pathlib.Path)
    parser.add_argument("--module", type=pathlib.Path, required=True)
    parser.add_argument("--check", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    api = parse_headers(arguments.include, HEADER)
    for path, lines in ((arguments.module, module_lines(api)), (arguments.check, check_lines(api))):
        text = "\n".join(lines) + "\n"  # complete before the file is touched
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
