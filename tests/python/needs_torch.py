# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch for a test, which is skipped where there is none."""

import sys

try:
    import torch
except ImportError:
    print("PyTorch (python3-torch) not found")
    sys.exit(77)

__all__ = ["torch"]
