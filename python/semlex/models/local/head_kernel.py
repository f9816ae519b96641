"""A GPU kernel that normalises and rotates attention heads in one pass over memory; torch's operations need six."""

# It uses triton, which comes with torch on Linux, and is compiled at its first call.

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _norm_and_rotate(states, weight, cos, sin, epsilon, stride, HEADS: tl.constexpr, HALF: tl.constexpr):  # noqa: ANN001, ANN202, N803, PLR0917 (as triton reads it)
    token = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, HALF)[None, :]
    into_first = states + (token * HEADS + tl.arange(0, HEADS)[:, None]) * (2 * HALF) + places
    first = tl.load(into_first).to(tl.float32)
    second = tl.load(into_first + HALF).to(tl.float32)
    squares = tl.sum(first * first + second * second, axis=1)
    scale = tl.rsqrt(squares / (2 * HALF) + epsilon)[:, None]
    first *= scale * tl.load(weight + places).to(tl.float32)
    second *= scale * tl.load(weight + HALF + places).to(tl.float32)
    cosine = tl.load(cos + token * stride + places).to(tl.float32)
    sine = tl.load(sin + token * stride + places).to(tl.float32)
    tl.store(into_first, first * cosine - second * sine)
    tl.store(into_first + HALF, second * cosine + first * sine)


def norm_and_rotate(states: Any, norm: Any, cos: Any, sin: Any) -> Any:
    """Normalise and rotate (tokens, heads, size) in place by angles (tokens, 1, size / 2); heads, size: powers of 2."""
    tokens, heads, size = states.shape
    _norm_and_rotate[tokens,](
        states, norm.weight, cos, sin, norm.variance_epsilon, cos.stride(0), HEADS=heads, HALF=size // 2
    )
    return states
