# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An Ethernet of several hosts on one Linux machine; perf/lab is its command."""
