// The functions that a compiler calls with -fsanitize=thread (the interface of ThreadSanitizer's run time, which is not linked).
// Accesses to the shared memory of a program go to the explorer. All other accesses are executed as usual.
#include <cstring>

#include "explorer.hpp"

using namespace roci::weak;

namespace {

template <class T>
T load(const volatile T* at, int order) {
    auto* address = const_cast<const T*>(at);
    if (!examines(address)) return __atomic_load_n(at, __ATOMIC_SEQ_CST);
    return T(atomic_load({Kind::load, order, reinterpret_cast<uintptr_t>(address), sizeof(T)}));
}

template <class T>
void store(volatile T* at, T value, int order) {
    auto* address = const_cast<T*>(at);
    if (!examines(address)) return __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
    atomic_store({Kind::store, order, reinterpret_cast<uintptr_t>(address), sizeof(T)}, value);
}

/// Reads the old value and stores change(old), as one atomic operation. Returns the old value.
template <class T, class Change>
T update(volatile T* at, int order, Change change) {
    auto* address = const_cast<T*>(at);
    if (examines(address))
        return T(atomic_update(
            {Kind::update, order, reinterpret_cast<uintptr_t>(address), sizeof(T)},
            [&](uint64_t old) { return std::optional<uint64_t>(T(change(T(old)))); }, order));
    T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &old, T(change(old)), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    return old;
}

template <class T>
int exchange_if(volatile T* at, T* expected, T wanted, int order, int order_of_failure) {
    auto* address = const_cast<T*>(at);
    if (!examines(address)) return __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    const T old = T(atomic_update(
        {Kind::update, order, reinterpret_cast<uintptr_t>(address), sizeof(T)},
        [&](uint64_t now) { return T(now) == *expected ? std::optional<uint64_t>(wanted) : std::nullopt; }, order_of_failure));
    if (old == *expected) return 1;
    *expected = old;
    return 0;
}

void plain(const void* address, size_t size, bool writes) {
    if (size != 0) plain_access(address, size, writes);
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier)
// gcc calls the compare_exchange functions that return whether they have stored. clang calls the one that returns the old value.
#define ROCI_ATOMICS(bits, T)                                                                             \
    T __tsan_atomic##bits##_load(const volatile T* a, int order) { return load(a, order); }               \
    void __tsan_atomic##bits##_store(volatile T* a, T v, int order) { store(a, v, order); }               \
    T __tsan_atomic##bits##_exchange(volatile T* a, T v, int order) {                                     \
        return update(a, order, [=](T) { return v; });                                                    \
    }                                                                                                     \
    T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int order) {                                    \
        return update(a, order, [=](T old) { return T(old + v); });                                       \
    }                                                                                                     \
    T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int order) {                                    \
        return update(a, order, [=](T old) { return T(old - v); });                                       \
    }                                                                                                     \
    T __tsan_atomic##bits##_fetch_or(volatile T* a, T v, int order) {                                     \
        return update(a, order, [=](T old) { return T(old | v); });                                       \
    }                                                                                                     \
    T __tsan_atomic##bits##_fetch_and(volatile T* a, T v, int order) {                                    \
        return update(a, order, [=](T old) { return T(old & v); });                                       \
    }                                                                                                     \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* e, T v, int order, int failure) { \
        return exchange_if(a, e, v, order, failure);                                                      \
    }                                                                                                     \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* e, T v, int order, int failure) {   \
        return exchange_if(a, e, v, order, failure);                                                      \
    }                                                                                                     \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T* a, T e, T v, int order, int failure) {       \
        exchange_if(a, &e, v, order, failure);                                                            \
        return e;                                                                                         \
    }

#define ROCI_PLAIN(size)                                                 \
    void __tsan_read##size(void* a) { plain(a, size, false); }           \
    void __tsan_write##size(void* a) { plain(a, size, true); }           \
    void __tsan_unaligned_read##size(void* a) { plain(a, size, false); } \
    void __tsan_unaligned_write##size(void* a) { plain(a, size, true); }

extern "C" {
ROCI_ATOMICS(8, uint8_t)
ROCI_ATOMICS(16, uint16_t)
ROCI_ATOMICS(32, uint32_t)
ROCI_ATOMICS(64, uint64_t)
ROCI_PLAIN(1)
ROCI_PLAIN(2)
ROCI_PLAIN(4)
ROCI_PLAIN(8)
ROCI_PLAIN(16)
void __tsan_atomic_thread_fence(int order) { atomic_fence(order); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void* a, size_t n) { plain(a, n, false); }
void __tsan_write_range(void* a, size_t n) { plain(a, n, true); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// gcc leaves memcpy() as it is (the linker redirects it by --wrap), clang calls __tsan_memcpy().
void* __real_memcpy(void* to, const void* from, size_t n);
void* __wrap_memcpy(void* to, const void* from, size_t n) {
    plain(from, n, false);
    plain(to, n, true);
    return __real_memcpy(to, from, n);
}
void* __tsan_memcpy(void* to, const void* from, size_t n) { return __wrap_memcpy(to, from, n); }
void* __tsan_memset(void* to, int value, size_t n) {
    plain(to, n, true);
    return memset(to, value, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
    plain(from, n, false);
    plain(to, n, true);
    return memmove(to, from, n);
}
}
// NOLINTEND(bugprone-reserved-identifier)
