#include "control_socket.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include <spdlog/spdlog.h>

#include "errno_text.hpp"
#include "pmd_glue/eal.hpp"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace roci::rocid {
namespace {

using pmd::StartError;

constexpr int kMostFds = 253;  // SCM_MAX_FD: the kernel's limit per message

sockaddr_un address_of(const std::string& path) {
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof a.sun_path)
        throw StartError("socket path '" + path + "' is empty or longer than " + std::to_string(sizeof a.sun_path - 1) +
                         " characters: choose another with --socket");
    std::memcpy(a.sun_path, path.c_str(), path.size() + 1);
    return a;
}

void make_folder(const std::filesystem::path& folder) {
    if (folder.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error)
        throw StartError("cannot make the folder '" + folder.string() + "' for the socket: " + error.message() +
                         "; run as root, or choose another place with --socket PATH");
}

/// Creates the listening socket. The caller holds the lock of the path (SocketLock). Throws StartError if a server listens at the
/// path. Such a server can be another rocid whose lock file was removed.
int listen_at(const std::string& path, uint32_t mode) {
    const sockaddr_un a = address_of(path);
    struct stat s {};
    if (lstat(path.c_str(), &s) == 0) {
        if (!S_ISSOCK(s.st_mode))
            throw StartError("'" + path + "' is there and is no socket: remove it, or choose another place with --socket PATH");
        if (!deserted(path))
            throw StartError("another rocid answers at '" + path +
                             "': use that one, stop it, or choose another place with --socket PATH");
        unlink(path.c_str());
    }
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 || chmod(path.c_str(), mode) != 0 ||
        listen(fd, 128) != 0) {
        const std::string why = errno_text();
        if (fd >= 0) close(fd);
        throw StartError("cannot listen at '" + path + "': " + why + "; run as root, or choose another place with --socket PATH");
    }
    return fd;
}

int pidfd_of_peer(int fd, int pid) {
    int pidfd = -1;
    socklen_t length = sizeof pidfd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) return pidfd;
    return int(syscall(SYS_pidfd_open, pid, 0));
}

bool epoll_add(int epoll, int fd) {
    epoll_event e{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

std::vector<int> descriptors_of(msghdr& m) {
    std::vector<int> fds;
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        const size_t before = fds.size();
        fds.resize(before + n);
        std::memcpy(fds.data() + before, CMSG_DATA(c), n * sizeof(int));
    }
    return fds;
}

void close_sent(host::Reply& r) {
    for (size_t i = 0; i < r.fds.size(); ++i)
        if (i >= r.shared_fds_mask.size() || r.shared_fds_mask[i] == 0) close(r.fds[i]);
    r.fds.clear();
}

}  // namespace

void give_to_group(const std::string& path, const std::string& group) {
    gid_t id = 0;
    const auto [end, error] = std::from_chars(group.data(), group.data() + group.size(), id);
    if (error != std::errc{} || end != group.data() + group.size()) {
        const struct group* found = getgrnam(group.c_str());
        if (found == nullptr)
            throw StartError("rocid.socket_group: there is no group '" + group + "' (groupadd --system " + group + ")");
        id = found->gr_gid;
    }
    if (chown(path.c_str(), uid_t(-1), id) != 0)
        throw StartError("rocid.socket_group: the socket cannot be given to group '" + group + "': " + errno_text() +
                         "; add rocid's user to the group");
}

ControlSocket::ControlSocket(const std::string& path, uint32_t mode, SessionHandler handler, Reaper& reaper)
    : path_(path), handler_(std::move(handler)), reaper_(reaper), buffer_(abi::kMaxMessage + 1) {
    make_folder(std::filesystem::path(path).parent_path());
    address_of(path);  // called before the lock is taken, so that an error is about the socket's path
    lock_.emplace(path, "choose another place with --socket PATH");
    listen_ = listen_at(path, mode);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (epoll_ < 0 || spare_ < 0 || !epoll_add(epoll_, listen_))
        throw StartError("no descriptors for the control socket: " + errno_text());
}

ControlSocket::~ControlSocket() {
    if (lock_->ours()) unlink(path_.c_str());
    reaper_.close(geteuid(), listen_);  // connections in its queue may contain descriptors of clients
    while (!connections_.empty()) drop(connections_.begin()->first);
    close(epoll_);
    close(spare_);
}

void ControlSocket::watch(int fd, std::function<void()> ready) {
    watched_[fd] = std::move(ready);
    epoll_add(epoll_, fd);
}

