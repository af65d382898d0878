# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The hook for models that trainers wrap by themselves, as the variable ONEBIT_TORCH_DDP says.

The module onebit_torch_ddp, which PyTorch imports, calls this one whenever a model is wrapped.
Annotations are evaluated, unlike in most modules, because DDP compares those of a hook with its types.
"""

import atexit
import collections
import datetime
import functools
import os
import sys
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .._errors import Error, InvalidArgument, InvalidUsage
from ._replica import unwrapped
from .ddp import State, compression_of, ddp_hook

_VARIABLE = "ONEBIT_TORCH_DDP"
_TEXTS = ("mode",)
_NUMBERS = ("block", "k", "levels", "dense_iterations")

# DDP's constructor is collective, so that the others are there in no time.
_PATIENCE = datetime.timedelta(seconds=60)

_hooked: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
_without_scaler: weakref.WeakSet[State] = weakref.WeakSet()  # until their first bucket
_wrapped_in: Dict[str, int] = collections.Counter()  # models, by the name of their process group


def options_of(value: str) -> Dict[str, Any]:
    """The options of a State, from "codec" or "codec,option=value,...".

    Raises:
        InvalidArgument: it has another form, or an option that a State does not have as text; or the
            options do not go together.
    """
    codec, *pairs = (part.strip() for part in value.split(","))
    if codec == "" or "=" in codec:
        raise _wrong_value(value, 'it begins with a codec, as in "fp4,dense_iterations=10"')
    options: Dict[str, Any] = {"codec": codec}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or name not in _TEXTS + _NUMBERS:
            names = ", ".join(_TEXTS + _NUMBERS)
            raise _wrong_value(value, f'"{pair}" is not option=value with one of the options {names}')
        if name in options:
            raise _wrong_value(value, f"{name} is given twice")
        if name in _NUMBERS and not text.isdecimal():
            raise _wrong_value(value, f'{name}="{text}" is not a number')
        options[name] = int(text) if name in _NUMBERS else text
    try:
        compression_of(**{name: each for name, each in options.items() if name != "dense_iterations"})
    except ValueError as error:
        raise _wrong_value(value, str(error)) from error
    return options


def register(replica: DistributedDataParallel, value: str, options: Dict[str, Any]) -> None:
    """Gives a model that has just been wrapped the hook, with a State of these options. Collective.

    Raises:
        InvalidUsage: the model has a hook; or other ranks have no such variable, or another value.
        onebit.Error: the ranks could not join; the text says who was missing and where.
    """
    _watch()
    group = replica.process_group
    is_reporter = dist.get_rank() == 0
    if dist.get_world_size(group) == 1:
        if is_reporter:
            _reports.append(_ModelReport(replica, value, None))
        return
    # DDP has no public list of hooks.
    if replica._comm_hooks:  # pylint: disable=protected-access
        raise InvalidUsage(
            f"environment variable {_VARIABLE}: this model already has a hook, which DDP registers "
            "itself for mixed_precision, and takes no second one: unset the variable"
        )
    _compare_values(group, value)
    state = State(replica, **options)
    _without_scaler.add(state)
    replica.register_comm_hook(state, ddp_hook_of_variable)
    _hooked.add(replica)
    if is_reporter:
        _reports.append(_ModelReport(replica, value, state))


def ddp_hook_of_variable(
    state: State, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """ddp_hook, which has found the trainer's gradient scaler before the first bucket."""
    if state in _without_scaler:
        _without_scaler.discard(state)
        # The loss of this backward pass has been scaled by now, if any is. Nothing has been compressed.
        state._grad_scaler = _latest_scaler()  # pylint: disable=protected-access
    return ddp_hook(state, bucket)


def _wrong_value(value: str, text: str) -> InvalidArgument:
    return InvalidArgument(f'environment variable {_VARIABLE}: "{value}": {text}')


