# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A study of a GPT under PyTorch's DistributedDataParallel: what it learns, sends and waits for."""
