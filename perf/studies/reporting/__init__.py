# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What perf/report is made of: from the figures of perf/compare to a page and to tables."""
