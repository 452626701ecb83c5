#include "connection.hpp"

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "abi/op_names.hpp"
#include "abi/time_slice.hpp"
#include "arena.hpp"
#include "log.hpp"

namespace roci::client {
namespace {

/// Returns true for errors that programs cause on purpose. The library logs such errors only if ROCI_LOG requests all messages.
/// Examples: a program calls a verb to test for support, libfabric creates QPs to find the largest inline size, perftest
/// disconnects ids of datagram services, and cmtime destroys an event channel while another thread waits for its events.
bool is_expected(abi::Op op, int error, std::string_view reason) {
    if (error == EOPNOTSUPP || (op == abi::Op::cm_get_event && error == ENOENT)) return true;
    if (error != EINVAL) return false;
    return op == abi::Op::cm_disconnect || (op == abi::Op::create_qp && reason.starts_with("max_inline_data"));
}

std::atomic<bool> said_lost{false};

iovec vec(std::span<const std::byte> bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

int connect_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    int rc;
    do rc = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    while (rc < 0 && errno == EINTR);
    if (rc == 0) return fd;
    const int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

}  // namespace

std::string socket_path() {
    const char* path = secure_getenv(abi::kSocketEnv);
    return path != nullptr && *path != '\0' ? path : abi::kDefaultSocket;
}

ReplyFds::~ReplyFds() {
    for (int i = 0; i < count_; ++i)
        if (fd_[i] >= 0) close(fd_[i]);
}

int ReplyFds::take(int i) {
    const int fd = fd_[i];
    fd_[i] = -1;
    return fd;
}

Connection::~Connection() {
    if (fd_ >= 0) close(fd_);
}

void Connection::leave_to_parent() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    gone_ = true;
}

int Connection::open() {
    const std::string path = socket_path();
    fd_ = connect_to(path);
    if (fd_ < 0) {
        const int err = errno;
        log("no rocid at %s: %s (start rocid, or say where its socket is with %s)", path.c_str(), std::strerror(err),
            abi::kSocketEnv);
        return err;
    }
    buffer_.reset(new (std::nothrow) std::byte[abi::kMaxMessage]);
    if (!buffer_) return ENOMEM;
    gone_ = false;
    said_lost = false;
    return hello();
}

int Connection::hello() {
    abi::HelloRequest request{abi::kHelloMagic, abi::kAbiVersion, {}};
    std::strncpy(request.program, program_invocation_short_name, sizeof request.program - 1);
    abi::HelloReply reply{};
    const int err = call(abi::Op::hello, request, reply);
    const bool speaks_ours = reply.abi_min <= abi::kAbiVersion && abi::kAbiVersion <= reply.abi_max;
    if (err == EPROTO || (err == 0 && !speaks_ours)) {
        warn(
            "rocid at %s speaks ABI version %u to %u, this library speaks %u: install rocid and the libraries from the same "
            "release",
            socket_path().c_str(), reply.abi_min, reply.abi_max, abi::kAbiVersion);
        gone_ = true;
        return EPROTO;
    }
    return err;
}

/// A program may have several connections to a rocid that has ended. So all connections of the process share the flag
/// `said_lost`, and only one of them prints the message.
int Connection::lost(const char* why) {
    if (!gone_.exchange(true) && !said_lost.exchange(true))
        warn("connection to rocid at %s lost (%s): its devices fail from now on, everything outstanding is flushed",
             socket_path().c_str(), why);
    return EIO;
}

int Connection::request(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds) {
    const int before = errno;
    const int err = gone() ? EIO : exchange_alone(out, reply, fds);
    errno = err != 0 ? err : before;
    return err;
}

int Connection::exchange_alone(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds) {
    std::lock_guard guard(mutex_);
    return gone() ? EIO : exchange(out, reply, fds);
}

/// Sends the request. If rocid needs another chunk of the arena for the request, creates the chunk and sends the request again. A
/// request normally needs at most one chunk per queue, so kMostChunks limits the repetitions.
int Connection::exchange(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds) {
    constexpr int kMostChunks = 8;
    for (int chunks = 0;; ++chunks) {
        uint64_t wanted = 0;
        const int err = exchange_once(out, reply, fds, wanted);
        if (err == 0 || wanted == 0 || arena_ == nullptr || chunks == kMostChunks) return err;
        if (const int failed = add_chunk(wanted); failed != 0) return failed;
    }
}

int Connection::add_chunk(uint64_t length) {
    int fd = -1;
    Mapping chunk = arena_->make_chunk(length, fd);
    if (chunk.base == nullptr) {
        const int err = errno;
        log("no shared memory of %llu bytes for queues: %s", static_cast<unsigned long long>(length), std::strerror(err));
        return err;
    }
    const abi::AddChunkRequest request{length};
    abi::HandleReply reply{};
    uint64_t none = 0;
    int err = exchange_once({abi::Op::add_chunk, bytes_of(request), {}, fd}, std::as_writable_bytes(std::span(&reply, 1)),
                            nullptr, none);
    close(fd);
    if (err == 0) err = arena_->add_chunk(reply.handle, chunk);
    if (err != 0) unmap(chunk);
    return err;
}

int Connection::exchange_once(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds, uint64_t& wanted_chunk) {
    const uint32_t cookie = next_cookie_++;
    if (const int err = send(out, cookie); err != 0) return err;
    ReplyFds discarded;
    ReplyFds& received = fds != nullptr ? *fds : discarded;
    abi::ReplyHeader header{};
    if (const int err = receive(cookie, header, received); err != 0) return err;

    if (header.error == ENOMEM && arena_ != nullptr) wanted_chunk = header.wanted_chunk;
    if (wanted_chunk != 0) return ENOMEM;
    const std::byte* body = buffer_.get() + sizeof header;
    const size_t copied = std::min<size_t>(reply.size(), header.body_length);
    std::copy_n(body, copied, reply.begin());
    std::fill(reply.begin() + ptrdiff_t(copied), reply.end(), std::byte{0});
    const std::string_view reason(reinterpret_cast<const char*>(body + header.body_length), header.reason_length);
    if (header.error != 0 && (!is_expected(out.op, header.error, reason) || log_enabled()))
        log_kind(abi::op_name(out.op), "%s: %s%s%.*s", abi::op_name(out.op), std::strerror(header.error),
                 reason.empty() ? "" : ": ", int(reason.size()), reason.data());
    return header.error;
}

int Connection::send(const Outgoing& out, uint32_t cookie) {
    const abi::RequestHeader header{out.op, 0, cookie};
    iovec parts[] = {vec(std::as_bytes(std::span(&header, 1))), vec(out.body), vec(out.more)};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = std::size(parts);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (out.fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(c), &out.fd, sizeof(int));
    }
    ssize_t n;
    do n = sendmsg(fd_, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0) return 0;
    // The request is too large, the kernel has no memory for it, or its descriptor cannot be passed. The connection remains
    // usable.
    if (errno == EMSGSIZE || errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS || errno == EBADF) return errno;
    return lost(std::strerror(errno));
}

