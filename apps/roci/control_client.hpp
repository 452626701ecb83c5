// A small client of rocid's control socket: one request, one reply, with time limits. `roci` uses this client to query a rocid.
// The client libraries have separate code.
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

/// Owns a file descriptor and closes it.
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
    int error = 0;       ///< 0, or a positive errno of rocid or of the connection, such as ETIMEDOUT
    std::string reason;  ///< the error as text; rocid may send an error without a text
    std::vector<std::byte> body;
    std::vector<UniqueFd> fds;

    /// Returns the body as a plain struct. An older rocid may send a shorter body; the other members are then zero.
    template <class T>
    T as() const {
        T out{};
        std::memcpy(&out, body.data(), std::min(sizeof out, body.size()));
        return out;
    }
};

class ControlClient {
public:
    /// Connects and exchanges versions. Returns nullopt if no rocid answers or if the ABI versions differ. `why` then names the
    /// cause.
    static std::optional<ControlClient> connect(const std::string& socket_path, std::string& why);

    Answer request(abi::Op op, std::span<const std::byte> body = {});
    template <class Body>
    Answer request(abi::Op op, const Body& body) {
        return request(op, std::as_bytes(std::span(&body, 1)));
    }
    const abi::HelloReply& hello() const { return hello_; }
    int fd() const { return fd_.get(); }
    /// Passes the descriptor of the connection to the caller. The session lives until it is closed or this process ends.
    int release() { return fd_.release(); }

private:
    explicit ControlClient(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
    abi::HelloReply hello_{};
    uint32_t cookie_ = 0;
};

}  // namespace roci::cli
