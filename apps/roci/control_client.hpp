// A small client of rocid's control socket: one request, one reply, with time limits. What `roci` needs to look at a rocid; the
// verbs client has its own.
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
    /// Connects and says hello. nullopt: nobody answers there, or a rocid that speaks another ABI version; `why` says which and
    /// what to do.
    static std::optional<ControlClient> connect(const std::string& socket_path, std::string& why);

    Answer request(abi::Op op, std::span<const std::byte> body = {});
    template <class Body>
    Answer request(abi::Op op, const Body& body) {
        return request(op, std::as_bytes(std::span(&body, 1)));
    }
    const abi::HelloReply& hello() const { return hello_; }
    /// Gives the connection away: rocid keeps the session as long as somebody holds the descriptor.
    int release() { return fd_.release(); }

private:
    explicit ControlClient(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
    abi::HelloReply hello_{};
    uint32_t cookie_ = 0;
};

}  // namespace roci::cli
