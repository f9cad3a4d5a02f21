#include "accumulate.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "extent.hpp"
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

// What is announced is this much further on: the fewer the places that are looked at in turns, the sooner it is needed.
template <std::size_t places>
constexpr std::int64_t ahead = (places == 1 ? 4 : 2) * word;

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

// Vectors of numbers: `reaching` has a bit for each of 32 from `at` on whose |value|, as a key, reaches `least`.
template <class T>
struct Lanes;

template <>
struct Lanes<float> {
    using Vec = __m256;
    SPARDL_AVX2 static inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
    SPARDL_AVX2 static inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
    SPARDL_AVX2 static inline void stream(float* p, Vec a) { _mm256_stream_ps(p, a); }

    template <class Elements>
    SPARDL_AVX2 static inline std::uint32_t reaching(const Elements& elements, std::int64_t at, std::uint32_t least) {
        __m256i is[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) is[v] = reaches(elements.vector(at + 8 * v), least);
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(is[0], is[1]), _mm256_packs_epi32(is[2], is[3]));
        // Packing goes by halves of a register: four bytes of each vector's first half, then of its second.
        const __m256i in_order = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        return static_cast<std::uint32_t>(_mm256_movemask_epi8(in_order));
    }

 private:
    SPARDL_AVX2 static inline __m256i reaches(Vec a, std::uint32_t least) {
        const __m256i key = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
        return _mm256_cmpgt_epi32(key, _mm256_set1_epi32(static_cast<std::int32_t>(least) - 1));
    }
};

template <>
struct Lanes<double> {
    using Vec = __m256d;
    SPARDL_AVX2 static inline Vec load(const double* p) { return _mm256_loadu_pd(p); }
    SPARDL_AVX2 static inline Vec add(Vec a, Vec b) { return _mm256_add_pd(a, b); }
    SPARDL_AVX2 static inline void stream(double* p, Vec a) { _mm256_stream_pd(p, a); }

    template <class Elements>
    SPARDL_AVX2 static inline std::uint32_t reaching(const Elements& elements, std::int64_t at, std::uint64_t least) {
        std::uint32_t mask = 0;
#pragma GCC unroll 8
        for (int v = 0; v < 32; v += 4) mask |= reaches(elements.vector(at + v), least) << v;
        return mask;
    }

 private:
    SPARDL_AVX2 static inline std::uint32_t reaches(Vec a, std::uint64_t least) {
        const __m256i key =
            _mm256_and_si256(_mm256_castpd_si256(a), _mm256_set1_epi64x(std::numeric_limits<std::int64_t>::max()));
        const __m256i is = _mm256_cmpgt_epi64(key, _mm256_set1_epi64x(static_cast<std::int64_t>(least) - 1));
        return static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(is)));
    }
};

#endif

template <class Elements>
using KeyIn = Key<typename Elements::Value>;

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

// The arithmetic on up to 64 elements from `at` on, or on whole words, each so far from the one before. They get a bit
// for each |value| that, as a key, reaches `least`. What is not finite does whatever that is, so that nobody else has
// to look for it.
struct Portable {
    template <class Elements>
    static std::uint64_t look(const Elements& elements, std::int64_t at, std::int64_t size, KeyIn<Elements> least) {
        std::uint64_t mask = 0;
        for (std::int64_t i = 0; i < size; ++i) {
            mask |= static_cast<std::uint64_t>(magnitude(elements(at + i)) >= least) << i;
        }
        return mask;
    }

    template <class Elements, std::size_t places>
    static void look_everywhere(const Elements& elements, std::int64_t at, std::int64_t apart, KeyIn<Elements> least,
                                std::array<std::uint64_t, places>& masks) {
        for (std::uint64_t& mask : masks) {
            mask = look(elements, at, word, least);
            at += apart;
        }
    }
};

#if SPARDL_X86

struct Avx2 {
    template <class Elements, std::size_t places>
    SPARDL_AVX2 static inline void look_everywhere(const Elements& elements, std::int64_t at, std::int64_t apart,
                                                   KeyIn<Elements> least, std::array<std::uint64_t, places>& masks) {
        using L = Lanes<typename Elements::Value>;
        constexpr int half = word / 2;  // so much of every word in turn
        masks = {};
#pragma GCC unroll 2
        for (int begin = 0; begin < word; begin += half) {
#pragma GCC unroll 4
            for (std::size_t place = 0; place < places; ++place) {
                const std::int64_t here = at + static_cast<std::int64_t>(place) * apart + begin;
                masks[place] |= std::uint64_t{L::reaching(elements, here, least)} << begin;
            }
        }
    }
};

#endif

// One pass over elements lo..hi of something. What has index i here has `base` + i for those who ask. Goes on in
// several places in turns, far from each other, whose candidates go to a sink each.
template <class Level, std::size_t places, class I, class Elements>
struct Pass {
    using T = typename Elements::Value;
    using Sinks = std::array<Sink<T, I>, places>;
    Elements elements;
    KeyIn<Elements> least;
    std::int64_t base;

