// librocinante-view.so: shows a program the folder of a view (roci view) in place of /sys/class/infiniband and /dev/infiniband,
// where nothing can be mounted. `roci run` preloads the library and names the folder in ROCI_VIEW. The library replaces the
// functions of the C library that take a path. It includes no header that declares them, because it defines several names of
// each.
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

#if defined(__x86_64__)
// The base versions, so that the library also loads with older releases of glibc.
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
__asm__(".symver dlerror,dlerror@GLIBC_2.17");
#endif

extern "C" char* getenv(const char* name) noexcept;

namespace {

constexpr const char* kPlaces[] = {"/sys/class/infiniband", "/dev/infiniband"};
constexpr size_t kLongest = 4096;           // PATH_MAX
constexpr int kCreates = 0100 | 020000000;  // O_CREAT, and the bit of O_TMPFILE: open() then has a third argument

bool is_below(const char* path, const char* place) {
    const size_t length = strlen(place);
    return strncmp(path, place, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/// Returns the folder of the view if the path is below one of kPlaces and fits into the view, else nullptr. Only such a path
/// reads the environment, because another thread may change it at the same time.
const char* view_for(const char* path) {
    if (path == nullptr || path[0] != '/' || (!is_below(path, kPlaces[0]) && !is_below(path, kPlaces[1]))) return nullptr;
    const char* view = getenv("ROCI_VIEW");
    return view != nullptr && strlen(view) + strlen(path) < kLongest ? view : nullptr;
}

const char* join(const char* view, const char* path, char* out) {
    const size_t first = strlen(view);
    memcpy(out, view, first + 1);
    memcpy(out + first, path, strlen(path) + 1);
    return out;
}

/// Finds the next function of this name. Some releases of the C library lack some of them. Then the program must not see the
/// error of dlsym().
template <class Function>
Function* next(Function*& known, const char* name) {
    if (known == nullptr) known = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    if (known == nullptr) dlerror();
    return known;
}

}  // namespace

// The arguments of the macros are types and lists of parameters. NOLINTBEGIN(bugprone-macro-parentheses)
#define ROCI_EXPORT extern "C" __attribute__((visibility("default")))

/// Defines the pointer next_NAME to the next NAME. It is found when this library is loaded: dlsym() takes a lock of the loader,
/// so a program that may call open() in any state may not call dlsym(). The constructors of other libraries may run before.
#define ROCI_NEXT(result, name, parameters)            \
    static result(*known_##name) parameters = nullptr; \
    __attribute__((constructor)) static void find_##name() { next(known_##name, #name); }

/// Declares `at`, the path to show for `path`. The buffer is on the stack only for a path in the view, because signal handlers
/// with small stacks open other files.
#define ROCI_AT            \
    const char* at = path; \
    if (const char* view = view_for(at)) at = join(view, path, static_cast<char*>(__builtin_alloca(kLongest)));

/// Defines NAME, which calls the next NAME with the shown path. ARGUMENTS are those of the call.
#define ROCI_SHOW(result, name, parameters, arguments) \
    ROCI_NEXT(result, name, parameters)                \
    ROCI_EXPORT result name parameters {               \
        ROCI_AT                                        \
        return next(known_##name, #name) arguments;    \
    }

#define ROCI_SHOW_OPEN(name)                                                   \
    ROCI_NEXT(int, name, (const char*, int, ...))                              \
    ROCI_EXPORT int name(const char* path, int flags, ...) {                   \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        const unsigned mode = (flags & kCreates) ? va_arg(rest, unsigned) : 0; \
        va_end(rest);                                                          \
        ROCI_AT                                                                \
        return next(known_##name, #name)(at, flags, mode);                     \
    }

#define ROCI_SHOW_OPENAT(name)                                                 \
    ROCI_NEXT(int, name, (int, const char*, int, ...))                         \
    ROCI_EXPORT int name(int folder, const char* path, int flags, ...) {       \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        const unsigned mode = (flags & kCreates) ? va_arg(rest, unsigned) : 0; \
        va_end(rest);                                                          \
        ROCI_AT                                                                \
        return next(known_##name, #name)(folder, at, flags, mode);             \
    }
// NOLINTEND(bugprone-macro-parentheses)

ROCI_SHOW_OPEN(open)
ROCI_SHOW_OPEN(open64)
ROCI_SHOW_OPENAT(openat)
ROCI_SHOW_OPENAT(openat64)
ROCI_SHOW(int, __open_2, (const char* path, int flags), (at, flags))
ROCI_SHOW(int, __open64_2, (const char* path, int flags), (at, flags))
ROCI_SHOW(int, __openat_2, (int folder, const char* path, int flags), (folder, at, flags))
ROCI_SHOW(int, __openat64_2, (int folder, const char* path, int flags), (folder, at, flags))
ROCI_SHOW(void*, fopen, (const char* path, const char* mode), (at, mode))
ROCI_SHOW(void*, fopen64, (const char* path, const char* mode), (at, mode))
ROCI_SHOW(void*, opendir, (const char* path), (at))
ROCI_SHOW(int, access, (const char* path, int mode), (at, mode))
ROCI_SHOW(int, euidaccess, (const char* path, int mode), (at, mode))
ROCI_SHOW(int, eaccess, (const char* path, int mode), (at, mode))
ROCI_SHOW(int, faccessat, (int folder, const char* path, int mode, int flags), (folder, at, mode, flags))
ROCI_SHOW(int, chdir, (const char* path), (at))
ROCI_SHOW(int, stat, (const char* path, void* out), (at, out))
ROCI_SHOW(int, stat64, (const char* path, void* out), (at, out))
ROCI_SHOW(int, lstat, (const char* path, void* out), (at, out))
ROCI_SHOW(int, lstat64, (const char* path, void* out), (at, out))
ROCI_SHOW(int, fstatat, (int folder, const char* path, void* out, int flags), (folder, at, out, flags))
ROCI_SHOW(int, fstatat64, (int folder, const char* path, void* out, int flags), (folder, at, out, flags))
ROCI_SHOW(int, statx, (int folder, const char* path, int flags, unsigned mask, void* out), (folder, at, flags, mask, out))
ROCI_SHOW(int, __xstat, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW(int, __xstat64, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW(int, __lxstat, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW(int, __lxstat64, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW(int, __fxstatat, (int version, int folder, const char* path, void* out, int flags), (version, folder, at, out, flags))
ROCI_SHOW(int, __fxstatat64, (int version, int folder, const char* path, void* out, int flags), (version, folder, at, out, flags))
ROCI_SHOW(long, readlink, (const char* path, char* out, size_t size), (at, out, size))
ROCI_SHOW(long, readlinkat, (int folder, const char* path, char* out, size_t size), (folder, at, out, size))
ROCI_SHOW(long, __readlink_chk, (const char* path, char* out, size_t size, size_t room), (at, out, size, room))
ROCI_SHOW(char*, __realpath_chk, (const char* path, char* out, size_t room), (at, out, room))
ROCI_SHOW(char*, canonicalize_file_name, (const char* path), (at))
ROCI_NEXT(char*, realpath, (const char*, char*))
/// Before glibc 2.36, dlsym(RTLD_NEXT) finds the oldest realpath(), which requires a buffer.
ROCI_EXPORT char* realpath(const char* path, char* out) {
    if (out == nullptr) return canonicalize_file_name(path);
    ROCI_AT
    return next(known_realpath, "realpath")(at, out);
}
ROCI_SHOW(int, scandir, (const char* path, void* out, void* filter, void* order), (at, out, filter, order))
ROCI_SHOW(int, scandir64, (const char* path, void* out, void* filter, void* order), (at, out, filter, order))
ROCI_SHOW(long, getxattr, (const char* path, const char* name, void* out, size_t size), (at, name, out, size))
ROCI_SHOW(long, lgetxattr, (const char* path, const char* name, void* out, size_t size), (at, name, out, size))
ROCI_SHOW(long, listxattr, (const char* path, char* out, size_t size), (at, out, size))
ROCI_SHOW(long, llistxattr, (const char* path, char* out, size_t size), (at, out, size))
