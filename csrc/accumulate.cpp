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

// Elements are looked at in words: 64, each of which leaves a bit; then those whose bits are set are taken.
constexpr std::int64_t word = 64;

// Words that are looked at in turns, far from each other: every page is a new start for the processor's own
// prefetching, and while that stands at such a place in one of them it goes on in the others.
constexpr std::size_t places = 4;
using Masks = std::array<std::uint64_t, places>;

// What is announced is this much further on.
constexpr std::int64_t ahead = 2 * word;

template <class T, class I>
struct Sink {
    I* indices;
    T* values;
    std::int64_t room;
    std::int64_t count = 0;  // stored or not

    // Takes the elements from `begin` on whose bits are set; index_of and value_of say what they are. All 64 exist.
    template <class IndexOf, class ValueOf>
    SPARDL_INLINE void take(std::uint64_t bits, std::int64_t begin, IndexOf index_of, ValueOf value_of) {
        // Candidates come at random, so a branch for each would be mispredicted. Three are written whether they are
        // there or not: at 1 % a fourth hardly ever is.
        constexpr int regardless = 3;
        std::int64_t n = count;
        if (n + regardless <= room) {
            count += __builtin_popcountll(bits);
            for (int i = 0; i < regardless; ++i, ++n, bits &= bits - 1) {
                const std::int64_t at = begin + __builtin_ctzll(bits | std::uint64_t{1} << (word - 1));
                indices[n] = index_of(at);
                values[n] = value_of(at);
            }
            if (bits == 0) return;
            count = n;
        }
        take_singly(bits, begin, index_of, value_of);
    }

    template <class IndexOf, class ValueOf>
    SPARDL_INLINE void take_singly(std::uint64_t bits, std::int64_t begin, IndexOf index_of, ValueOf value_of) {
        for (; bits != 0; bits &= bits - 1, ++count) {
            if (count >= room) continue;
            const std::int64_t at = begin + __builtin_ctzll(bits);
            indices[count] = index_of(at);
            values[count] = value_of(at);
        }
    }

    // What was found behind all that was found here.
    void append(const Sink& back) {
        const std::int64_t used = std::min(count, room), fits = std::min(back.count, room - used);
        std::copy_n(back.indices, fits, indices + used);
        std::copy_n(back.values, fits, values + used);
        count += back.count;
    }
};

// Has a word's cache lines fetched; beyond the end of an array that does no harm.
template <class T>
SPARDL_INLINE void announce(const T* elements) {
    for (std::size_t byte = 0; byte < word * sizeof(T); byte += 64) {
        __builtin_prefetch(reinterpret_cast<const char*>(elements) + byte);
    }
}

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

#endif

// Which corrections of a stretch have yet to be made.
struct Due {
    std::int64_t next = 0, end = 0;
};

// What is looked at: element i, by itself or in a vector. `settled` does without what is done but once to each.
// Corrections are made before.
template <class T>
struct Dense {
    using Value = T;
    const T* dense;

    Due corrections_of(std::int64_t, std::int64_t) const { return {}; }
    void correct(Due&, std::int64_t) const {}

    T settled(std::int64_t i) const { return dense[i]; }
    T operator()(std::int64_t i) const { return dense[i]; }
    SPARDL_INLINE void announce_word(std::int64_t i) const { announce(dense + i); }
    std::int64_t unaligned_from(std::int64_t) const { return 0; }
#if SPARDL_X86
    SPARDL_AVX2 inline typename Lanes<T>::Vec vector(std::int64_t i) const { return Lanes<T>::load(dense + i); }
#endif
};

// The sums of two arrays, which are also written to a third.
template <class T, class I>
struct Sums {
    using Value = T;
    const T* grad;
    T* residual;
    Corrections<T, I> corrections;
    T* out;

    Due corrections_of(std::int64_t lo, std::int64_t hi) const {
        const I* const begin = corrections.indices;
        const I* const end = begin + corrections.size;
        return {std::lower_bound(begin, end, lo) - begin, std::lower_bound(begin, end, hi) - begin};
    }
    // Makes those that are due of elements before `end`.
    SPARDL_INLINE void correct(Due& due, std::int64_t end) const {
        for (; due.next < due.end && corrections.indices[due.next] < end; ++due.next) {
            residual[corrections.indices[due.next]] = corrections.values[due.next];
        }
    }

