#include "accumulate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "magnitude.hpp"
#include "pool.hpp"
#include "simd.hpp"

#if SPARDL_X86
#include <immintrin.h>
#endif

namespace spardl {
namespace {

// Both passes work in stretches that stay in the L1 cache: first the arithmetic, which leaves one bit per element, then
// the places of the set bits, then their values. Candidates come at random, so a branch for each would be mispredicted.
constexpr std::int64_t stretch = 256;
constexpr int word_bits = 64;
using Masks = std::array<std::uint64_t, stretch / word_bits>;

template <class T, class I>
struct Sink {
    I* indices;
    T* values;
    std::int64_t room;
    Found found;

    // Elements begin..begin+size have their bits in `masks`; value_of(i) is element i's value.
    template <class ValueOf>
    SPARDL_INLINE void take(const Masks& masks, std::int64_t begin, std::int64_t size, std::int64_t base,
                            ValueOf value_of) {
        std::int32_t places[stretch + word_bits];
        std::int64_t n = 0;
        for (std::int64_t w = 0; w * word_bits < size; ++w) {
            std::uint64_t bits = masks[static_cast<std::size_t>(w)];
            const std::int64_t end = n + __builtin_popcountll(bits);
            // Three places are written whether they are there or not: at 1 % a fourth hardly ever is.
            const auto first_place = static_cast<std::int32_t>(w * word_bits);
            for (int place = 0; place < 3; ++place, bits &= bits - 1) places[n + place] = first_place + lowest(bits);
            for (n += 3; n < end; ++n, bits &= bits - 1) places[n] = first_place + lowest(bits);
            n = end;
        }
        const std::int64_t fits = std::min(n, std::max<std::int64_t>(0, room - found.count));
        for (std::int64_t c = 0; c < fits; ++c) {
            const std::int64_t at = begin + places[c];
            indices[found.count + c] = static_cast<I>(base + at);
            values[found.count + c] = value_of(at);
        }
        found.count += n;
    }

    // What was found behind all that was found here.
    void append(const Sink& back) {
        const std::int64_t used = std::min(found.count, room), fits = std::min(back.found.count, room - used);
        std::copy_n(back.indices, fits, indices + used);
        std::copy_n(back.values, fits, values + used);
        found.count += back.found.count;
        if (found.bad < 0) found.bad = back.found.bad;
    }

 private:
    static std::int32_t lowest(std::uint64_t bits) { return __builtin_ctzll(bits | std::uint64_t{1} << 63); }
};

// The arithmetic on one stretch, or on two whole ones that lie `apart`: `masks` gets a bit for each |value| >= floor;
// add returns whether all sums are finite.
struct Portable {
    template <class T>
    static bool add(const T* grad, const T* residual, T* out, std::int64_t size, T floor, std::uint64_t* masks) {
        bool finite = true;
        for (std::int64_t begin = 0; begin < size; begin += word_bits) {
            const std::int64_t end = std::min(size, begin + word_bits);
            std::uint64_t mask = 0;
            for (std::int64_t i = begin; i < end; ++i) {
                const T sum = grad[i] + residual[i];
                out[i] = sum;
                mask |= static_cast<std::uint64_t>(std::abs(sum) >= floor) << (i - begin);
                finite &= is_finite(sum);
            }
            *masks++ = mask;
        }
        return finite;
    }

    template <class T>
    static bool add_both(const T* grad, const T* residual, T* out, std::int64_t apart, T floor,
                         std::array<Masks, 2>& masks) {
        const bool first = add(grad, residual, out, stretch, floor, masks[0].data());
        return add(grad + apart, residual + apart, out + apart, stretch, floor, masks[1].data()) && first;
    }