/// Waits for events. Programs usually send several requests in a row. So after a request, the thread polls for the next request
/// for 20 microseconds before it sleeps, because polling is cheaper than sleeping and waking. The thread stops polling if a busy
/// program uses the same CPU.
int ControlSocket::await(epoll_event* events, int most, int timeout_ms) {
    constexpr uint64_t kAttentive = 20'000;
    if (attentive_ && timeout_ms != 0) {
        using enum abi::CpuPace::Way;
        attentive_ = false;
        const uint64_t end = abi::monotonic_ns() + kAttentive;
        for (abi::CpuPace::Way way = look_again; way != sleep && abi::monotonic_ns() < end;) {
            if (const int n = epoll_wait(epoll_, events, most, 0); n != 0) return n;
            way = pace_.in_vain();
            if (way == yield) abi::yield_cpu(pace_);
        }
    }
    return epoll_wait(epoll_, events, most, timeout_ms);
}

void ControlSocket::serve(int timeout_ms) {
    constexpr int kEvents = 64;
    epoll_event events[kEvents];
    const int n = await(events, kEvents, until_a_resumption(timeout_ms));
    bool somebody_new = false;
    for (int i = 0; i < n; ++i) {
        const int fd = events[i].data.fd;
        if (fd == listen_) {
            somebody_new = true;
        } else if (const auto w = watched_.find(fd); w != watched_.end()) {
            w->second();
        } else if (const auto p = owner_of_pidfd_.find(fd); p != owner_of_pidfd_.end()) {
            drop(p->second);
        } else if (const auto c = connections_.find(fd); c != connections_.end()) {
            if (c->second.waits) {
                drop(fd);  // a waiting connection reports only a hang-up
            } else {
                read_request(c->second);
                attentive_ = true;
            }
        }
    }
    // Accepts last. The loop above may have closed descriptors, and `events` may still contain events of these descriptors. A new
    // connection may get the same descriptor number.
    if (somebody_new) accept_one();
    resume_paused();
}

void ControlSocket::accept_one() {
    const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) refuse_for_want_of_descriptors();
        return;
    }
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        close(fd);
        return;
    }
    Connection c{.fd = fd, .pidfd = pidfd_of_peer(fd, peer.pid), .session = 0, .who = {peer.pid, peer.uid, peer.gid}};
    if (closes_slowly(c.who)) {
        spdlog::warn("connection of pid {} refused: {} descriptors of user {} wait to be closed", peer.pid,
                     reaper_.closing(peer.uid), peer.uid);
        return refuse(c);
    }
    c.session = handler_.open(c.who);
    if (c.session == abi::kNoHandle || !add(c)) {
        spdlog::warn(
            "connection of pid {} refused: too many sessions or control operations of user {}, or too little memory "
            "(memory.max)",
            peer.pid, peer.uid);
        if (c.session != abi::kNoHandle) handler_.close(c.session, c.who);
        return refuse(c);
    }
    ++counters_.accepted;
    pause_if_too_fast(connections_[fd]);
}

void ControlSocket::refuse(const Connection& c) {
    ++counters_.refused;
    if (c.pidfd >= 0) close(c.pidfd);
    shutdown(c.fd, SHUT_RDWR);
    reaper_.close(c.who.uid, c.fd);
}

/// Called if no descriptor is free for a new connection. Closes the spare descriptor, so that rocid can accept the connection and
/// close it. If the connection stayed in the queue of the listening socket, the socket would remain readable, and serve() would
/// return at once each time.
void ControlSocket::refuse_for_want_of_descriptors() {
    close(spare_);
    const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
        ucred peer{.pid = 0, .uid = geteuid(), .gid = 0};
        socklen_t length = sizeof peer;
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
        reaper_.close(peer.uid, fd);
    }
    spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ++counters_.refused;
    spdlog::warn("connection refused: no file descriptors left (raise LimitNOFILE)");
}

bool ControlSocket::add(Connection c) {
    if (!epoll_add(epoll_, c.fd)) return false;
    if (c.pidfd >= 0 && epoll_add(epoll_, c.pidfd)) owner_of_pidfd_[c.pidfd] = c.fd;
    connections_[c.fd] = c;
    return true;
}

void ControlSocket::drop(int fd) {
    const auto it = connections_.find(fd);
    if (it == connections_.end()) return;
    const Connection c = it->second;
    connections_.erase(it);
    if (c.resumes != 0) paused_.erase({c.resumes, fd});
    handler_.close(c.session, c.who);
    if (c.pidfd >= 0) {
        epoll_ctl(epoll_, EPOLL_CTL_DEL, c.pidfd, nullptr);
        owner_of_pidfd_.erase(c.pidfd);
        close(c.pidfd);
    }
    epoll_ctl(epoll_, EPOLL_CTL_DEL, c.fd, nullptr);
    shutdown(c.fd, SHUT_RDWR);
    reaper_.close(c.who.uid, c.fd);  // also closes descriptors in unread messages of the connection
}

/// Returns true if the process that opened the session has ended. A child process may still have the socket, but must not use the
/// session.
bool ControlSocket::process_gone(const Connection& c) const {
    if (c.pidfd < 0) return false;
    pollfd p{.fd = c.pidfd, .events = POLLIN, .revents = 0};
    return poll(&p, 1, 0) == 1;
}