    T settled(std::int64_t i) const { return grad[i] + residual[i]; }
    T operator()(std::int64_t i) const { return out[i] = settled(i); }
    SPARDL_INLINE void announce_word(std::int64_t i) const {
        announce(grad + i);
        announce(residual + i);
    }
    // How many elements from i on there are before vectors may be stored.
    std::int64_t unaligned_from(std::int64_t i) const {
        const auto beyond = reinterpret_cast<std::uintptr_t>(out + i) % 64;
        return static_cast<std::int64_t>((64 - beyond) % 64 / sizeof(T));
    }
#if SPARDL_X86
    // The stores bypass the cache: nobody reads `out` before it has long been evicted, and fetching its lines only to
    // overwrite them would cost a third more traffic.
    SPARDL_AVX2 inline typename Lanes<T>::Vec vector(std::int64_t i) const {
        using L = Lanes<T>;
        const auto sum = L::add(L::load(grad + i), L::load(residual + i));
        L::stream(out + i, sum);
        return sum;
    }
#endif
};

// The arithmetic on up to 64 elements from `at` on, or on whole words, each so far from the one before: `masks` gets a
// bit for each |value| >= floor. Returns whether all values are finite.
struct Portable {
    template <class Elements, class T>
    static bool look(const Elements& elements, std::int64_t at, std::int64_t size, T floor, std::uint64_t& mask) {
        bool finite = true;
        mask = 0;
        for (std::int64_t i = 0; i < size; ++i) {
            const T value = elements(at + i);
            mask |= static_cast<std::uint64_t>(std::abs(value) >= floor) << i;
            finite &= is_finite(value);
        }
        return finite;
    }

    template <class Elements, class T>
    static bool look_everywhere(const Elements& elements, std::int64_t at, std::int64_t apart, T floor, Masks& masks) {
        bool finite = true;
        for (std::uint64_t& mask : masks) {
            finite &= look(elements, at, word, floor, mask);
            at += apart;
        }
        return finite;
    }
};

#if SPARDL_X86

struct Avx2 {
    template <class Elements, class T>
    SPARDL_AVX2 static bool look_everywhere(const Elements& elements, std::int64_t at, std::int64_t apart, T floor,
                                            Masks& masks) {
        using L = Lanes<T>;
        const auto floors = L::set(floor), max = L::set(std::numeric_limits<T>::max());
        auto finite = L::at_most(max, max);
        masks = {};
        constexpr int half = word / 2;  // so much of every word in turn
#pragma GCC unroll 2
        for (int begin = 0; begin < word; begin += half) {
#pragma GCC unroll 4
            for (std::size_t place = 0; place < places; ++place) {
                const std::int64_t here = at + static_cast<std::int64_t>(place) * apart;
#pragma GCC unroll 16
                for (int v = begin; v < begin + half; v += L::width) {
                    const auto size = L::abs(elements.vector(here + v));
                    finite = L::both(finite, L::at_most(size, max));
                    masks[place] |= std::uint64_t{L::mask(L::at_most(floors, size))} << v;
                }
            }
        }
        return L::mask(finite) == (1u << L::width) - 1;
    }
};

#endif

// One pass over elements lo..hi of something. What has index i here has `base` + i for those who ask.
template <class Level, class I, class Elements>
struct Pass {
    using T = typename Elements::Value;
    Elements elements;
    T floor;
    std::int64_t base;

    // The candidates of every place go to a sink of its own. Returns whether all values are finite.
    SPARDL_INLINE bool go(std::int64_t lo, std::int64_t hi, std::array<Sink<T, I>, places>& sinks) const {
        const std::int64_t begin = std::min(hi, lo + elements.unaligned_from(lo));
        const std::int64_t apart = (hi - begin) / static_cast<std::int64_t>(places) / word * word;
        bool finite = some(lo, begin, sinks.front());
        std::array<Due, places> due;
        for (std::size_t place = 0; place < places; ++place) {
            const std::int64_t first = nth(begin, apart, place);
            due[place] = elements.corrections_of(first, first + apart);
        }
        for (std::int64_t at = begin; at < begin + apart; at += word) finite &= everywhere(at, apart, due, sinks);
        for (std::int64_t at = begin + static_cast<std::int64_t>(places) * apart; at < hi; at += word) {
            finite &= some(at, std::min(at + word, hi), sinks.back());
        }
        return finite;
    }

