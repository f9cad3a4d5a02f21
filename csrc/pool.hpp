// Memory that is used again. A fresh page from the operating system costs more time than filling it, and malloc hands
// out fresh pages for every array above 128 KiB; kernel results are mostly that large and short-lived.
#pragma once

#include <cstddef>
#include <utility>

namespace spardl {

// At least `bytes`, aligned to a cache line, from the pool or from malloc. Thread-safe.
void* take_block(std::size_t bytes);
// Gives a block back; the pool keeps a bounded number of bytes and frees the rest.
void give_block(void* block);

// An array for the duration of a scope; its contents start undefined.
template <class T>
class Scratch {
 public:
    explicit Scratch(std::ptrdiff_t size)
        : data_(static_cast<T*>(take_block(static_cast<std::size_t>(size) * sizeof(T)))) {}
    ~Scratch() { give_block(data_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    T* data() const { return data_; }
    T& operator[](std::ptrdiff_t i) const { return data_[i]; }

 private:
    T* data_;
};

}  // namespace spardl
