# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A study of whether AdamW with one-bit momentum can do without a freeze of the variance."""