void ControlSocket::read_request(Connection& c) {
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))];
    iovec v{buffer_.data(), buffer_.size()};
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(c.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return drop(c.fd);
    const std::vector<int> fds = descriptors_of(m);
    const bool malformed =
        (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || size_t(n) > abi::kMaxMessage || fds.size() > abi::kMaxFdsPerMessage;
    const bool hoards = !fds.empty() && closes_slowly(c.who);
    if (n == 0 || malformed || hoards || process_gone(c)) {
        for (const int fd : fds) reaper_.close(c.who.uid, fd);
        if (malformed) {
            ++counters_.malformed;
            spdlog::warn("pid {} sent a message that is too long: connection closed", c.who.pid);
        }
        if (hoards) {
            ++counters_.malformed;
            spdlog::warn("pid {} sends descriptors, and {} of user {} wait to be closed: connection closed", c.who.pid,
                         reaper_.closing(c.who.uid), c.who.uid);
        }
        return drop(c.fd);
    }
    ++counters_.requests;
    bool close_after = false;
    host::Reply reply = handler_.handle(c.session, c.who, std::span(buffer_).first(size_t(n)), fds, close_after);
    if (reply.deferred) return listen_to(c, false);
    const bool sent = send_reply(c, reply);
    close_sent(reply);
    if (!sent || close_after) return drop(c.fd);
    pause_if_too_fast(c);
}

/// If the connection's user has exceeded the rate of control operations, stops reading the connection for some time. Other users
/// do not wait.
void ControlSocket::pause_if_too_fast(Connection& c) {
    const Nanos at = handler_.not_before(c.session);
    if (at <= handler_.now()) return;
    ++counters_.paused;
    c.resumes = at;
    paused_.insert({at, c.fd});
    listen_to(c, false);
}

void ControlSocket::resume_paused() {
    if (paused_.empty()) return;
    for (const Nanos now = handler_.now(); !paused_.empty() && paused_.begin()->first <= now;) {
        Connection& c = connections_.at(paused_.begin()->second);
        paused_.erase(paused_.begin());
        c.resumes = 0;
        listen_to(c, true);
    }
}

/// Returns the milliseconds until the next paused connection may be read, but at most `timeout_ms` (-1: no limit). If no
/// connection is paused, returns `timeout_ms`.
int ControlSocket::until_a_resumption(int timeout_ms) const {
    constexpr Nanos kMs = 1'000'000, kLongest = 60'000;
    if (paused_.empty()) return timeout_ms;
    const Nanos at = paused_.begin()->first, now = handler_.now();
    const int wait = at <= now ? 0 : int(std::min((at - now) / kMs + 1, kLongest));
    return timeout_ms < 0 ? wait : std::min(timeout_ms, wait);
}

/// Sets the events that epoll reports for a connection: requests and a hang-up, or only a hang-up if `requests` is false.
void ControlSocket::listen_to(Connection& c, bool requests) {
    c.waits = !requests;
    epoll_event e{.events = requests ? EPOLLIN | EPOLLRDHUP : uint32_t(EPOLLRDHUP), .data = {.fd = c.fd}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, c.fd, &e);
}

void ControlSocket::answer(uint32_t session, host::Reply& reply, bool close_after) {
    const auto it =
        std::find_if(connections_.begin(), connections_.end(), [&](const auto& c) { return c.second.session == session; });
    if (it == connections_.end()) return close_sent(reply);
    Connection& c = it->second;
    listen_to(c, true);
    const bool sent = send_reply(c, reply);
    close_sent(reply);
    if (!sent || close_after) return drop(c.fd);
    pause_if_too_fast(c);
}

void ControlSocket::end(uint32_t session, const char* why) {
    const auto it =
        std::find_if(connections_.begin(), connections_.end(), [&](const auto& c) { return c.second.session == session; });
    if (it == connections_.end()) return;
    spdlog::warn("session {} of pid {} ended: {}", session, it->second.who.pid, why);
    drop(it->first);
}

bool ControlSocket::send_reply(Connection& c, host::Reply& reply) {
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))];
    iovec v{reply.bytes.data(), reply.bytes.size()};
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    if (!reply.fds.empty()) {
        const size_t bytes = reply.fds.size() * sizeof(int);
        if (reply.fds.size() > size_t(kMostFds)) return false;
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(bytes);
        cmsghdr* h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(bytes);
        std::memcpy(CMSG_DATA(h), reply.fds.data(), bytes);
    }
    if (sendmsg(c.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == ssize_t(reply.bytes.size())) return true;
    ++counters_.slow_dropped;
    spdlog::warn("pid {} does not read its replies ({}): connection closed", c.who.pid, errno_text());
    return false;
}

}  // namespace roci::rocid