def _compare_values(group: dist.ProcessGroup, value: str) -> None:
    """Sees that all ranks of a group have the variable, and alike, before they wait for each other in
    calls that ranks without it do not make. Collective among those that have it."""
    # PyTorch has no public function for it; groups of MPI have none.
    store = dist.distributed_c10d._get_default_store()  # pylint: disable=protected-access
    if store is None:
        return
    name, rank, size = group.group_name, dist.get_rank(group), dist.get_world_size(group)
    _wrapped_in[name] += 1
    prefix = f"{_VARIABLE}/{name}/{_wrapped_in[name]}"
    store.set(f"{prefix}/{rank}", value)
    store.add(f"{prefix}/={value}", 1)
    if store.add(f"{prefix}/ranks", 1) == size:
        store.set(f"{prefix}/all", "")
    try:
        store.wait([f"{prefix}/all"], _PATIENCE)
    except RuntimeError:
        missing = [str(other) for other in range(size) if not store.check([f"{prefix}/{other}"])]
        raise InvalidUsage(
            f"environment variable {_VARIABLE}={value} is set on rank {rank}, but not on rank "
            f"{', '.join(missing)} of this model's process group: set it on all hosts, and install "
            "onebit and PyTorch 2.5 or newer for the Python of each"
        ) from None
    if store.add(f"{prefix}/={value}", 0) != size:
        values = {store.get(f"{prefix}/{other}").decode(): other for other in reversed(range(size))}
        del values[value]
        others = ", ".join(f"{text} on rank {other}" for text, other in values.items())
        raise InvalidUsage(
            f"environment variable {_VARIABLE} differs: {value} on rank {rank}, {others}: set it alike "
            "on all hosts"
        )


# ----------------------------------------------------------------------------------- what trainers do


def _nothing() -> None:
    return None


_latest_scaler: Callable[[], Optional[Any]] = _nothing


@functools.lru_cache(maxsize=None)
def _watch() -> None:
    """Refuses second hooks, and notices gradient scalers."""
    registered = DistributedDataParallel.register_comm_hook
    scale = torch.amp.GradScaler.scale

    @functools.wraps(registered)
    def register_comm_hook(
        self: DistributedDataParallel, state: object, hook: Callable[..., Any]
    ) -> None:
        if self in _hooked:
            raise InvalidUsage(
                f"environment variable {_VARIABLE} has registered onebit's hook for this model, which "
                f"takes no second one ({getattr(hook, '__qualname__', hook)}): unset the variable, or "
                "leave out the trainer's own hook"
            )
        registered(self, state, hook)

    @functools.wraps(scale)
    def noticed_scale(self: Any, outputs: Any) -> Any:
        global _latest_scaler  # pylint: disable=global-statement
        if self.is_enabled():
            _latest_scaler = weakref.ref(self)
        return scale(self, outputs)

    DistributedDataParallel.register_comm_hook = register_comm_hook  # type: ignore[method-assign]
    torch.amp.GradScaler.scale = noticed_scale  # type: ignore[method-assign]


# ------------------------------------------------------------------------------------------- reports


class _ModelReport:
    """What has been done for a model, also once the trainer has dropped it.

    Args:
        state: None if there is nothing to compress.
    """

    def __init__(self, replica: DistributedDataParallel, value: str, state: Optional[State]) -> None:
        self._head = f"{_VARIABLE}={value}, {type(unwrapped(replica)[0]).__name__}:"
        self._text = "one rank, so there was nothing to send"
        self._process = os.getpid()
        if state is not None:
            # The state lives as long as the model. A program's end is an end of both.
            self._end = weakref.finalize(replica, self._keep, state)

    def _keep(self, state: State) -> None:
        if os.getpid() != self._process:
            return
        try:
            # Averages have ended. Any thread may be the one that collects the model, so that nothing
            # here may wait for another.
            self._text = str(state._report())  # pylint: disable=protected-access
        except Error as error:
            self._text = f"no report: {error}"
        if state.failure is not None:
            self._text += f"\nfailed: {state.failure}"

    def lines(self) -> List[str]:
        if os.getpid() != self._process:
            return []
        if hasattr(self, "_end"):
            self._end()
        return [self._head, *self._text.splitlines()]


_reports: List[_ModelReport] = []  # of rank 0


def _print_reports() -> None:
    lines = [f"onebit: {line}\n" for report in _reports for line in report.lines()]
    sys.stderr.write("".join(lines))
    sys.stderr.flush()


atexit.register(_print_reports)
