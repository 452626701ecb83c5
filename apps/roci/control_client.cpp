#include "control_client.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace roci::cli {
namespace {

constexpr timeval kReplyTimeout{.tv_sec = 10, .tv_usec = 0};

UniqueFd connect_socket(const std::string& path, std::string& why) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        why = fmt::format("{}: longer than the {} characters that a unix socket's path may have", path,
                          sizeof address.sun_path - 1);
        return {};
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        why = fmt::format("{}: {}", path, std::strerror(errno));
        return {};
    }
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kReplyTimeout, sizeof kReplyTimeout);
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kReplyTimeout, sizeof kReplyTimeout);
    return fd;
}

std::vector<UniqueFd> take_fds(msghdr& message) {
    std::vector<UniqueFd> fds;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            fds.emplace_back(fd);
        }
    }
    return fds;
}

/// Receives one packet. If the connection has ended or the time limit has passed, sets errno and returns an empty vector.
std::vector<std::byte> receive(int fd, std::vector<UniqueFd>& fds) {
    std::vector<std::byte> packet(abi::kMaxMessage);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * abi::kMaxFdsPerMessage)];
    iovec vec{packet.data(), packet.size()};
    msghdr message{};
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t length = 0;
    do length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);  // with a time limit the kernel does not restart recvmsg() after a signal (signal(7))
    if (length == 0) errno = ECONNRESET;
    packet.resize(length > 0 ? size_t(length) : 0);
    if (length > 0) fds = take_fds(message);
    return packet;
}

Answer broken(int error) {
    Answer answer;
    answer.error = error == EAGAIN ? ETIMEDOUT : error;
    answer.reason =
        error == EAGAIN ? "rocid did not answer within 10 seconds" : fmt::format("connection to rocid: {}", std::strerror(error));
    return answer;
}

Answer parse_reply(std::span<const std::byte> packet, std::vector<UniqueFd> fds) {
    abi::ReplyHeader header{};
    if (packet.size() < sizeof header) return broken(EPROTO);
    std::memcpy(&header, packet.data(), sizeof header);
    packet = packet.subspan(sizeof header);
    if (uint64_t{header.body_length} + header.reason_length > packet.size()) return broken(EPROTO);
    Answer answer;
    answer.error = header.error;
    answer.body.assign(packet.begin(), packet.begin() + header.body_length);
    answer.reason.assign(reinterpret_cast<const char*>(packet.data()) + header.body_length, header.reason_length);
    answer.fds = std::move(fds);
    return answer;
}

}  // namespace

UniqueFd::~UniqueFd() {
    if (fd_ >= 0) ::close(fd_);
}

std::optional<ControlClient> ControlClient::connect(const std::string& socket_path, std::string& why) {
    UniqueFd fd = connect_socket(socket_path, why);
    if (!fd) return std::nullopt;
    ControlClient client(std::move(fd));
    abi::HelloRequest hello{.magic = abi::kHelloMagic, .abi_version = abi::kAbiVersion, .program = "roci"};
    const Answer answer = client.request(abi::Op::hello, hello);
    if (answer.error != 0) {
        why = fmt::format("{}: {}", socket_path, answer.reason.empty() ? std::strerror(answer.error) : answer.reason);
        return std::nullopt;
    }
    client.hello_ = answer.as<abi::HelloReply>();
    return client;
}

Answer ControlClient::request(abi::Op op, std::span<const std::byte> body) {
    const abi::RequestHeader header{.op = op, .reserved = 0, .cookie = ++cookie_};
    std::vector<std::byte> packet(sizeof header + body.size());
    std::memcpy(packet.data(), &header, sizeof header);
    std::copy(body.begin(), body.end(), packet.begin() + sizeof header);
    ssize_t sent = 0;
    do sent = send(fd_.get(), packet.data(), packet.size(), MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0) return broken(errno);
    std::vector<UniqueFd> fds;
    const std::vector<std::byte> reply = receive(fd_.get(), fds);
    if (reply.empty()) return broken(errno);
    return parse_reply(reply, std::move(fds));
}

}  // namespace roci::cli
