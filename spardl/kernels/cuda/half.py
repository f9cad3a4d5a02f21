"""Values in 16 bits, as ``spardl.kernels.half`` has them on the host: the same bits, by integer arithmetic."""

from typing import Any

from spardl.kernels.cuda.jit import cuda, kernel


@kernel("VvF")
def to_single(values: Any, largest: Any, out: Any) -> None:
    """As float32, at most so large."""
    at = cuda.grid(1)
    if at < len(values):
        out[at] = min(max(values[at], -largest), largest)


@kernel("FV")
def from_single(single: Any, out: Any) -> None:
    at = cuda.grid(1)
    if at < len(single):
        out[at] = single[at]


@kernel("MH")
def narrow_to_bf16(bits: Any, codes: Any) -> None:
    at = cuda.grid(1)
    if at < len(bits):
        word = int(bits[at])
        codes[at] = (word + 0x7FFF + ((word >> 16) & 1)) >> 16


@kernel("HM")
def widen_from_bf16(codes: Any, bits: Any) -> None:
    at = cuda.grid(1)
    if at < len(codes):
        bits[at] = int(codes[at]) << 16


@kernel("MH")
def narrow_to_fp16(bits: Any, codes: Any) -> None:
    at = cuda.grid(1)
    if at < len(bits):
        word = int(bits[at])
        magnitude = word & 0x7FFFFFFF
        if magnitude >= 0x38800000:  # 2**-14: from here on both have an implicit leading one
            code = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13
        elif magnitude < 0x33000000:  # less than half of the smallest
            code = 0
        else:  # a multiple of 2**-24
            mantissa = (magnitude & 0x7FFFFF) | 0x800000
            shift = 126 - (magnitude >> 23)
            code = mantissa >> shift
            rest, half = mantissa & ((1 << shift) - 1), 1 << (shift - 1)
            if rest > half or (rest == half and code & 1):
                code += 1
        codes[at] = ((word >> 16) & 0x8000) | code


@kernel("HM")
def widen_from_fp16(codes: Any, bits: Any) -> None:
    at = cuda.grid(1)
    if at < len(codes):
        code = int(codes[at])
        exponent, mantissa = (code >> 10) & 31, code & 0x3FF
        if exponent == 0 and mantissa != 0:  # float32 has a leading one here
            exponent = 1
            while mantissa & 0x400 == 0:
                mantissa <<= 1
                exponent -= 1
            mantissa &= 0x3FF
            exponent += 112
        elif exponent != 0:
            exponent += 112
        bits[at] = ((code & 0x8000) << 16) | (exponent << 23) | (mantissa << 13)
