# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed collectives with error feedback, for arrays of NumPy, PyTorch, CuPy and others.

Processes average a tensor, at about one bit per element. Start them with `onebit_run -n 4 python
program.py`, torchrun, mpirun or srun:

    import numpy
    import onebit

    gradient = numpy.random.randn(1000).astype(numpy.float32)
    with onebit.init() as comm:
        compressor = onebit.Compressor(comm, gradient.size)
        comm.all_reduce(gradient, op="avg", compressor=compressor)

The classes follow the C API, whose headers explain everything in detail: a Compressor defines how a
tensor is compressed, and keeps what compression has lost so far in order to send it with later calls.
Errors are exceptions below onebit.Error. Only the library itself is needed: NumPy and others are used
when the caller has them.
"""

import importlib.util
from typing import Optional

# Without this the import below would speak of a circular import.
if importlib.util.find_spec("onebit._native") is None:
    raise ImportError(
        f"{__path__[0]} holds the sources of the package without the files that the build adds: install the "
        "wheel, or build target onebit_python and set PYTHONPATH to bindings/python in the build "
        "folder and ONEBIT_LIBRARY to src/libonebit.so there"
    )

# pylint: disable=wrong-import-position
from ._communicator import Communicator, Config, unique_id
from ._compressor import Compressor
from ._errors import (
    Aborted,
    Corrupt,
    Detached,
    Error,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    Mismatch,
    NotAuthenticated,
    OutOfMemory,
    PeerLost,
    RemoteError,
    SystemError,
    Timeout,
    UnhandledCudaError,
)
from ._groups import group
from ._library import lib, library_path, version_text
from ._native import (
    ONEBIT_VERSION_CODE,
    Algorithm,
    Codec,
    Collective,
    CommStats,
    CompressorStats,
    DataType,
    Memory,
    Mode,
    OptimizerStats,
    RedOp,
    Result,
    ScaleRule,
    SparseValues,
    Stage,
    StateKind,
    StepResult,
    TrustRatio,
)
from ._optimizer import Optimizer, Segment
from ._streams import Stream
from ._sync import Sync

__all__ = [
    "Aborted",
    "Algorithm",
    "Codec",
    "Collective",
    "CommStats",
    "Communicator",
    "Compressor",
    "CompressorStats",
    "Config",
    "Corrupt",
    "DataType",
    "Detached",
    "Error",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "Memory",
    "Mismatch",
    "Mode",
    "NotAuthenticated",
    "Optimizer",
    "OptimizerStats",
    "OutOfMemory",
    "PeerLost",
    "RedOp",
    "RemoteError",
    "Result",
    "ScaleRule",
    "Segment",
    "SparseValues",
    "Stage",
    "StateKind",
    "StepResult",
    "Stream",
    "Sync",
    "SystemError",
    "Timeout",
    "TrustRatio",
    "UnhandledCudaError",
    "group",
    "init",
    "lib",
    "library_path",
    "unique_id",
]


__version__ = version_text(ONEBIT_VERSION_CODE)


def init(config: Optional[Config] = None) -> Communicator:
    """Joins all processes of this job: Communicator.from_environment."""
    return Communicator.from_environment(config)


# Errors and documentation give classes the names by which users import them.
for _public in (
    Communicator,
    Compressor,
    Config,
    Optimizer,
    Segment,
    Stream,
    Sync,
    Error,
    *Error.__subclasses__(),
):
    _public.__module__ = __name__
