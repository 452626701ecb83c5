// A small client of rocid's control socket: one request, one reply, with time limits. `roci` uses it to query a rocid; the
// client libraries have their own.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "abi/control.hpp"

namespace roci::cli {

/// A file descriptor that is closed with its owner.
class UniqueFd {
public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    ~UniqueFd();
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

struct Answer {
    int error = 0;       ///< 0, or a positive errno: rocid's, or of the connection (EPIPE, ETIMEDOUT)
    std::string reason;  ///< why, in words; empty on success
    std::vector<std::byte> body;
    std::vector<UniqueFd> fds;

    /// The body as a plain struct, zero-extended: an older rocid may send a shorter one.
    template <class T>
    T as() const {
        T out{};
        std::memcpy(&out, body.data(), std::min(sizeof out, body.size()));
        return out;
    }
};

class ControlClient {
public:
    /// Connects and exchanges versions. Returns nullopt if no rocid answers, or one of another ABI version; `why` names the cause
    /// and the remedy.
    static std::optional<ControlClient> connect(const std::string& socket_path, std::string& why);

    Answer request(abi::Op op, std::span<const std::byte> body = {});
    template <class Body>
    Answer request(abi::Op op, const Body& body) {
        return request(op, std::as_bytes(std::span(&body, 1)));
    }
    const abi::HelloReply& hello() const { return hello_; }
    int fd() const { return fd_.get(); }
    /// Releases the connection to the caller: the session lives as long as any process holds the descriptor.
    int release() { return fd_.release(); }

private:
    explicit ControlClient(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
    abi::HelloReply hello_{};
    uint32_t cookie_ = 0;
};

}  // namespace roci::cli
