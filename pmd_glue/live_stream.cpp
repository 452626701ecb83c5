#include "live_stream.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace roci::pmd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLastWait = std::chrono::seconds(2);
constexpr int kLook = 50;  // interval between two reads of `ending`, ms

struct Stream {
    int fd;
    std::shared_ptr<const std::atomic<bool>> ending;
    Clock::time_point ends = Clock::time_point::max();  ///< end of all waits after `ending` was set
    bool broken = false;
};

/// Waits until the pipe is writable. Returns false if the reader has closed the pipe, or if the time limit of an ending stream
/// expires.
bool wait_for_room(Stream& s) {
    for (;;) {
        pollfd p{s.fd, POLLOUT, 0};
        if (poll(&p, 1, kLook) > 0) return (p.revents & POLLERR) == 0;
        const auto now = Clock::now();
        if (*s.ending && s.ends == Clock::time_point::max()) s.ends = now + kLastWait;
        if (now >= s.ends) return false;
    }
}

/// Writes all bytes and returns the number of bytes, or 0 on an error (fopencookie(3)). After an error, all further writes fail.
ssize_t write_all(void* cookie, const char* data, size_t size) {
    Stream& s = *static_cast<Stream*>(cookie);
    for (size_t done = 0; done < size && !s.broken;) {
        const ssize_t n = write(s.fd, data + done, size - done);
        if (n > 0)
            done += size_t(n);
        else
            s.broken = errno == EAGAIN ? !wait_for_room(s) : errno != EINTR;
    }
    return s.broken ? 0 : ssize_t(size);
}

int close_stream(void* cookie) {
    const std::unique_ptr<Stream> s(static_cast<Stream*>(cookie));
    return close(s->fd);
}

}  // namespace

File open_live_stream(int fd, std::shared_ptr<const std::atomic<bool>> ending) {
    auto stream = std::make_unique<Stream>(Stream{.fd = fd, .ending = std::move(ending)});
    cookie_io_functions_t io{};
    io.write = write_all;
    io.close = close_stream;
    File file(fopencookie(stream.get(), "w", io));
    if (file != nullptr) stream.release();
    return file;
}

}  // namespace roci::pmd