 private:
    SPARDL_INLINE bool some(std::int64_t lo, std::int64_t hi, Sink<T, I>& sink) const {
        std::uint64_t mask;
        Due due = elements.corrections_of(lo, hi);
        elements.correct(due, hi);
        const bool finite = Portable::look(elements, lo, hi - lo, floor, mask);
        sink.take_singly(mask, lo, index_of(), value_of());
        return finite;
    }

    SPARDL_INLINE bool everywhere(std::int64_t at, std::int64_t apart, std::array<Due, places>& due,
                                  std::array<Sink<T, I>, places>& sinks) const {
        Masks masks;
        for (std::size_t place = 0; place < places; ++place) {
            const std::int64_t here = nth(at, apart, place);
            elements.announce_word(here + ahead);
            // Also those of the next word: a vector that is loaded right behind a store to some of it has to wait.
            elements.correct(due[place], here + 2 * word);
        }
        const bool finite = Level::look_everywhere(elements, at, apart, floor, masks);
        for (std::size_t place = 0; place < places; ++place) {
            sinks[place].take(masks[place], nth(at, apart, place), index_of(), value_of());
        }
        return finite;
    }

    static std::int64_t nth(std::int64_t at, std::int64_t apart, std::size_t place) {
        return at + static_cast<std::int64_t>(place) * apart;
    }
    auto index_of() const {
        return [offset = base](std::int64_t i) { return static_cast<I>(offset + i); };
    }
    auto value_of() const {
        return [from = elements](std::int64_t i) { return from.settled(i); };
    }
};

// The body above is inlined into a function that may use AVX2 and friends, so its bit counting is compiled with it.
#if SPARDL_X86
template <class I, class Elements, class T>
SPARDL_AVX2 bool go_avx2(const Pass<Avx2, I, Elements>& pass, std::int64_t lo, std::int64_t hi,
                         std::array<Sink<T, I>, places>& sinks) {
    const bool finite = pass.go(lo, hi, sinks);
    _mm_sfence();  // streaming stores are weakly ordered
    return finite;
}
#endif

template <class I, class Elements, class T>
Found search(const Elements& elements, std::int64_t lo, std::int64_t hi, std::int64_t base, T floor, I* indices,
             T* values, std::int64_t room) {
    constexpr auto others = static_cast<std::int64_t>(places) - 1;
    const Scratch<I> more_indices(others * room);
    const Scratch<T> more_values(others * room);
    std::array<Sink<T, I>, places> sinks;
    sinks.front() = {indices, values, room};
    for (std::int64_t i = 0; i < others; ++i) {
        sinks[static_cast<std::size_t>(i) + 1] = {more_indices.data() + i * room, more_values.data() + i * room, room};
    }
    bool finite;
#if SPARDL_X86
    if (use_avx2()) {
        finite = go_avx2(Pass<Avx2, I, Elements>{elements, floor, base}, lo, hi, sinks);
    } else
#endif
    {
        finite = Pass<Portable, I, Elements>{elements, floor, base}.go(lo, hi, sinks);
    }
    for (std::size_t place = 1; place < places; ++place) sinks.front().append(sinks[place]);
    Found found{sinks.front().count, -1};
    for (std::int64_t i = lo; !finite && found.bad < 0 && i < hi; ++i) {
        if (!is_finite(elements.settled(i))) found.bad = i;
    }
    return found;
}

}  // namespace

template <class T, class I>
Found accumulate_range(const T* grad, T* residual, const Corrections<T, I>& corrections, T* out, std::int64_t lo,
                       std::int64_t hi, T floor, I* indices, T* values, std::int64_t room) {
    return search(Sums<T, I>{grad, residual, corrections, out}, lo, hi, 0, floor, indices, values, room);
}

template <class T, class I>
Found collect_range(const T* dense, std::int64_t size, std::int64_t base, T floor, I* indices, T* values,
                    std::int64_t room) {
    return search(Dense<T>{dense}, 0, size, base, floor, indices, values, room);
}

#define SPARDL_INSTANTIATE(T, I)                                                                                     \
    template Found accumulate_range<T, I>(const T*, T*, const Corrections<T, I>&, T*, std::int64_t, std::int64_t, T, \
                                          I*, T*, std::int64_t);                                                     \
    template Found collect_range<T, I>(const T*, std::int64_t, std::int64_t, T, I*, T*, std::int64_t);
SPARDL_INSTANTIATE(float, std::int32_t)
SPARDL_INSTANTIATE(float, std::int64_t)
SPARDL_INSTANTIATE(double, std::int32_t)
SPARDL_INSTANTIATE(double, std::int64_t)

}  // namespace spardl
