// Which vector instructions this process may use: decided once, at run time, so that one build runs everywhere.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SPARDL_X86 1
#define SPARDL_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#else
#define SPARDL_X86 0
#endif

// For bodies that are compiled twice: into functions that may use AVX2, and into those that may not.
#define SPARDL_INLINE inline __attribute__((always_inline))

namespace spardl {

// True when AVX2 is there and SPARDL_SIMD does not say "portable".
bool use_avx2();

// Whether long arrays are read faster in several places in turns than from one end to the other: not on AMD's
// processors (a sixth slower on Zen 3), but on Intel's (a sixth faster on Ice Lake). SPARDL_PLACES, 1 or 4, overrules.
bool reads_in_turns();

// How many threads a kernel may use: OMP_NUM_THREADS, and one when it is not set (MPI ranks share the cores).
int thread_limit();

}  // namespace spardl