/// Receives a reply. rocid replies to most requests within microseconds, and a sleep with a wake-up takes longer. So the thread
/// polls first. Between polls it yields the CPU, because rocid may run on the same CPU. The thread blocks after 16 polls, or
/// earlier if it shares its CPU with a busy program.
ssize_t Connection::receive_patiently(msghdr& message) {
    using enum abi::CpuPace::Way;
    constexpr int kLooks = 16;
    const msghdr fresh = message;
    abi::CpuPace::Way way = look_again;
    for (int look = 0;;) {
        message = fresh;
        const bool blocks = look == kLooks || way == sleep;
        if (blocks) abi::ask_for_short_slices();
        const ssize_t n = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC | (blocks ? 0 : MSG_DONTWAIT));
        if (n >= 0 || (errno != EINTR && errno != EAGAIN)) return n;
        if (blocks || errno == EINTR) continue;
        ++look;
        way = pace_.in_vain();
        if (way == yield) abi::yield_cpu(pace_);
    }
}

int Connection::receive(uint32_t cookie, abi::ReplyHeader& header, ReplyFds& fds) {
    iovec part{buffer_.get(), abi::kMaxMessage};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * abi::kMaxFdsPerMessage)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = receive_patiently(message);
    if (n <= 0) return lost(n == 0 ? "closed by rocid" : std::strerror(errno));

    uint32_t all = 0;
    ReplyFds rest;  // if the reply is unusable, the destructor closes all its descriptors
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && all < abi::kMaxFdsPerMessage; ++i, ++all) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            rest.add(fd);
        }
    }
    if (size_t(n) < sizeof header) return lost("malformed reply");
    std::memcpy(&header, buffer_.get(), sizeof header);
    if ((message.msg_flags & MSG_TRUNC) != 0 || header.cookie != cookie ||
        size_t(n) - sizeof header < uint64_t(header.body_length) + header.reason_length)
        return lost("malformed reply");
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        log("descriptors of a reply were lost: too many open files in this process");
        return EMFILE;
    }
    for (uint32_t i = 0; i < all; ++i) fds.add(rest.take(int(i)));
    return 0;
}

}  // namespace roci::client
