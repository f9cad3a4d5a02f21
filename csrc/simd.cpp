#include "simd.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace spardl {

bool use_avx2() {
#if SPARDL_X86
    static const bool answer = [] {
        const char* wish = std::getenv("SPARDL_SIMD");
        if (wish != nullptr && std::string(wish) == "portable") return false;
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    }();
    return answer;
#else
    return false;
#endif
}

bool reads_in_turns() {
    const char* wish = std::getenv("SPARDL_PLACES");
    if (wish != nullptr && (*wish == '1' || *wish == '4')) return *wish == '4';
#if SPARDL_X86
    if (__builtin_cpu_is("amd")) return false;
#endif
    return true;
}

int thread_limit() {
    const char* text = std::getenv("OMP_NUM_THREADS");
    return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

}  // namespace spardl
