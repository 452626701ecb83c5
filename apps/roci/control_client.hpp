// A small client of rocid's control socket. The client sends one request and waits for its reply, at most 10 seconds. `roci` uses
// this client to query a rocid. The client libraries have separate code (libibverbs/connection.hpp).
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
    int error = 0;       ///< 0, or a positive errno: rocid's error, or an error of the connection, such as ETIMEDOUT
    std::string reason;  ///< the text of the error; "" if rocid sent no text
    std::vector<std::byte> body;
    std::vector<UniqueFd> fds;

    /// Returns the body as a plain struct. If the body is shorter than the struct, because rocid is older, the other members are
    /// zero.
    template <class T>
    T as() const {
        T out{};
        std::memcpy(&out, body.data(), std::min(sizeof out, body.size()));
        return out;
    }
};

class ControlClient {
public:
    /// Connects and sends hello. Returns nullopt if no rocid answers, or if rocid does not support the ABI version of this
    /// program. `why` then contains the cause.
    static std::optional<ControlClient> connect(const std::string& socket_path, std::string& why);

    Answer request(abi::Op op, std::span<const std::byte> body = {});
    template <class Body>
    Answer request(abi::Op op, const Body& body) {
        return request(op, std::as_bytes(std::span(&body, 1)));
    }
    const abi::HelloReply& hello() const { return hello_; }
    int fd() const { return fd_.get(); }
    /// Passes the descriptor of the connection to the caller. The session ends when all copies of the descriptor are closed.
    int release() { return fd_.release(); }

private:
    explicit ControlClient(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
    abi::HelloReply hello_{};
    uint32_t cookie_ = 0;
};

}  // namespace roci::cli
