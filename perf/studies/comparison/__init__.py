# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sweeps of several systems' allreduce, over shared memory and the lab's links: perf/compare."""
