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

    @property
    def limit_class(self) -> str:
        """The class of lines that show its limit."""
        return {Kind.DENSE: "limit-dense", Kind.ONE_BIT: "limit-one-bit", Kind.FOUR_BITS: "limit-four-bits"}[self]


@dataclasses.dataclass(frozen=True)
class System:
    """A row's system. `name` is that of the files, `label` that of texts."""

    name: str
    label: str
    kind: Kind
    marker: str  # shape of its points, so that nobody needs to tell colours apart


SYSTEMS = (
    System("openmpi", "Open MPI", Kind.DENSE, "circle"),
    System("openmpi-ring", "Open MPI ring", Kind.DENSE, "hollow-circle"),
    System("mpich", "MPICH", Kind.DENSE, "triangle"),
    System("gloo", "Gloo", Kind.DENSE, "square"),
    System("multipass", "multi-pass 1-bit", Kind.ONE_BIT, "cross"),
    System("onebit-dense", "onebit dense", Kind.DENSE, "hollow-diamond"),
    System("onebit-ef", "onebit 1-bit", Kind.ONE_BIT, "diamond"),
    System("onebit-fp4", "onebit fp4", Kind.FOUR_BITS, "hollow-triangle"),
)
BY_NAME = {system.name: system for system in SYSTEMS}
DENSE = tuple(system for system in SYSTEMS if system.kind is Kind.DENSE)
GLOO = BY_NAME["gloo"]
ONEBIT_DENSE = BY_NAME["onebit-dense"]
ONEBIT_EF = BY_NAME["onebit-ef"]