    SPARDL_INLINE void go(std::int64_t lo, std::int64_t hi, Sinks& result) const {
        Sinks sinks = result;  // again a copy, for the same reason as below
        const std::int64_t begin = std::min(hi, lo + elements.unaligned_from(lo));
        const std::int64_t apart = (hi - begin) / static_cast<std::int64_t>(places) / word * word;
        some(lo, begin, sinks.front());
        std::array<Due, places> due;
        for (std::size_t place = 0; place < places; ++place) {
            const std::int64_t first = nth(begin, apart, place);
            due[place] = elements.corrections_of(first, first + apart);
        }
        for (std::int64_t at = begin; at < begin + apart; at += word) everywhere(at, apart, due, sinks);
        for (std::int64_t at = begin + static_cast<std::int64_t>(places) * apart; at < hi; at += word) {
            some(at, std::min(at + word, hi), sinks.back());
        }
        result = sinks;
    }

 private:
    SPARDL_INLINE void some(std::int64_t lo, std::int64_t hi, Sink<T, I>& sink) const {
        Due due = elements.corrections_of(lo, hi);
        elements.correct(due, hi);
        sink.take_singly(Portable::look(elements, lo, hi - lo, least), lo, index_of(), value_of());
    }

    SPARDL_INLINE void everywhere(std::int64_t at, std::int64_t apart, std::array<Due, places>& due,
                                  Sinks& sinks) const {
        std::array<std::uint64_t, places> masks;
        for (std::size_t place = 0; place < places; ++place) {
            const std::int64_t here = nth(at, apart, place);
            elements.announce_word(here + ahead<places>);
            // Also those of the next word: a vector that is loaded right behind a store to some of it has to wait.
            elements.correct(due[place], here + 2 * word);
        }
        Level::look_everywhere(elements, at, apart, least, masks);
        for (std::size_t place = 0; place < places; ++place) {
            sinks[place].take(masks[place], nth(at, apart, place), index_of(), value_of());
        }
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

// The body above is inlined into a function that may use AVX2 and friends, so its bit counting is compiled with it. It
// gets a copy, which nothing that is written can be part of: that stays in registers.
#if SPARDL_X86
template <std::size_t places, class I, class Elements, class T>
SPARDL_AVX2 void go_avx2(const Pass<Avx2, places, I, Elements> pass, std::int64_t lo, std::int64_t hi,
                         std::array<Sink<T, I>, places>& sinks) {
    pass.go(lo, hi, sinks);
    _mm_sfence();  // streaming stores are weakly ordered
}
#endif

template <std::size_t places, class I, class Elements, class T>
std::int64_t find(const Elements& elements, std::int64_t lo, std::int64_t hi, std::int64_t base, KeyIn<Elements> least,
                  const Sink<T, I>& sink) {
    constexpr auto others = static_cast<std::int64_t>(places) - 1;
    const std::int64_t room = sink.room;
    const Scratch<I> more_indices(others * room);
    const Scratch<T> more_values(others * room);
    std::array<Sink<T, I>, places> sinks;
    sinks.front() = sink;
    for (std::int64_t i = 0; i < others; ++i) {
        sinks[static_cast<std::size_t>(i) + 1] = {more_indices.data() + i * room, more_values.data() + i * room, room};
    }
#if SPARDL_X86
    if (use_avx2()) {
        go_avx2(Pass<Avx2, places, I, Elements>{elements, least, base}, lo, hi, sinks);
    } else
#endif
    {
        Pass<Portable, places, I, Elements>{elements, least, base}.go(lo, hi, sinks);
    }
    for (std::size_t place = 1; place < places; ++place) sinks.front().append(sinks[place]);
    return sinks.front().count;
}

template <class I, class Elements, class T>
std::int64_t search(const Elements& elements, std::int64_t lo, std::int64_t hi, std::int64_t base, T floor, I* indices,
                    T* values, std::int64_t room) {
    const Sink<T, I> sink{indices, values, room};
    // On some processors every page is a new start for their own prefetching, and while that stands at such a place in
    // one place it goes on in the others. On others more places are only more to keep track of.
    return reads_in_turns() ? find<4>(elements, lo, hi, base, magnitude(floor), sink)
                            : find<1>(elements, lo, hi, base, magnitude(floor), sink);
}

}  // namespace

template <class T, class I>
Found accumulate_range(const T* grad, T* residual, const Corrections<T, I>& corrections, T* out, std::int64_t lo,
                       std::int64_t hi, T floor, I* indices, T* values, std::int64_t room) {
    const Sums<T, I> sums{grad, residual, corrections, out};
    Found found{search(sums, lo, hi, 0, floor, indices, values, room), -1};
    const bool suspicious = found.count > room || extent(values, found.count).largest >= KeyOf<T>::infinity;
    for (std::int64_t i = lo; suspicious && found.bad < 0 && i < hi; ++i) {
        if (!is_finite(sums.settled(i))) found.bad = i;
    }
    return found;
}

template <class T, class I>
std::int64_t collect_range(const T* dense, std::int64_t size, std::int64_t base, T floor, I* indices, T* values,
                           std::int64_t room) {
    return search(Dense<T>{dense}, 0, size, base, floor, indices, values, room);
}

#define SPARDL_INSTANTIATE(T, I)                                                                                     \
    template Found accumulate_range<T, I>(const T*, T*, const Corrections<T, I>&, T*, std::int64_t, std::int64_t, T, \
                                          I*, T*, std::int64_t);                                                     \
    template std::int64_t collect_range<T, I>(const T*, std::int64_t, std::int64_t, T, I*, T*, std::int64_t);
SPARDL_INSTANTIATE(float, std::int32_t)
SPARDL_INSTANTIATE(float, std::int64_t)
SPARDL_INSTANTIATE(double, std::int32_t)
SPARDL_INSTANTIATE(double, std::int64_t)

}  // namespace spardl
