// librocinante-view.so shows a program the folder of a view (roci view) in place of /sys/class/infiniband and /dev/infiniband. If
// nothing can be mounted, `roci run` preloads this library and sets ROCI_VIEW to the path of the folder. The library replaces the
// functions of the C library that take a path. This file does not include the headers that declare these functions, because the
// file defines the functions under several names, such as open and open64.
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
// Binds the functions to the base versions of glibc, so that the library also loads with older releases of glibc.
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
__asm__(".symver dlerror,dlerror@GLIBC_2.17");
#endif

extern "C" {
char* getenv(const char* name) noexcept;
long syscall(long number, ...) noexcept;
void* readdir(void* folder);
int closedir(void* folder);
}

namespace {

constexpr const char* kPlaces[] = {"/sys/class/infiniband", "/dev/infiniband"};
constexpr size_t kLongest = 4096;           // PATH_MAX
constexpr int kCreates = 0100 | 020000000;  // O_CREAT, and the bit of O_TMPFILE: open() then has a third argument
constexpr int kHere = -100;                 // AT_FDCWD
constexpr int kOwnFunctions = 1 << 9;       // GLOB_ALTDIRFUNC: glob() reads folders by functions of its caller

bool is_below(const char* path, const char* place) {
    const size_t length = strlen(place);
    return strncmp(path, place, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

bool is_in_view(const char* path) { return is_below(path, kPlaces[0]) || is_below(path, kPlaces[1]); }

/// Returns true if the path may lead into the view. The library reads the environment only for such a path, because another
/// thread may change the environment at the same time.
bool may_concern(const char* path) {
    if (path == nullptr) return false;
    return path[0] == '/' ? is_in_view(path) : strstr(path, "infiniband") != nullptr;
}

/// Writes "FOLDER/PATH" to `out`, where `folder` is the descriptor of FOLDER. Returns false if the result is too long, or if the
/// descriptor has no path. Preserves errno.
bool absolute(int folder, const char* path, char* out) {
    char link[32] = "/proc/self/cwd";
    if (folder != kHere) {
        char digits[12], *digit = digits + sizeof digits;
        *--digit = '\0';
        for (unsigned n = unsigned(folder); digit == digits + sizeof digits - 1 || n != 0; n /= 10) *--digit = char('0' + n % 10);
        memcpy(link, "/proc/self/fd/", 14);
        memcpy(link + 14, digit, strlen(digit) + 1);
    }
    const int error = errno;
    const long length = syscall(SYS_readlinkat, kHere, link, out, kLongest);
    errno = error;
    while (path[0] == '.' && path[1] == '/') path += 2;
    if (length <= 0 || size_t(length) + 1 + strlen(path) >= kLongest) return false;
    out[length] = '/';
    memcpy(out + length + (length != 1), path, strlen(path) + 1);
    return true;
}

/// Returns the path to show for `path`, which is relative to the folder with the descriptor `folder`. Uses two buffers of
/// kLongest bytes.
const char* shown(int folder, const char* path, char* buffers) {
    const char* view = getenv("ROCI_VIEW");
    if (view == nullptr) return path;
    const char* full = path;
    if (path[0] != '/') {
        if (!absolute(folder, path, buffers) || !is_in_view(buffers)) return path;
        full = buffers;
    }
    char* out = buffers + kLongest;
    const size_t first = strlen(view);
    if (first + strlen(full) >= kLongest) return path;
    memcpy(out, view, first);
    memcpy(out + first, full, strlen(full) + 1);
    return out;
}

/// Returns the next function of this name, or nullptr if this release of the C library does not have the function. In this case
/// dlerror() clears the error of dlsym(), so that the program does not get this error.
template <class Function>
Function* next(Function*& known, const char* name) {
    if (known == nullptr) known = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    if (known == nullptr) dlerror();
    return known;
}

}  // namespace

// The arguments of the macros are types and lists of parameters. NOLINTBEGIN(bugprone-macro-parentheses)
#define ROCI_EXPORT extern "C" __attribute__((visibility("default")))

/// Defines the pointer known_NAME to the next function NAME. A constructor of this library sets the pointer. A later call of
/// dlsym() could block, because dlsym() takes a lock of the loader and programs may call open() in any state. If the constructor
/// of another library calls NAME earlier, that call sets the pointer.
#define ROCI_NEXT(result, name, parameters)            \
    static result(*known_##name) parameters = nullptr; \
    __attribute__((constructor)) static void find_##name() { next(known_##name, #name); }

/// Declares `at`, the path to show for `path`. Allocates the buffers on the stack only if the path may lead into the view,
/// because signal handlers with small stacks may open other files.
#define ROCI_AT(folder)    \
    const char* at = path; \
    if (may_concern(at)) at = shown(folder, path, static_cast<char*>(__builtin_alloca(2 * kLongest)));

/// Defines the function NAME, which calls the next function NAME with the path to show. ARGUMENTS are the arguments of this call.
/// A relative path begins at the folder with the descriptor FOLDER.
#define ROCI_SHOW_FROM(folder, result, name, parameters, arguments) \
    ROCI_NEXT(result, name, parameters)                             \
    ROCI_EXPORT result name parameters {                            \
        ROCI_AT(folder)                                             \
        return next(known_##name, #name) arguments;                 \
    }
#define ROCI_SHOW(result, name, parameters, arguments) ROCI_SHOW_FROM(kHere, result, name, parameters, arguments)
#define ROCI_SHOW_AT(result, name, parameters, arguments) ROCI_SHOW_FROM(folder, result, name, parameters, arguments)

#define ROCI_SHOW_OPEN(name)                                                   \
    ROCI_NEXT(int, name, (const char*, int, ...))                              \
    ROCI_EXPORT int name(const char* path, int flags, ...) {                   \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        const unsigned mode = (flags & kCreates) ? va_arg(rest, unsigned) : 0; \
        va_end(rest);                                                          \
        ROCI_AT(kHere)                                                         \
        return next(known_##name, #name)(at, flags, mode);                     \
    }

#define ROCI_SHOW_OPENAT(name)                                                 \
    ROCI_NEXT(int, name, (int, const char*, int, ...))                         \
    ROCI_EXPORT int name(int folder, const char* path, int flags, ...) {       \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        const unsigned mode = (flags & kCreates) ? va_arg(rest, unsigned) : 0; \
        va_end(rest);                                                          \
        ROCI_AT(folder)                                                        \
        return next(known_##name, #name)(folder, at, flags, mode);             \
    }
// NOLINTEND(bugprone-macro-parentheses)

ROCI_SHOW_OPEN(open)
ROCI_SHOW_OPEN(open64)
ROCI_SHOW_OPENAT(openat)
ROCI_SHOW_OPENAT(openat64)
ROCI_SHOW(int, __open_2, (const char* path, int flags), (at, flags))
ROCI_SHOW(int, __open64_2, (const char* path, int flags), (at, flags))
ROCI_SHOW_AT(int, __openat_2, (int folder, const char* path, int flags), (folder, at, flags))
ROCI_SHOW_AT(int, __openat64_2, (int folder, const char* path, int flags), (folder, at, flags))
ROCI_SHOW(void*, fopen, (const char* path, const char* mode), (at, mode))
ROCI_SHOW(void*, fopen64, (const char* path, const char* mode), (at, mode))
ROCI_SHOW(void*, opendir, (const char* path), (at))
ROCI_SHOW(int, access, (const char* path, int mode), (at, mode))
ROCI_SHOW(int, euidaccess, (const char* path, int mode), (at, mode))
ROCI_SHOW(int, eaccess, (const char* path, int mode), (at, mode))
ROCI_SHOW_AT(int, faccessat, (int folder, const char* path, int mode, int flags), (folder, at, mode, flags))
ROCI_SHOW(int, chdir, (const char* path), (at))
ROCI_SHOW(int, stat, (const char* path, void* out), (at, out))
ROCI_SHOW(int, stat64, (const char* path, void* out), (at, out))
ROCI_SHOW(int, lstat, (const char* path, void* out), (at, out))
ROCI_SHOW(int, lstat64, (const char* path, void* out), (at, out))
ROCI_SHOW_AT(int, fstatat, (int folder, const char* path, void* out, int flags), (folder, at, out, flags))
ROCI_SHOW_AT(int, fstatat64, (int folder, const char* path, void* out, int flags), (folder, at, out, flags))
ROCI_SHOW_AT(int, statx, (int folder, const char* path, int flags, unsigned mask, void* out), (folder, at, flags, mask, out))
ROCI_SHOW(int, __xstat, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW(int, __xstat64, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW(int, __lxstat, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW(int, __lxstat64, (int version, const char* path, void* out), (version, at, out))
ROCI_SHOW_AT(int, __fxstatat, (int version, int folder, const char* path, void* out, int flags),
             (version, folder, at, out, flags))
ROCI_SHOW_AT(int, __fxstatat64, (int version, int folder, const char* path, void* out, int flags),
             (version, folder, at, out, flags))
ROCI_SHOW(long, readlink, (const char* path, char* out, size_t size), (at, out, size))
ROCI_SHOW_AT(long, readlinkat, (int folder, const char* path, char* out, size_t size), (folder, at, out, size))
ROCI_SHOW(long, __readlink_chk, (const char* path, char* out, size_t size, size_t room), (at, out, size, room))
ROCI_SHOW(char*, __realpath_chk, (const char* path, char* out, size_t room), (at, out, room))
ROCI_SHOW(char*, canonicalize_file_name, (const char* path), (at))
ROCI_NEXT(char*, realpath, (const char*, char*))
/// Before glibc 2.36, dlsym(RTLD_NEXT) finds the oldest realpath(), which requires a buffer. So a call without a buffer uses
/// canonicalize_file_name().
ROCI_EXPORT char* realpath(const char* path, char* out) {
    if (out == nullptr) return canonicalize_file_name(path);
    ROCI_AT(kHere)
    return next(known_realpath, "realpath")(at, out);
}
ROCI_SHOW(int, scandir, (const char* path, void* out, void* filter, void* order), (at, out, filter, order))
ROCI_SHOW(int, scandir64, (const char* path, void* out, void* filter, void* order), (at, out, filter, order))
ROCI_SHOW(long, getxattr, (const char* path, const char* name, void* out, size_t size), (at, name, out, size))
ROCI_SHOW(long, lgetxattr, (const char* path, const char* name, void* out, size_t size), (at, name, out, size))
ROCI_SHOW(long, listxattr, (const char* path, char* out, size_t size), (at, out, size))
ROCI_SHOW(long, llistxattr, (const char* path, char* out, size_t size), (at, out, size))

namespace {

/// The head of glob_t.
struct Glob {
    size_t count;
    char** paths;
    size_t offset;
    int flags;
    int (*close_folder)(void*);
    void* (*read_folder)(void*);
    void* (*open_folder)(const char*);
    int (*status_of_link)(const char*, void*);
    int (*status)(const char*, void*);
};

/// Before glibc 2.33, libc.so.6 does not export stat() and lstat(). Each program contains its own copies of these functions,
/// which call __xstat() and __lxstat(). old_stat() and old_lstat() do the same.
#if defined(__x86_64__)
constexpr int kVersion = 1;
#else
constexpr int kVersion = 0;
#endif
int old_stat(const char* path, void* out) { return __xstat(kVersion, path, out); }
int old_lstat(const char* path, void* out) { return __lxstat(kVersion, path, out); }

/// By default glob() calls internal functions of the C library, which this library cannot replace. So for a pattern that may lead
/// into the view, this function passes other functions to glob(). The returned paths begin as the pattern does, and not with the
/// path of the view.
template <class Next>
int glob_in_view(Next* real, const char* pattern, int flags, int (*on_error)(const char*, int), Glob* out) {
    const bool concerns = pattern != nullptr && strstr(pattern, "infiniband") != nullptr && getenv("ROCI_VIEW") != nullptr;
    if (!concerns || (flags & kOwnFunctions) != 0) return real(pattern, flags, on_error, out);
    out->close_folder = closedir;
    out->read_folder = readdir;
    out->open_folder = opendir;
    out->status_of_link = next(known_lstat, "lstat") != nullptr ? lstat : old_lstat;
    out->status = next(known_stat, "stat") != nullptr ? stat : old_stat;
    return real(pattern, flags | kOwnFunctions, on_error, out);
}

}  // namespace

#define ROCI_SHOW_GLOB(name)                                                                             \
    ROCI_NEXT(int, name, (const char*, int, int (*)(const char*, int), Glob*))                           \
    ROCI_EXPORT int name(const char* pattern, int flags, int (*on_error)(const char*, int), Glob* out) { \
        return glob_in_view(next(known_##name, #name), pattern, flags, on_error, out);                   \
    }
ROCI_SHOW_GLOB(glob)
ROCI_SHOW_GLOB(glob64)
