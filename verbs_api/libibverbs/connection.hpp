// A connection to rocid. One connection is one session. A thread holds the connection's mutex from the sending of a request until
// the reply is received.
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

/// The descriptors of a reply. The destructor closes the descriptors that were not taken.
class ReplyFds {
public:
    ReplyFds() = default;
    ReplyFds(const ReplyFds&) = delete;
    ReplyFds& operator=(const ReplyFds&) = delete;
    ~ReplyFds();
    int size() const { return count_; }
    /// Passes descriptor i to the caller, who closes it.
    int take(int i);
    void add(int fd) { fd_[count_++] = fd; }

private:
    int fd_[abi::kMaxFdsPerMessage];
    int count_ = 0;
};

/// The parts of a request: the body, the bytes that follow the body (`more`), and a descriptor (`fd`; -1: none).
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

    /// Connects and sends hello. Returns 0 or an errno. EPROTO means that rocid does not support the ABI version of this library.
    /// In this case the function also prints a message on stderr.
    int open();
    /// Sets the arena. If a later request needs another chunk, request() adds the chunk to this arena.
    void use(Arena* arena) { arena_ = arena; }

    /// Sends a request and waits for its reply. Truncates the reply's body to the size of `reply`, or pads it with zeros. Returns
    /// 0, rocid's errno, or EIO if rocid has ended. An error also sets errno; success does not change errno.
    int request(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds = nullptr);

    /// Returns the bytes of a request body. The size of an empty struct is 1 in C++, but the body then has no bytes.
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
    /// Called when the connection is lost. All further requests fail with EIO. Prints a message on stderr, at most once until the
    /// process opens another connection. Returns EIO.
    int lost(const char* why);
    /// Called in a fork's child. Closes the child's descriptor without a message to rocid. Later requests fail with EIO.
    void leave_to_parent();

private:
    int exchange_alone(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds);
    int exchange(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds);
    int exchange_once(const Outgoing& out, std::span<std::byte> reply, ReplyFds* fds, uint64_t& wanted_chunk);
    int add_chunk(uint64_t length);
    int send(const Outgoing& out, uint32_t cookie);
    int receive(uint32_t cookie, abi::ReplyHeader& header, ReplyFds& fds);
    ssize_t receive_patiently(msghdr& message);
    int hello();

    std::mutex mutex_;
    abi::CpuPace pace_{1};  ///< at most 1 empty poll before a yield, because each poll is a system call
    int fd_ = -1;
    std::atomic<bool> gone_{true};
    uint32_t next_cookie_ = 1;
    Arena* arena_ = nullptr;
    std::unique_ptr<std::byte[]> buffer_;  ///< the last reply, at most kMaxMessage bytes
};

/// Returns the value of ROCI_SOCKET. If the variable is unset or empty, or the program is setuid, returns the default path.
std::string socket_path();

}  // namespace roci::client
