# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How ranks are spread over hosts."""

import dataclasses


@dataclasses.dataclass(frozen=True, order=True)
class Layout:
    """Equally many ranks on every host. On shared memory every process counts as a host."""

    ranks_per_host: int
    hosts: int

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    @property
    def text(self) -> str:
        if self.ranks_per_host == 1:
            return f"{self.hosts} hosts"
        return f"{self.hosts} hosts x {self.ranks_per_host} ranks"
