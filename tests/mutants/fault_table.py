# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The table of faults: reads it, checks it against the sources, and puts every fault behind a switch.

A row names a file, a piece of its code, what a tired engineer might have written there instead, and
the test that must notice. Sources stay as they are: `switched_text` makes the text of a copy in which
the environment variable MUTANT_ID chooses which fault is on, if any.
"""

import collections
import dataclasses
import pathlib
import re
import tomllib
import zlib

SWITCH_HEADER = "mutant_switch.h"
SWITCH = """\
// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Chooses the fault that is on in this process: the one whose number MUTANT_ID holds.
#pragma once

#ifdef __CUDACC__
// Device code has no environment: tests run the kernels as host code.
__host__ __device__ constexpr bool OnebitMutant(unsigned) { return false; }
#else
#include <cstdlib>
#include <type_traits>

// A compiler may well find a fault odd, which is no error of this build.
#pragma GCC diagnostic ignored "-Wbool-compare"
#pragma GCC diagnostic ignored "-Wdangling-else"
#pragma GCC diagnostic ignored "-Wempty-body"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wreturn-type"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-variable"

namespace onebit_mutant {
inline unsigned ReadActive() {
  const char* text = std::getenv("MUTANT_ID");
  return text == nullptr ? 0U : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}
inline const unsigned active = ReadActive();
}  // namespace onebit_mutant

constexpr bool OnebitMutant(unsigned number) {
  return !std::is_constant_evaluated() && onebit_mutant::active == number;
}
#endif
"""

# Every product folder with code of its own must have rows.
FOLDERS = (
    "kernels/cpu", "kernels/cuda", "kernels/reference",
    "plugins/common", "plugins/device_cuda", "plugins/transport_local", "plugins/transport_mpi",
    "plugins/transport_nccl", "plugins/transport_ucx",
    "src/api", "src/base", "src/codec", "src/comm", "src/compressor", "src/device", "src/exec", "src/optim",
    "src/plan", "src/schedule", "src/state", "src/steps", "src/sync", "src/topology", "src/transport", "src/wait")
# Every change of a line has to mend its rows, so a table may not grow without bound, nor gather where faults
# are cheap to think of. A better fault replaces a worse one.
MOST_ROWS = 420
MOST_ROWS_OF_A_FILE = 8
MOST_ROWS_OF_A_TEST = 2
KEYS = {"id", "file", "code", "fault", "why", "caught_by"}
# Begins statements, and no expression.
STATEMENT = re.compile(r"\s*((if|else|for|while|return|const)\b|\})")
INLINE_SWITCH = re.compile(r"\bMUTANT\b")
BRACKETS = {")": "(", "]": "[", "}": "{"}


class TableError(Exception):
    """A row that does not fit the sources, or is not a row."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One row. `caught_by` is "program GoogleTest-filter"."""
    id: str
    file: str
    code: str
    fault: str
    why: str
    caught_by: str

    @property
    def number(self) -> int:
        """Depends on the name only, so that a new row does not rebuild the files of the others."""
        return zlib.crc32(self.id.encode()) or 1

    @property
    def program(self) -> str:
        return self.caught_by.split()[0]

    @property
    def filter(self) -> str:
        return self.caught_by.split()[1]

    @property
    def is_statement(self) -> bool:
        return self.code.rstrip().endswith((";", "}"))

    def switched_code(self) -> str:
        """Both texts and the switch: an expression, or statements where the code ends as one does.

        A fault that says MUTANT itself is the whole text, and MUTANT in it is whether it is on.
        """
        switch = f"OnebitMutant({self.number}U)"
        if INLINE_SWITCH.search(self.fault):
            return INLINE_SWITCH.sub(switch, self.fault)
        if self.is_statement:
            return f"{{ if ({switch}) {{ {self.fault} }} else {{ {self.code} }} }}"
        return f"({switch} ? ({self.fault}) : ({self.code}))"


def _fault_of(row: dict, path: pathlib.Path) -> Fault:
    name = f"{path.name}: {row.get('id', 'a row without an id')}"
    if missing := KEYS - row.keys():
        raise TableError(f"{name}: has no {', '.join(sorted(missing))}")
    if unknown := row.keys() - KEYS:
        raise TableError(f"{name}: unknown {', '.join(sorted(unknown))}")
    if not all(isinstance(value, str) for value in row.values()):
        raise TableError(f"{name}: every value is a string")
    if len(row["caught_by"].split()) != 2:
        raise TableError(f"{name}: caught_by is a program and a filter, not \"{row['caught_by']}\"")
    if row["fault"] == row["code"]:
        raise TableError(f"{name}: the fault is the code")
    return Fault(**row)


def _is_balanced(text: str) -> bool:
    opened = []
    for character in text:
        if character in BRACKETS.values():
            opened.append(character)
        elif character in BRACKETS and (not opened or opened.pop() != BRACKETS[character]):
            return False
    return not opened


