#include "metrics.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstring>

#include "pmd_glue/eal.hpp"

namespace roci::rocid {
namespace {

using Clock = std::chrono::steady_clock;

/// Time limit in ms for reading a request, and for writing the response. Meanwhile the next client waits.
constexpr int kPatienceMs = 2000;
constexpr size_t kLongestRequest = 8192;

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
    throw pmd::StartError(
        fmt::format("metrics = \"{}\": {}; give ADDRESS:PORT, or the absolute path of a unix socket", where, why));
}

/// Creates a listening socket. For a unix socket, bind() creates the socket file with the mode `mode`.
int listen_at(const sockaddr* address, socklen_t length, const std::string& where, mode_t mode = 0600) {
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || fchmod(fd, mode) != 0 || bind(fd, address, length) != 0 || listen(fd, 16) != 0) {
        const int error = errno;
        if (fd >= 0) close(fd);
        refuse(where, std::strerror(error));
    }
    return fd;
}

/// Creates the listening unix socket `path` with mode 0600. So only rocid's user may connect unless the administrator changes the
/// mode of the file. The caller holds the lock of the path (SocketLock).
int listen_unix(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) refuse(path, "the path is too long");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    struct stat there {};
    if (lstat(path.c_str(), &there) == 0) {
        if (!S_ISSOCK(there.st_mode)) refuse(path, "the file is not a socket: remove it");
        if (!deserted(path)) refuse(path, "another process serves it");
        unlink(path.c_str());
    }
    return listen_at(reinterpret_cast<const sockaddr*>(&address), sizeof address, path);
}

int listen_tcp(const std::string& where) {
    const size_t colon = where.rfind(':');
    if (colon == std::string::npos) refuse(where, "it has no port");
    std::string host = where.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    uint16_t port = 0;
    const char* const end = where.data() + where.size();
    const auto [rest, error] = std::from_chars(where.data() + colon + 1, end, port);
    if (error != std::errc{} || rest != end) refuse(where, "its port is not a number up to 65535");
    sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
    if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1)
        return listen_at(reinterpret_cast<const sockaddr*>(&v4), sizeof v4, where);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1)
        return listen_at(reinterpret_cast<const sockaddr*>(&v6), sizeof v6, where);
    refuse(where, fmt::format("'{}' is no IP address", host));
}

/// Waits until `fd` is ready or the peer has closed the connection. Returns false if the time `until` has passed before.
bool wait_for(int fd, short what, Clock::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd p{fd, what, 0};
    return left > 0 && poll(&p, 1, int(left)) == 1;
}

/// Returns the head of the request. Returns an empty string if the head does not arrive in time, or if the client closes the
/// connection.
std::string read_head(int fd, Clock::time_point until) {
    std::string head;
    while (head.find("\r\n\r\n") == std::string::npos && head.size() < kLongestRequest) {
        char buffer[1024];
        if (!wait_for(fd, POLLIN, until)) return {};
        const ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n <= 0) return {};
        head.append(buffer, size_t(n));
    }
    return head;
}

void write_all(int fd, const std::string& text, Clock::time_point until) {
    for (size_t at = 0; at < text.size();) {
        const ssize_t n = send(fd, text.data() + at, text.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) at += size_t(n);
        if (n < 0 && (errno != EAGAIN || !wait_for(fd, POLLOUT, until))) return;
    }
}

std::string response(const char* status, const char* type, const std::string& body) {
    return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status, type,
                       body.size(), body);
}

}  // namespace

TextRequest::TextRequest() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw pmd::StartError("no descriptor for metrics");
}
TextRequest::~TextRequest() { ::close(fd_); }

std::string TextRequest::wait_for_text(int limit_ms) {
    std::unique_lock guard(lock_);
    fulfilled_ = false;
    eventfd_write(fd_, 1);
    changed_.wait_for(guard, std::chrono::milliseconds(limit_ms), [&] { return fulfilled_ || closed_; });
    return fulfilled_ ? std::move(text_) : std::string();
}

void TextRequest::fulfil(std::string text) {
    eventfd_t n;
    eventfd_read(fd_, &n);
    const std::lock_guard guard(lock_);
    text_ = std::move(text);
    fulfilled_ = true;
    changed_.notify_all();
}

void TextRequest::close() {
    const std::lock_guard guard(lock_);
    closed_ = true;
    changed_.notify_all();
}

MetricsServer::MetricsServer(const std::string& where, std::function<std::string()> text) : text_(std::move(text)) {
    if (where.starts_with('/')) {
        lock_path(where);
        path_ = where;
        listen_ = listen_unix(where);
    } else {
        listen_ = listen_tcp(where);
    }
    stop_ = eventfd(0, EFD_CLOEXEC);
    if (stop_ < 0) refuse(where, "no descriptor");
    thread_ = std::thread([this] { run(); });
}

void MetricsServer::lock_path(const std::string& path) {
    try {
        lock_.emplace(path, "change the key 'rocid.metrics'");
    } catch (const pmd::StartError& e) {
        refuse(path, e.what());
    }
}

MetricsServer::~MetricsServer() {
    eventfd_write(stop_, 1);
    thread_.join();
    close(listen_);
    close(stop_);
    if (lock_ && lock_->ours()) unlink(path_.c_str());
}

int MetricsServer::port() const {
    sockaddr_storage a{};
    socklen_t length = sizeof a;
    if (!path_.empty() || getsockname(listen_, reinterpret_cast<sockaddr*>(&a), &length) != 0) return 0;
    return ntohs(a.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(a).sin_port
                                        : reinterpret_cast<sockaddr_in6&>(a).sin6_port);
}

void MetricsServer::run() {
    pthread_setname_np(pthread_self(), "rocid-metrics");
    for (;;) {
        pollfd fds[] = {{listen_, POLLIN, 0}, {stop_, POLLIN, 0}};
        if (poll(fds, std::size(fds), -1) < 0) continue;
        if (fds[1].revents != 0) return;
        const int connection = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection >= 0) {
            serve(connection);
            close(connection);
        } else if (errno == EMFILE || errno == ENFILE) {
            poll(&fds[1], 1, kPatienceMs);  // does not wait for listen_, because the queued connection would end the wait at once
        }
    }
}

void MetricsServer::serve(int connection) const {
    const auto until = Clock::now() + std::chrono::milliseconds(kPatienceMs);
    const std::string head = read_head(connection, until);
    if (head.empty()) return;
    const bool wanted = head.starts_with("GET /metrics ") || head.starts_with("GET /metrics?") || head.starts_with("GET / ");
    const std::string answer = wanted ? response("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text_())
                                      : response("404 Not Found", "text/plain", "rocid serves GET /metrics\n");
    write_all(connection, answer, Clock::now() + std::chrono::milliseconds(kPatienceMs));
}

}  // namespace roci::rocid
