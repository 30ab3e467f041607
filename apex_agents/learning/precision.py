"""The floating-point precision that this machine computes in."""

import functools
import pathlib

import tensorflow as tf


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
