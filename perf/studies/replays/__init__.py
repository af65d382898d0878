# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Published results, and their re-enactment in the lab; perf/replay is its command."""
