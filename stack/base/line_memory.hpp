// Vectors and arrays whose elements share no cache line with any other object. An engine uses such vectors and arrays for the
// data that it reads or writes per message or per round. The heap could place a plain vector or array in the same cache line as
// an object that another thread writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace roci {

/// Allocates whole cache lines, aligned to a cache line.
template <class T>
struct LineAllocator {
    using value_type = T;
    static constexpr size_t kLine = 64;
    static_assert(alignof(T) <= kLine);

    LineAllocator() = default;
    template <class U>
    LineAllocator(const LineAllocator<U>&) noexcept {}

    T* allocate(size_t n) {
        if (n > (SIZE_MAX - kLine) / sizeof(T)) throw std::bad_array_new_length();
        const size_t lines = (n * sizeof(T) + kLine - 1) / kLine;
        return static_cast<T*>(operator new (lines* kLine, std::align_val_t{kLine}));
    }
    void deallocate(T* p, size_t) noexcept { operator delete (p, std::align_val_t{kLine}); }
    friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
};

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

/// Frees an array of make_line_array(). LineArray owns such an array; the owner stores the size of the array elsewhere.
template <class T>
struct FreeLines {
    static_assert(std::is_trivially_destructible_v<T>);
    void operator()(T* p) const noexcept { LineAllocator<T>().deallocate(p, 0); }
};
template <class T>
using LineArray = std::unique_ptr<T[], FreeLines<T>>;

/// Returns an array of `n` value-initialised elements.
template <class T>
LineArray<T> make_line_array(size_t n) {
    T* p = LineAllocator<T>().allocate(n);
    std::uninitialized_value_construct_n(p, n);
    return LineArray<T>(p);
}

}  // namespace roci