def _form_error(fault: Fault) -> str:
    """Why the two texts cannot stand in the branches of a switch; "" if they can."""
    if INLINE_SWITCH.search(fault.fault):
        return ""
    if not _is_balanced(fault.code) or not _is_balanced(fault.fault):
        return "its brackets do not match"
    if not fault.is_statement and (";" in fault.code or fault.code.rstrip().endswith(("&", "|", "?", ":"))):
        return "its code is neither statements nor an expression"
    if not fault.is_statement and STATEMENT.match(fault.code):
        return "its code is the beginning of a statement: name an expression in it, or write MUTANT into the fault"
    return ""


def read(folder: pathlib.Path) -> list[Fault]:
    """All rows of the *.toml files in `folder`, by file name."""
    faults = []
    for path in sorted(folder.glob("*.toml")):
        try:
            rows = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise TableError(f"{path.name}: {error}") from error
        faults += [_fault_of(row, path) for row in rows.get("fault", [])]
    return faults


def _places(faults: list[Fault], text: str) -> tuple[list[tuple[int, Fault]], list[str]]:
    """Where the code of each row of one file begins, last first, and what is wrong with the others."""
    found, wrong = [], []
    for fault in faults:
        if (count := text.count(fault.code)) != 1:
            times = "is not there" if count == 0 else f"is there {count} times"
            wrong.append(f"{fault.id}: {fault.file}: its code {times}: {fault.code.strip()}")
        else:
            found.append((text.index(fault.code), fault))
    found.sort(key=lambda place: place[0], reverse=True)
    for (later, second), (earlier, first) in zip(found, found[1:]):
        if earlier + len(first.code) > later:
            wrong.append(f"{second.id}: {second.file}: its code overlaps that of {first.id}")
    return found, wrong


def _missing_tests(root: pathlib.Path, faults: list[Fault]) -> list[str]:
    """Names of tests that no source of a test has, so that nothing would be run."""
    sources = (root / "tests").glob("**/*_test.cc")
    known = set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in sources)))
    missing = []
    for fault in faults:
        names = re.findall(r"\w\w+(?!\w|\*)", fault.filter)
        missing += [f"{fault.id}: there is no test {name}" for name in names
                    if "*" not in name and name not in known]
    return missing


def _beyond_limits(faults: list[Fault]) -> list[str]:
    """Which of the limits on numbers of rows the table exceeds."""
    found = []
    if len(faults) > MOST_ROWS:
        found.append(f"{len(faults)} rows: at most {MOST_ROWS}")
    files = collections.Counter(fault.file for fault in faults)
    tests = collections.Counter(f"{fault.program} {test}" for fault in faults for test in fault.filter.split(":"))
    for counts, most in ((files, MOST_ROWS_OF_A_FILE), (tests, MOST_ROWS_OF_A_TEST)):
        found += [f"{name}: {rows} rows: at most {most}, replace the least of them"
                  for name, rows in sorted(counts.items()) if rows > most]
    return found


def errors(root: pathlib.Path, faults: list[Fault], folders=FOLDERS) -> list[str]:
    """What is wrong with the table, one line each: with its names, or against the sources in `root`."""
    found = _missing_tests(root, faults) + _beyond_limits(faults)
    for key in ("id", "number"):
        owners: dict = {}
        for fault in faults:
            if owner := owners.setdefault(getattr(fault, key), fault):
                if owner is not fault:
                    found.append(f"{fault.id}: has the {key} of {owner.id}, in {owner.file}")
    found += [f"{fault.id}: {wrong}" for fault in faults if (wrong := _form_error(fault))]
    for file in sorted({fault.file for fault in faults}):
        rows = [fault for fault in faults if fault.file == file]
        if not (root / file).is_file():
            found += [f"{fault.id}: there is no file {file}" for fault in rows]
            continue
        found += _places(rows, (root / file).read_text(encoding="utf-8"))[1]
    for folder in folders:
        if not any(fault.file.startswith(folder + "/") for fault in faults):
            found.append(f"{folder}: has no row")
    return found


def switched_text(file: str, text: str, faults: list[Fault]) -> str:
    """The text of `file` with its faults behind the switch; `errors` found nothing before."""
    for begin, fault in _places(faults, text)[0]:
        text = text[:begin] + fault.switched_code() + text[begin + len(fault.code):]
    header = "../" * file.count("/") + SWITCH_HEADER
    lines = text.split("\n")
    # Before the first line of code, whatever that includes or opens: a target of SIMD, a namespace.
    first = next(at for at, line in enumerate(lines) if line and not line.startswith("//"))
    if lines[first].startswith("#pragma once"):
        first += 1
    return "\n".join([*lines[:first], f'#include "{header}"', *lines[first:]])
