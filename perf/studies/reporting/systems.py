# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The systems that perf/compare measures, in the order in which a report lists them."""

import dataclasses
import enum


class Kind(enum.Enum):
    """What a system sends, which decides the limit it is held against."""

    DENSE = "full precision"
    ONE_BIT = "one bit"
    FOUR_BITS = "four bits"


@dataclasses.dataclass(frozen=True)
class System:
    """A row's system. `name` is that of the files, `label` that of texts."""

    name: str
    label: str
    kind: Kind


SYSTEMS = (
    System("openmpi", "Open MPI", Kind.DENSE),
    System("openmpi-ring", "Open MPI ring", Kind.DENSE),
    System("mpich", "MPICH", Kind.DENSE),
    System("gloo", "Gloo", Kind.DENSE),
    System("multipass", "multi-pass 1-bit", Kind.ONE_BIT),
    System("onebit-dense", "onebit dense", Kind.DENSE),
    System("onebit-ef", "onebit 1-bit", Kind.ONE_BIT),
    System("onebit-fp4", "onebit fp4", Kind.FOUR_BITS),
)
BY_NAME = {system.name: system for system in SYSTEMS}
DENSE = tuple(system for system in SYSTEMS if system.kind is Kind.DENSE)
GLOO = BY_NAME["gloo"]
ONEBIT_DENSE = BY_NAME["onebit-dense"]
ONEBIT_EF = BY_NAME["onebit-ef"]
