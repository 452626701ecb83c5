// The conductor (rocid's control thread) manages sessions and their objects. The conductor processes one request at a time: it
// validates the request, updates the object tables, sends commands to the engines, and returns the reply. All I/O is behind the
// interface Platform. The conductor is not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/control.hpp"
#include "base/types.hpp"
#include "engine/command_port.hpp"
#include "host/config.hpp"
#include "host/platform.hpp"
#include "qp/shared.hpp"

namespace roci::host {

/// A reply to a client. After sending, the control socket closes all descriptors that shared_fds_mask does not mark.
struct Reply {
    std::vector<std::byte> bytes;      ///< consists of ReplyHeader, body and reason
    std::vector<int> fds;              ///< descriptors to send
    std::vector<int> shared_fds_mask;  ///< by index in `fds`; 1: the descriptor stays open after sending, because rocid keeps it
    bool deferred = false;  ///< next_reply() will return the reply; handle() must not be called for this session before
};

struct Client {
    int pid = 0;
    uint32_t uid = 0, gid = 0;
};

class Conductor {
public:
    Conductor(const Limits& limits, std::vector<DeviceConfig> devices, qp::Shared& shared, engine::CommandPort& engines,
              Platform& platform);
    /// Closes the remaining sessions by commands and fences, so the engines must still run.
    ~Conductor();

    /// Opens a session for an accepted connection. Returns the ID of the session. IDs are not reused while rocid runs. Returns
    /// kNoHandle if there are too many sessions, too little memory, or too many control operations of the user.
    uint32_t open_session(const Client& who);
    /// Handles a request packet. Takes over the packet's descriptors, also on failure. If `close` is set, the caller must send
    /// the reply and then close the connection.
    Reply handle(uint32_t session, std::span<const std::byte> packet, std::span<const int> fds, bool& close);
    /// Returns the earliest time at which the caller may handle the session's next request. If the session's user has exceeded
    /// control_rate, this time is in the future.
    Nanos not_before(uint32_t session) const;
    /// Ends the session of a closed connection and frees the session's objects. Afterwards no engine has a reference to the
    /// objects. Sets the conductor's time to `now`, from which the repetitions of a DREQ are counted.
    void close_session(uint32_t session, Nanos now);

    /// Returns the sessions whose queues or doorbells are lost (Platform::is_lost). The caller must close their connections.
    std::vector<uint32_t> sessions_without_memory() const;
    /// Returns the number of users for whom rocid stores rates or counts of refused requests.
    size_t users() const;

    /// Handles received management datagrams (MADs) and expired timers. Sets the conductor's time to `now`. The caller calls
    /// service() before requests and before open_session(), when an engine reports waiting MADs (Event::Kind::gsi), and at
    /// next_deadline().
    void service(Nanos now);
    Nanos next_deadline() const;
    /// Sets the parameters to the next deferred reply that is ready. Returns false if no reply is ready.
    bool next_reply(uint32_t& session, Reply& reply, bool& close);

    /// Replaces the addresses of a device. An address that remains keeps its GID index. If a GID changed, sends an event to
    /// programs and returns true.
    bool set_addresses(uint32_t device, std::span<const DeviceAddress> addresses);
    /// Sets the link state and path MTU of a device. Returns true if the state or the MTU changed. If the link state changed,
    /// sends an event to programs.
    bool set_link(uint32_t device, bool up, uint32_t mtu_bytes);
    /// neighbour_heard() and neighbour_gone() store results of Platform::solicit() and other changes of the kernel's neighbour
    /// table. `now` is the current time.
    void neighbour_heard(uint32_t device, const Gid& address, const MacAddress& mac, Nanos now);
    void neighbour_gone(uint32_t device, const Gid& address, Nanos now);

    /// Total numbers of objects. Tests compare these numbers to detect leaks.
    struct Totals {
        uint64_t sessions, pds, regions, mrs, channels, cqs, srqs, qps, ahs, mws, arena_bytes, mapped_bytes;
    };
    Totals totals() const;
    std::string status_json() const;

    struct State;

private:
    std::unique_ptr<State> state_;
};

}  // namespace roci::host
