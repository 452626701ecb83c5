// The r-socket functions. This library forwards them to the system's librdmacm, which it loads when a program first calls an
// r-socket function. The dynamic linker binds the rdma_* calls of the system's library to this library.
#include <dlfcn.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "log.hpp"

namespace {

/// Paths of the system's library. The paths of Debian and Ubuntu are first, then those of Fedora, then those of other
/// distributions.
constexpr const char* kPlaces[] = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu/librdmacm.so.1",
    "/lib/x86_64-linux-gnu/librdmacm.so.1",
#elif defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu/librdmacm.so.1",
    "/lib/aarch64-linux-gnu/librdmacm.so.1",
#endif
    "/usr/lib64/librdmacm.so.1",
    "/lib64/librdmacm.so.1",
    "/usr/lib/librdmacm.so.1",
    "/lib/librdmacm.so.1",
};

/// Makes the symbols of this library global, so that the dynamic linker binds the rdma_* calls of the system's library to them.
/// If the program has loaded this library by dlopen(3), the symbols may not be global yet.
void into_global_scope() {
    Dl_info self{};
    if (dladdr(reinterpret_cast<const void*>(&into_global_scope), &self) != 0 && self.dli_fname != nullptr)
        dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

void* load() {
    into_global_scope();
    for (const char* place : kPlaces)
        if (access(place, R_OK) == 0)
            if (void* library = dlopen(place, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    roci::client::warn(
        "r-sockets need the system's librdmacm.so.1, which was not found; install librdmacm1 (Debian) or "
        "librdmacm (Fedora)");
    return nullptr;
}

void* system_function(const char* name) {
    static void* const library = load();
    return library != nullptr ? dlsym(library, name) : nullptr;
}

/// Calls a function of the system's library. If `function` is null, sets errno to EOPNOTSUPP and returns -1.
template <class Result, class... Args>
Result forward(void* function, Args... args) {
    if (function == nullptr) {
        errno = EOPNOTSUPP;
        return Result(-1);
    }
    return reinterpret_cast<Result (*)(Args...)>(function)(args...);
}

}  // namespace

#define ROCI_EXPORT __attribute__((visibility("default")))
#define ROCI_FORWARD(result, name, parameters, ...)           \
    ROCI_EXPORT result name parameters {                      \
        static void* const function = system_function(#name); \
        return forward<result>(function, __VA_ARGS__);        \
    }

extern "C" {

ROCI_FORWARD(int, rsocket, (int domain, int type, int protocol), domain, type, protocol)
ROCI_FORWARD(int, rbind, (int s, const struct sockaddr* address, socklen_t size), s, address, size)
ROCI_FORWARD(int, rlisten, (int s, int backlog), s, backlog)
ROCI_FORWARD(int, raccept, (int s, struct sockaddr* address, socklen_t* size), s, address, size)
ROCI_FORWARD(int, rconnect, (int s, const struct sockaddr* address, socklen_t size), s, address, size)
ROCI_FORWARD(int, rshutdown, (int s, int how), s, how)
ROCI_FORWARD(int, rclose, (int s), s)
ROCI_FORWARD(ssize_t, rrecv, (int s, void* buffer, size_t size, int flags), s, buffer, size, flags)
ROCI_FORWARD(ssize_t, rrecvfrom, (int s, void* buffer, size_t size, int flags, struct sockaddr* from, socklen_t* length), s,
             buffer, size, flags, from, length)
ROCI_FORWARD(ssize_t, rrecvmsg, (int s, struct msghdr* message, int flags), s, message, flags)
ROCI_FORWARD(ssize_t, rsend, (int s, const void* buffer, size_t size, int flags), s, buffer, size, flags)
ROCI_FORWARD(ssize_t, rsendto, (int s, const void* buffer, size_t size, int flags, const struct sockaddr* to, socklen_t length),
             s, buffer, size, flags, to, length)
ROCI_FORWARD(ssize_t, rsendmsg, (int s, const struct msghdr* message, int flags), s, message, flags)
ROCI_FORWARD(ssize_t, rread, (int s, void* buffer, size_t size), s, buffer, size)
ROCI_FORWARD(ssize_t, rreadv, (int s, const struct iovec* vector, int count), s, vector, count)
ROCI_FORWARD(ssize_t, rwrite, (int s, const void* buffer, size_t size), s, buffer, size)
ROCI_FORWARD(ssize_t, rwritev, (int s, const struct iovec* vector, int count), s, vector, count)
ROCI_FORWARD(int, rpoll, (struct pollfd * fds, nfds_t count, int timeout), fds, count, timeout)
ROCI_FORWARD(int, rselect, (int count, fd_set* in, fd_set* out, fd_set* exceptional, struct timeval* timeout), count, in, out,
             exceptional, timeout)
ROCI_FORWARD(int, rgetpeername, (int s, struct sockaddr* address, socklen_t* size), s, address, size)
ROCI_FORWARD(int, rgetsockname, (int s, struct sockaddr* address, socklen_t* size), s, address, size)
ROCI_FORWARD(int, rsetsockopt, (int s, int level, int name, const void* value, socklen_t size), s, level, name, value, size)
ROCI_FORWARD(int, rgetsockopt, (int s, int level, int name, void* value, socklen_t* size), s, level, name, value, size)
ROCI_FORWARD(off_t, riomap, (int s, void* buffer, size_t size, int protection, int flags, off_t offset), s, buffer, size,
             protection, flags, offset)
ROCI_FORWARD(int, riounmap, (int s, void* buffer, size_t size), s, buffer, size)
ROCI_FORWARD(int, repoll_create, (int flags), flags)
ROCI_FORWARD(int, repoll_ctl, (int epfd, int op, int s, struct epoll_event* event), epfd, op, s, event)
ROCI_FORWARD(int, repoll_wait, (int epfd, struct epoll_event* events, int count, int timeout), epfd, events, count, timeout)
ROCI_FORWARD(size_t, riowrite, (int s, const void* buffer, size_t size, off_t offset, int flags), s, buffer, size, offset, flags)

ROCI_EXPORT int rfcntl(int s, int command, ...) {
    va_list list;
    va_start(list, command);
    const long argument = va_arg(list, long);
    va_end(list);
    static void* const function = system_function("rfcntl");
    if (function == nullptr) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return reinterpret_cast<int (*)(int, int, ...)>(function)(s, command, argument);
}

}  // extern "C"
