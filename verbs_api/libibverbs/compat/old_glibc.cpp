// Makes a client library run on glibc 2.31 and newer. The library must not use symbols that newer releases of glibc added or
// moved. The parts of libstdc++ and libgcc that are linked into the library must not use them either. So this file defines each
// such symbol as a hidden symbol. Most of these definitions call the symbol of the base version ROCI_BASE. Before glibc 2.34 the
// symbols of the base version are in libpthread.so.0 and libdl.so.2, since glibc 2.34 in libc.so.6.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#define ROCI_BASE "GLIBC_2.2.5"
constexpr int kStatVersion = 1;
#elif defined(__aarch64__)
#define ROCI_BASE "GLIBC_2.17"
constexpr int kStatVersion = 0;
#else
#error "unknown base version of glibc's symbols on this processor"
#endif

/// Declares base_NAME and here_NAME. base_NAME is the base version of NAME in glibc. here_NAME is the hidden definition that the
/// library calls as NAME.
#define ROCI_OLD(result, name, ...)                         \
    __asm__(".symver base_" #name "," #name "@" ROCI_BASE); \
    result base_##name(__VA_ARGS__);                        \
    __attribute__((visibility("hidden"), used)) result here_##name(__VA_ARGS__) __asm__(#name)

extern "C" {

ROCI_OLD(int, pthread_once, pthread_once_t* once, void (*run)());
int here_pthread_once(pthread_once_t* once, void (*run)()) { return base_pthread_once(once, run); }

ROCI_OLD(int, __pthread_key_create, pthread_key_t* key, void (*end)(void*));
int here___pthread_key_create(pthread_key_t* key, void (*end)(void*)) { return base___pthread_key_create(key, end); }

ROCI_OLD(int, pthread_sigmask, int how, const sigset_t* set, sigset_t* old);
int here_pthread_sigmask(int how, const sigset_t* set, sigset_t* old) { return base_pthread_sigmask(how, set, old); }

ROCI_OLD(int, pthread_getattr_np, pthread_t thread, pthread_attr_t* out);
int here_pthread_getattr_np(pthread_t thread, pthread_attr_t* out) { return base_pthread_getattr_np(thread, out); }

ROCI_OLD(int, pthread_attr_getstack, const pthread_attr_t* from, void** address, size_t* size);
int here_pthread_attr_getstack(const pthread_attr_t* from, void** address, size_t* size) {
    return base_pthread_attr_getstack(from, address, size);
}

ROCI_OLD(void*, dlopen, const char* file, int mode);
void* here_dlopen(const char* file, int mode) { return base_dlopen(file, mode); }

ROCI_OLD(void*, dlsym, void* handle, const char* name);
void* here_dlsym(void* handle, const char* name) { return base_dlsym(handle, name); }

ROCI_OLD(int, dladdr, const void* address, Dl_info* out);
int here_dladdr(const void* address, Dl_info* out) { return base_dladdr(address, out); }

// Since glibc 2.33 libc.so.6 exports stat64 and fstat64. Older releases export only the following functions.
int __xstat64(int version, const char* path, struct stat64* out);
int __fxstat64(int version, int fd, struct stat64* out);
__attribute__((visibility("hidden"), used)) int here_stat64(const char* path, struct stat64* out) __asm__("stat64");
int here_stat64(const char* path, struct stat64* out) { return __xstat64(kStatVersion, path, out); }
__attribute__((visibility("hidden"), used)) int here_fstat64(int fd, struct stat64* out) __asm__("fstat64");
int here_fstat64(int fd, struct stat64* out) { return __fxstat64(kStatVersion, fd, out); }

/// The variable __libc_single_threaded of glibc 2.32. While it is not 0, libstdc++ omits atomic operations. Here it is always 0,
/// so libstdc++ always uses atomic operations.
__attribute__((visibility("hidden"))) extern char here_single_threaded __asm__("__libc_single_threaded");
__attribute__((used)) char here_single_threaded = 0;

/// Defines the function arc4random of glibc 2.36, which std::random_device of libstdc++ calls.
__attribute__((visibility("hidden"), used)) uint32_t here_arc4random() __asm__("arc4random");
uint32_t here_arc4random() {
    uint32_t value = 0;
    if (getrandom(&value, sizeof value, 0) != ssize_t(sizeof value)) std::abort();
    return value;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE
/// Defines the function _dl_find_object of glibc 2.35, by which libgcc's unwinder finds the ELF object of a code address.
__attribute__((visibility("hidden"), used)) int here_dl_find_object(void* pc,
                                                                    struct dl_find_object* out) __asm__("_dl_find_object");

struct DlSearch {
    uintptr_t pc;
    struct dl_find_object* out;
};

static int object_with(struct dl_phdr_info* info, size_t, void* data) {
    auto& search = *static_cast<DlSearch*>(data);
    const ElfW(Phdr)* unwind = nullptr;
    bool inside = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& p = info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + p.p_vaddr;
        if (p.p_type == PT_GNU_EH_FRAME) unwind = &p;
        if (p.p_type != PT_LOAD || search.pc < start || search.pc - start >= p.p_memsz) continue;
        inside = true;
        search.out->dlfo_map_start = reinterpret_cast<void*>(start);
        search.out->dlfo_map_end = reinterpret_cast<void*>(start + p.p_memsz);
    }
    if (!inside) return 0;
    search.out->dlfo_link_map = nullptr;
    search.out->dlfo_eh_frame = unwind != nullptr ? reinterpret_cast<void*>(info->dlpi_addr + unwind->p_vaddr) : nullptr;
    return unwind != nullptr ? 1 : -1;
}

int here_dl_find_object(void* pc, struct dl_find_object* out) {
    DlSearch search{reinterpret_cast<uintptr_t>(pc), out};
    return dl_iterate_phdr(object_with, &search) == 1 ? 0 : -1;
}
#endif

}  // extern "C"
