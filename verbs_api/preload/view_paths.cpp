// librocinante-view.so: shows a program the folder of a view (roci view) in place of /sys/class/infiniband and /dev/infiniband,
// where nothing can be mounted. `roci run` preloads the library and names the folder in ROCI_VIEW. The library replaces the
// functions of the C library that take a path. It includes no header that declares them, because it defines several names of
// each.
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

#if defined(__x86_64__)
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");  // the base version, so that the library also loads with older releases of glibc
#elif defined(__aarch64__)
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
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

/// A path in the view if the given path is below one of kPlaces, else the given path.
class Shown {
public:
    explicit Shown(const char* path) : path_(path) {
        if (path == nullptr || path[0] != '/') return;
        const char* view = getenv("ROCI_VIEW");
        if (view == nullptr || (!is_below(path, kPlaces[0]) && !is_below(path, kPlaces[1]))) return;
        const size_t first = strlen(view), second = strlen(path);
        if (first + second >= kLongest) return;
        memcpy(text_, view, first);
        memcpy(text_ + first, path, second + 1);
        path_ = text_;
    }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;
    operator const char*() const { return path_; }

private:
    const char* path_;
    char text_[kLongest];
};

template <class Function>
Function* next(Function*& known, const char* name) {
    if (known == nullptr) known = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    return known;
}

}  // namespace

#define ROCI_EXPORT extern "C" __attribute__((visibility("default")))

/// Defines NAME, which calls the next NAME with the shown path. ARGUMENTS are those of the call.
#define ROCI_SHOW(result, name, parameters, arguments) \
    ROCI_EXPORT result name parameters {               \
        static result(*known) parameters = nullptr;    \
        const Shown at(path);                          \
        return next(known, #name) arguments;           \
    }

#define ROCI_SHOW_OPEN(name)                                                   \
    ROCI_EXPORT int name(const char* path, int flags, ...) {                   \
        static int (*known)(const char*, int, ...) = nullptr;                  \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        const unsigned mode = (flags & kCreates) ? va_arg(rest, unsigned) : 0; \
        va_end(rest);                                                          \
        return next(known, #name)(Shown(path), flags, mode);                   \
    }

#define ROCI_SHOW_OPENAT(name)                                                 \
    ROCI_EXPORT int name(int folder, const char* path, int flags, ...) {       \
        static int (*known)(int, const char*, int, ...) = nullptr;             \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        const unsigned mode = (flags & kCreates) ? va_arg(rest, unsigned) : 0; \
        va_end(rest);                                                          \
        return next(known, #name)(folder, Shown(path), flags, mode);           \
    }

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
ROCI_SHOW(char*, realpath, (const char* path, char* out), (at, out))
ROCI_SHOW(char*, __realpath_chk, (const char* path, char* out, size_t room), (at, out, room))
ROCI_SHOW(char*, canonicalize_file_name, (const char* path), (at))
ROCI_SHOW(int, scandir, (const char* path, void* out, void* filter, void* order), (at, out, filter, order))
ROCI_SHOW(int, scandir64, (const char* path, void* out, void* filter, void* order), (at, out, filter, order))
