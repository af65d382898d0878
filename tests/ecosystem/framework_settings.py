# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Variables of jobs that train with frameworks, on CPUs and without a network."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "TORCHELASTIC_RUN_ID": "frameworks",  # Lightning then starts no ranks of its own
}