    template <class T>
    static void compare(const T* dense, std::int64_t size, T floor, std::uint64_t* masks) {
        for (std::int64_t begin = 0; begin < size; begin += word_bits) {
            const std::int64_t end = std::min(size, begin + word_bits);
            std::uint64_t mask = 0;
            for (std::int64_t i = begin; i < end; ++i) {
                mask |= static_cast<std::uint64_t>(std::abs(dense[i]) >= floor) << (i - begin);
            }
            *masks++ = mask;
        }
    }
};

#if SPARDL_X86

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
    using Vec = __m256;
    static constexpr int width = 8;
    SPARDL_AVX2 static inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
    SPARDL_AVX2 static inline Vec set(float x) { return _mm256_set1_ps(x); }
    SPARDL_AVX2 static inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
    SPARDL_AVX2 static inline void stream(float* p, Vec a) { _mm256_stream_ps(p, a); }
    SPARDL_AVX2 static inline Vec abs(Vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
    SPARDL_AVX2 static inline Vec both(Vec a, Vec b) { return _mm256_and_ps(a, b); }
    SPARDL_AVX2 static inline Vec at_most(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
    SPARDL_AVX2 static inline std::uint32_t mask(Vec a) { return static_cast<std::uint32_t>(_mm256_movemask_ps(a)); }
};

template <>
struct Lanes<double> {
    using Vec = __m256d;
    static constexpr int width = 4;
    SPARDL_AVX2 static inline Vec load(const double* p) { return _mm256_loadu_pd(p); }
    SPARDL_AVX2 static inline Vec set(double x) { return _mm256_set1_pd(x); }
    SPARDL_AVX2 static inline Vec add(Vec a, Vec b) { return _mm256_add_pd(a, b); }
    SPARDL_AVX2 static inline void stream(double* p, Vec a) { _mm256_stream_pd(p, a); }
    SPARDL_AVX2 static inline Vec abs(Vec a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
    SPARDL_AVX2 static inline Vec both(Vec a, Vec b) { return _mm256_and_pd(a, b); }
    SPARDL_AVX2 static inline Vec at_most(Vec a, Vec b) { return _mm256_cmp_pd(a, b, _CMP_LE_OQ); }
    SPARDL_AVX2 static inline std::uint32_t mask(Vec a) { return static_cast<std::uint32_t>(_mm256_movemask_pd(a)); }
};

struct Avx2 {
    // The short stretches that are not aligned are left to the portable code, as is the end.
    template <class T>
    SPARDL_AVX2 static bool add(const T* grad, const T* residual, T* out, std::int64_t size, T floor,
                                std::uint64_t* masks) {
        const bool aligned = reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
        const std::int64_t whole = aligned ? size / word_bits * word_bits : 0;
        Limits<T> limits(floor);
        for (std::int64_t begin = 0; begin < whole; begin += word_bits) {
            *masks++ = add_word(grad + begin, residual + begin, out + begin, limits);
        }
        const bool rest = Portable::add(grad + whole, residual + whole, out + whole, size - whole, floor, masks);
        return limits.all_finite() && rest;
    }

    template <class T>
    SPARDL_AVX2 static bool add_both(const T* grad, const T* residual, T* out, std::int64_t apart, T floor,
                                     std::array<Masks, 2>& masks) {
        Limits<T> limits(floor);
        for (std::size_t word = 0; word < masks[0].size(); ++word) {
            masks[0][word] = add_word(grad, residual, out, limits);
            masks[1][word] = add_word(grad + apart, residual + apart, out + apart, limits);
            grad += word_bits;
            residual += word_bits;
            out += word_bits;
        }
        return limits.all_finite();
    }

    template <class T>
    SPARDL_AVX2 static void compare(const T* dense, std::int64_t size, T floor, std::uint64_t* masks) {
        using L = Lanes<T>;
        const std::int64_t whole = size / word_bits * word_bits;
        const auto floors = L::set(floor);
        for (std::int64_t begin = 0; begin < whole; begin += word_bits) {
            std::uint64_t mask = 0;
#pragma GCC unroll 16
            for (int v = 0; v < word_bits; v += L::width) {
                mask |= std::uint64_t{L::mask(L::at_most(floors, L::abs(L::load(dense + begin + v))))} << v;
            }
            *masks++ = mask;
        }
        Portable::compare(dense + whole, size - whole, floor, masks);
    }

 private:
    template <class T>
    struct Limits {
        using L = Lanes<T>;
        typename L::Vec floor, max, finite;
        SPARDL_AVX2 explicit Limits(T least)
            : floor(L::set(least)), max(L::set(std::numeric_limits<T>::max())), finite(L::at_most(max, max)) {}
        SPARDL_AVX2 bool all_finite() const { return L::mask(finite) == (1u << L::width) - 1; }
    };

    // The stores bypass the cache: nobody reads `out` before it has long been evicted, and fetching its lines only to
    // overwrite them would cost a third more traffic. They need alignment.
    template <class T>
    SPARDL_AVX2 static inline std::uint64_t add_word(const T* grad, const T* residual, T* out, Limits<T>& limits) {
        using L = Lanes<T>;
        std::uint64_t mask = 0;
#pragma GCC unroll 16
        for (int v = 0; v < word_bits; v += L::width) {
            const auto sum = L::add(L::load(grad + v), L::load(residual + v));
            L::stream(out + v, sum);
            const auto size_of_sum = L::abs(sum);
            limits.finite = L::both(limits.finite, L::at_most(size_of_sum, limits.max));
            mask |= std::uint64_t{L::mask(L::at_most(limits.floor, size_of_sum))} << v;
        }
        return mask;
    }
};

#endif

// One pass over a block. It goes on in two places at once, the block's first and second half: every page is a new start
// for the processor's own prefetching, and while one stands at such a place the other goes on.
template <class Level, class T, class I>
struct Accumulation {
    const T *grad, *residual;
    T* out;
    T floor;

    // The candidates of what comes behind the first half go to `back`.
    SPARDL_INLINE void pass(std::int64_t lo, std::int64_t hi, Sink<T, I>& front, Sink<T, I>& back) const {
        // The first stretch is cut short so that the others start where streaming stores may.
        const auto misaligned = reinterpret_cast<std::uintptr_t>(out + lo) % 64;
        const auto to_alignment = static_cast<std::int64_t>((64 - misaligned) % 64 / sizeof(T));
        const std::int64_t begin = std::min(hi, lo + to_alignment);
        const std::int64_t half = (hi - begin) / 2 / stretch * stretch;
        one(lo, begin - lo, front);
        for (std::int64_t at = begin; at < begin + half; at += stretch) both(at, at + half, front, back);
        for (std::int64_t at = begin + 2 * half; at < hi; at += stretch) one(at, std::min(stretch, hi - at), back);
    }

 private:
    SPARDL_INLINE void one(std::int64_t begin, std::int64_t size, Sink<T, I>& sink) const {
        Masks masks;
        const bool finite = Level::add(grad + begin, residual + begin, out + begin, size, floor, masks.data());
        take(masks, begin, size, finite, sink);
    }

    SPARDL_INLINE void both(std::int64_t first, std::int64_t second, Sink<T, I>& front, Sink<T, I>& back) const {
        std::array<Masks, 2> masks;
        const bool finite = Level::add_both(grad + first, residual + first, out + first, second - first, floor, masks);
        // While candidates are taken no further element is asked for.
        announce(first + stretch);
        announce(second + stretch);
        take(masks[0], first, stretch, finite, front);
        take(masks[1], second, stretch, finite, back);
    }

    SPARDL_INLINE void take(const Masks& masks, std::int64_t begin, std::int64_t size, bool finite,
                            Sink<T, I>& sink) const {
        const auto sum = [this](std::int64_t i) -> T { return grad[i] + residual[i]; };
        sink.take(masks, begin, size, 0, sum);
        for (std::int64_t i = begin; !finite && sink.found.bad < 0 && i < begin + size; ++i) {
            if (!is_finite(sum(i))) sink.found.bad = i;
        }
    }

    // Has the first few cache lines from there on fetched; beyond the end of an array that does no harm.
    SPARDL_INLINE void announce(std::int64_t next) const {
        for (int line = 0; line < 4; ++line) {
            __builtin_prefetch(reinterpret_cast<const char*>(grad + next) + 64 * line);
            __builtin_prefetch(reinterpret_cast<const char*>(residual + next) + 64 * line);
        }
    }
};

template <class Level, class T, class I>
SPARDL_INLINE Found collect_with(const T* dense, std::int64_t size, std::int64_t base, T floor, Sink<T, I> sink) {
    Masks masks;
    for (std::int64_t begin = 0; begin < size; begin += stretch) {
        const std::int64_t length = std::min(stretch, size - begin);
        Level::compare(dense + begin, length, floor, masks.data());
        sink.take(masks, begin, length, base, [=](std::int64_t i) { return dense[i]; });
    }
    return sink.found;
}

// The bodies above are inlined into functions that may use AVX2 and friends, so their bit counting is compiled with it.
#if SPARDL_X86
template <class T, class I>
SPARDL_AVX2 void accumulate_avx2(const Accumulation<Avx2, T, I>& accumulation, std::int64_t lo, std::int64_t hi,
                                 Sink<T, I>& front, Sink<T, I>& back) {
    accumulation.pass(lo, hi, front, back);
    _mm_sfence();  // streaming stores are weakly ordered
}

template <class T, class I>
SPARDL_AVX2 Found collect_avx2(const T* dense, std::int64_t size, std::int64_t base, T floor, Sink<T, I> sink) {
    return collect_with<Avx2>(dense, size, base, floor, sink);
}
#endif

}  // namespace

template <class T, class I>
Found accumulate_range(const T* grad, const T* residual, T* out, std::int64_t lo, std::int64_t hi, T floor, I* indices,
                       T* values, std::int64_t room) {
    const Scratch<I> back_indices(room);
    const Scratch<T> back_values(room);
    Sink<T, I> front{indices, values, room, {}}, back{back_indices.data(), back_values.data(), room, {}};
#if SPARDL_X86
    if (use_avx2()) {
        accumulate_avx2(Accumulation<Avx2, T, I>{grad, residual, out, floor}, lo, hi, front, back);
    } else
#endif
    {
        Accumulation<Portable, T, I>{grad, residual, out, floor}.pass(lo, hi, front, back);
    }
    front.append(back);
    return front.found;
}

template <class T, class I>
Found collect_range(const T* dense, std::int64_t size, std::int64_t base, T floor, I* indices, T* values,
                    std::int64_t room) {
    const Sink<T, I> sink{indices, values, room, {}};
#if SPARDL_X86
    if (use_avx2()) return collect_avx2(dense, size, base, floor, sink);
#endif
    return collect_with<Portable>(dense, size, base, floor, sink);
}

#define SPARDL_INSTANTIATE(T, I)                                                                         \
    template Found accumulate_range<T, I>(const T*, const T*, T*, std::int64_t, std::int64_t, T, I*, T*, \
                                          std::int64_t);                                                 \
    template Found collect_range<T, I>(const T*, std::int64_t, std::int64_t, T, I*, T*, std::int64_t);
SPARDL_INSTANTIATE(float, std::int32_t)
SPARDL_INSTANTIATE(float, std::int64_t)
SPARDL_INSTANTIATE(double, std::int32_t)
SPARDL_INSTANTIATE(double, std::int64_t)

}  // namespace spardl
