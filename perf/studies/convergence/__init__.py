# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A study of whether compressed optimizers learn as dense ones do, and of what they send."""
