# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Whether compressed optimizers learn what dense ones do, and what they send for it."""
