"""The floating-point precision of networks: that of this machine, and that of a thread.

Sonnet's mixed precision is a mode of the whole process: while the learner traces its update, a
network that another thread makes or calls would be cast, too. Here it is a mode of the thread.
"""

import contextlib
import functools
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import sonnet as snt
import tensorflow as tf

_modes = threading.local()


def compute_dtype(bfloat16: bool) -> tf.DType:
    """Return bfloat16 if it is asked for and the CPU computes in it, float32 otherwise."""
    return tf.bfloat16 if bfloat16 and cpu_has_bfloat16() else tf.float32


@functools.cache
def cpu_has_bfloat16() -> bool:
    """Return whether the CPU multiplies bfloat16 numbers (AVX-512 BF16 or AMX)."""
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:  # Only Linux has this file.
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


@contextlib.contextmanager
def computing_in(dtype: tf.DType) -> Iterator[None]:
    """Let methods with `mixed_precision` compute in a dtype within the context, in this thread."""
    before = _thread_dtype()
    _modes.dtype = dtype
    try:
        yield
    finally:
        _modes.dtype = before


def mixed_precision(method: Callable[[Any, tf.Tensor], tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Decorate a method of a module, from features to features, that may run in `computing_in`.

    There it reads its input, unless that is of integers, and the variables of the module and its
    submodules as tensors of that dtype; it gives out float32. Variables stay what they are, and
    have to exist already.
    """

    @functools.wraps(method)
    def wrapped(module: snt.Module, features: tf.Tensor) -> tf.Tensor:
        dtype = _thread_dtype()
        if dtype == tf.float32:
            return method(module, features)
        # The getter is installed on `snt.Module`, which all threads share; `instances` limits it to
        # these modules.
        modules = (module, *module.submodules)
        with snt.custom_variable_getter(
            lambda variable: tf.cast(variable, dtype), classes=[snt.Module], instances=modules
        ):
            cast = tf.cast(features, dtype) if features.dtype.is_floating else features
            return tf.cast(method(module, cast), tf.float32)

    return wrapped


def _thread_dtype() -> tf.DType:
    return getattr(_modes, "dtype", tf.float32)
