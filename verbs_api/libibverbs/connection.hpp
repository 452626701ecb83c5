// One connection to rocid: one session. A request is sent and its reply awaited under a mutex.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>

#include "abi/control.hpp"
#include "abi/cpu_pace.hpp"

namespace roci::client {

class Arena;

/// Descriptors that came with a reply (without those of arena chunks, which are mapped and closed already). What is not taken is
/// closed.
class ReplyFds {
public:
    ReplyFds() = default;
    ReplyFds(const ReplyFds&) = delete;
    ReplyFds& operator=(const ReplyFds&) = delete;
    ~ReplyFds();
    int size() const { return count_; }
    /// Hands over descriptor i; the caller closes it.
    int take(int i);
    void add(int fd) { fd_[count_++] = fd; }

private:
    int fd_[abi::kMaxFdsPerMessage];
    int count_ = 0;
};

/// What is sent: a body, and more bytes or descriptors behind it for the ops that have them.
struct Outgoing {
    abi::Op op;
    std::span<const std::byte> body{};
    std::span<const std::byte> more{};
    int fd = -1;
};

class Connection {
public:
    Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection();

    /// Connects and says hello. 0 or errno; EPROTO: rocid speaks another ABI version (said on stderr).
    int open();
    /// Where the chunks of later replies go.
    void use(Arena* arena) { arena_ = arena; }

    /// Sends a request and waits for its reply; the reply's body is cut or zero-extended to `reply`. 0 or errno: rocid's answer,
    /// or EIO once rocid is gone. errno is the same number afterwards; a success leaves it as it was.
    int request(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds = nullptr);

    /// An empty struct has a byte all the same; none of it travels.
    template <class T>
    static std::span<const std::byte> bytes_of(const T& body) {
        if constexpr (std::is_empty_v<T>) return {};
        return std::as_bytes(std::span(&body, 1));
    }
    template <class Request, class Answer>
    int call(abi::Op op, const Request& body, Answer& answer, ReplyFds* fds = nullptr) {
        return request({op, bytes_of(body)}, std::as_writable_bytes(std::span(&answer, 1)), fds);
    }
    template <class Request>
    int tell(abi::Op op, const Request& body) {
        return request({op, bytes_of(body)}, {});
    }
    template <class Answer>
    int ask(abi::Op op, Answer& answer, ReplyFds* fds = nullptr) {
        return request({op}, std::as_writable_bytes(std::span(&answer, 1)), fds);
    }

    int fd() const { return fd_; }
    bool gone() const { return gone_.load(std::memory_order_relaxed); }
    /// rocid is gone: all further requests are EIO. Says so on stderr, once per process. Returns EIO.
    int lost(const char* why);
    /// Fork's child: forgets the connection without a word to rocid.
    void leave_to_parent();

private:
    int exchange_alone(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds);
    int exchange(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds);
    int send(const Outgoing& out, uint32_t cookie);
    int receive(uint32_t cookie, abi::ReplyHeader& header, ReplyFds& fds);
    ssize_t receive_patiently(msghdr& message);
    int hello();

    std::mutex mutex_;
    abi::CpuPace pace_{1};  ///< a look is a system call: it yields after each second one at the latest
    int fd_ = -1;
    std::atomic<bool> gone_{true};
    uint32_t next_cookie_ = 1;
    Arena* arena_ = nullptr;
    std::unique_ptr<std::byte[]> buffer_;  ///< last reply, kMaxMessage bytes
};

/// $ROCI_SOCKET or the default.
std::string socket_path();

}  // namespace roci::client
