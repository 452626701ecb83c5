// The functions that code calls if gcc compiles it with -fsanitize=thread. They replace the runtime of the sanitizer
// and report each access to the model. The hooks of plain loads and stores only report. The code itself then makes
// the access. The hooks of atomics also execute the access. memcpy, memmove, memset and memcmp remain calls of libc
// (-fno-builtin-…). The linker redirects these calls to the wrappers below.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cores.hpp"

using roci::sharing::Access;
using roci::sharing::touch;

#define HERE __builtin_return_address(0)
#define HOOK extern "C" __attribute__((visibility("default")))

// ---- loads and stores -----------------------------------------------------------------------------------------------

#define PLAIN(n)                                                           \
    HOOK void __tsan_read##n(void* p) { touch(p, n, Access::read, HERE); } \
    HOOK void __tsan_write##n(void* p) { touch(p, n, Access::write, HERE); }
#define UNALIGNED(n)                                                                 \
    HOOK void __tsan_unaligned_read##n(void* p) { touch(p, n, Access::read, HERE); } \
    HOOK void __tsan_unaligned_write##n(void* p) { touch(p, n, Access::write, HERE); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)
HOOK void __tsan_read_range(void* p, size_t n) { touch(p, n, Access::read, HERE); }
HOOK void __tsan_write_range(void* p, size_t n) { touch(p, n, Access::write, HERE); }
HOOK void __tsan_vptr_update(void** p, void*) { touch(p, sizeof *p, Access::write, HERE); }
HOOK void __tsan_vptr_read(void** p) { touch(p, sizeof *p, Access::read, HERE); }
HOOK void __tsan_init() {}
HOOK void roci_prefetch(const void* p, int to_write, int) {
    touch(p, 1, to_write != 0 ? Access::prefetch_to_write : Access::prefetch, HERE);
}

// ---- atomics: always seq_cst, which is at least the requested order -----------------------------------------------------

#define UPDATE(n, T, name)                                        \
    HOOK T __tsan_atomic##n##_##name(volatile T* p, T v, int) {   \
        touch(const_cast<T*>(p), sizeof(T), Access::write, HERE); \
        return __atomic_##name(p, v, __ATOMIC_SEQ_CST);           \
    }
#define COMPARE(n, T, name, weak)                                                                     \
    HOOK int __tsan_atomic##n##_compare_exchange_##name(volatile T* p, T* expected, T v, int, int) {  \
        touch(const_cast<T*>(p), sizeof(T), Access::write, HERE);                                     \
        return __atomic_compare_exchange_n(p, expected, v, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }
#define ATOMIC(n, T)                                              \
    HOOK T __tsan_atomic##n##_load(const volatile T* p, int) {    \
        touch(const_cast<T*>(p), sizeof(T), Access::read, HERE);  \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);              \
    }                                                             \
    HOOK void __tsan_atomic##n##_store(volatile T* p, T v, int) { \
        touch(const_cast<T*>(p), sizeof(T), Access::write, HERE); \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                 \
    }                                                             \
    HOOK T __tsan_atomic##n##_exchange(volatile T* p, T v, int) { \
        touch(const_cast<T*>(p), sizeof(T), Access::write, HERE); \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);       \
    }                                                             \
    UPDATE(n, T, fetch_add)                                       \
    UPDATE(n, T, fetch_sub)                                       \
    UPDATE(n, T, fetch_and)                                       \
    UPDATE(n, T, fetch_or)                                        \
    UPDATE(n, T, fetch_xor)                                       \
    COMPARE(n, T, strong, false)                                  \
    COMPARE(n, T, weak, true)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
HOOK void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
HOOK void __tsan_atomic_signal_fence(int) { std::atomic_signal_fence(std::memory_order_seq_cst); }

// ---- copies ---------------------------------------------------------------------------------------------------------

extern "C" {
void* __real_memcpy(void*, const void*, size_t);
void* __real_memmove(void*, const void*, size_t);
void* __real_memset(void*, int, size_t);
int __real_memcmp(const void*, const void*, size_t);
}
HOOK void* __wrap_memcpy(void* to, const void* from, size_t n) {
    touch(from, n, Access::read, HERE);
    touch(to, n, Access::write, HERE);
    return __real_memcpy(to, from, n);
}
HOOK void* __wrap_memmove(void* to, const void* from, size_t n) {
    touch(from, n, Access::read, HERE);
    touch(to, n, Access::write, HERE);
    return __real_memmove(to, from, n);
}
HOOK void* __wrap_memset(void* to, int v, size_t n) {
    touch(to, n, Access::write, HERE);
    return __real_memset(to, v, n);
}
HOOK int __wrap_memcmp(const void* a, const void* b, size_t n) {
    touch(a, n, Access::read, HERE);
    touch(b, n, Access::read, HERE);
    return __real_memcmp(a, b, n);
}
