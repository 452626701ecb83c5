// The control socket accepts connections of programs, passes requests to the conductor (rocid's control thread), and sends the
// conductor's replies. This code runs on the conductor's thread and never waits for a single client.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/cpu_pace.hpp"
#include "host/conductor.hpp"
#include "pmd_glue/clock.hpp"
#include "reaper.hpp"
#include "socket_lock.hpp"

struct epoll_event;

namespace roci::rocid {

/// The conductor's functions that the socket calls. Tests pass other functions.
struct SessionHandler {
    std::function<uint32_t(const host::Client&)> open;  ///< returns kNoHandle to refuse the client
    std::function<host::Reply(uint32_t session, const host::Client&, std::span<const std::byte>, std::span<const int>,
                              bool& close)>
        handle;
    std::function<void(uint32_t session, const host::Client&)> close;
    /// Returns the earliest time (pmd::Clock::monotonic()) at which the next request of the session may be read.
    std::function<Nanos(uint32_t session)> not_before = [](uint32_t) { return Nanos{0}; };
    std::function<Nanos()> now = pmd::Clock::monotonic;
};

/// Changes the group of a socket file. `group` is a name or a number. Throws pmd::StartError.
void give_to_group(const std::string& path, const std::string& group);

class ControlSocket {
public:
    /// Binds and listens. Creates the folder. Removes a socket file that a killed rocid has left. `reaper` closes descriptors of
    /// clients. `reaper` also closes connections, because a connection may contain unread descriptors. Throws pmd::StartError.
    ControlSocket(const std::string& path, uint32_t mode, SessionHandler handler, Reaper& reaper);
    /// Ends every session. Removes the socket file if this rocid still has the lock.
    ~ControlSocket();
    ControlSocket(const ControlSocket&) = delete;

    /// Adds another descriptor. serve() calls `ready` when the descriptor is readable.
    void watch(int fd, std::function<void()> ready);
    /// Serves pending events. If no event is pending, first waits at most `timeout_ms` for an event (-1: no limit).
    void serve(int timeout_ms);
    /// Sends a deferred reply. Does nothing if the connection is closed already. The socket reads no further request of the
    /// session before this call.
    void answer(uint32_t session, host::Reply& reply, bool close_after);
    /// Closes a session's connection. Does nothing if the connection is closed already.
    void end(uint32_t session, const char* why);
    size_t connections() const { return connections_.size(); }

    struct Counters {
        uint64_t accepted = 0, refused = 0, requests = 0, malformed = 0, slow_dropped = 0;
        uint64_t paused = 0;  ///< number of pauses of connections because of control_rate
    };
    const Counters& counters() const { return counters_; }

private:
    struct Connection {
        int fd = -1;
        int pidfd = -1;  ///< becomes readable when the client's process ends; -1: not supported by the kernel
        uint32_t session = 0;
        host::Client who;
        bool waits = false;  ///< a deferred reply is outstanding, or the connection is paused
        Nanos resumes = 0;   ///< end of the pause, as in paused_; 0: the connection is not paused
    };
    int await(epoll_event* events, int most, int timeout_ms);
    void accept_one();
    void refuse(const Connection& c);
    void refuse_for_want_of_descriptors();
    bool add(Connection c);
    void drop(int fd);
    bool closes_slowly(const host::Client& who) const { return reaper_.closing(who.uid) >= Reaper::kMostClosing; }
    void read_request(Connection& c);
    bool send_reply(Connection& c, host::Reply& reply);
    void listen_to(Connection& c, bool requests);
    void pause_if_too_fast(Connection& c);
    void resume_paused();
    int until_a_resumption(int timeout_ms) const;
    bool process_gone(const Connection& c) const;

    std::string path_;
    std::optional<SocketLock> lock_;  ///< on `path_`
    SessionHandler handler_;
    Reaper& reaper_;
    int epoll_ = -1, listen_ = -1;
    int spare_ = -1;  ///< reserve: closed to accept and refuse a connection if no descriptor is free
    std::unordered_map<int, Connection> connections_;
    std::set<std::pair<Nanos, int>> paused_;  ///< paused connections: end of the pause, descriptor
    std::unordered_map<int, int> owner_of_pidfd_;
    std::unordered_map<int, std::function<void()>> watched_;
    std::vector<std::byte> buffer_;
    abi::CpuPace pace_{1};    ///< at most one poll before a yield, because each poll is a system call
    bool attentive_ = false;  ///< a request has just been served
    Counters counters_;
};

}  // namespace roci::rocid
