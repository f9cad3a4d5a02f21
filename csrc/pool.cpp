#include "pool.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace spardl {
namespace {

constexpr std::size_t line = 64;                          // the block's size class stands in the line before it
constexpr std::size_t most_bytes = std::size_t{1} << 47;  // what a process can address; a negative size is beyond

}  // namespace

#if defined(__SANITIZE_ADDRESS__)

// Blocks of exactly these bytes, which are never used again: so every access beside one is noticed.
void* take_block(std::size_t bytes) {
    void* block = nullptr;
    if (bytes > most_bytes || posix_memalign(&block, line, bytes) != 0) throw std::bad_alloc();
    return block;
}

void give_block(void* block) { std::free(block); }

#else

namespace {

constexpr std::size_t most_kept = std::size_t{64} << 20;  // idle bytes, per process

struct Pool {
    std::mutex mutex;
    std::array<std::vector<void*>, 64> idle;  // by power of two
    std::size_t kept = 0;
};

Pool& pool() {
    static Pool* const the_pool = new Pool;  // never destroyed: arrays may outlive static destructors
    return *the_pool;
}

}  // namespace

void* take_block(std::size_t bytes) {
    if (bytes > most_bytes) throw std::bad_alloc();
    std::size_t size_class = 12;  // nothing smaller than a page
    while ((std::size_t{1} << size_class) < bytes + line) ++size_class;
    Pool& p = pool();
    {
        const std::lock_guard<std::mutex> lock(p.mutex);
        auto& idle = p.idle[size_class];
        if (!idle.empty()) {
            void* const block = idle.back();
            idle.pop_back();
            p.kept -= std::size_t{1} << size_class;
            return block;
        }
    }
    char* const raw = static_cast<char*>(std::aligned_alloc(line, std::size_t{1} << size_class));
    if (raw == nullptr) throw std::bad_alloc();
    *reinterpret_cast<std::size_t*>(raw) = size_class;
    return raw + line;
}

void give_block(void* block) {
    char* const raw = static_cast<char*>(block) - line;
    const std::size_t size_class = *reinterpret_cast<std::size_t*>(raw);
    Pool& p = pool();
    {
        const std::lock_guard<std::mutex> lock(p.mutex);
        if (p.kept + (std::size_t{1} << size_class) <= most_kept) {
            p.idle[size_class].push_back(block);
            p.kept += std::size_t{1} << size_class;
            return;
        }
    }
    std::free(raw);
}

#endif

}  // namespace spardl
