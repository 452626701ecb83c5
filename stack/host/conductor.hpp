// The conductor manages sessions and their objects. It processes one control message at a time: it validates the request, updates
// the object tables, controls the engines by commands, and replies. The conductor does no I/O of its own and is not thread-safe.
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

/// A reply to a client. The control socket closes the descriptors after sending, except those in shared_fds_mask.
struct Reply {
    std::vector<std::byte> bytes;      ///< consists of ReplyHeader, body and reason
    std::vector<int> fds;              ///< descriptors to send
    std::vector<int> shared_fds_mask;  ///< by index in `fds`; 1: the descriptor stays open after sending, because rocid keeps it
    bool deferred = false;  ///< next_reply() returns the reply later; until then handle() must not be called for this session
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

    /// Opens the session of an accepted connection. Returns its ID, which is not reused while rocid runs, or kNoHandle if there
    /// are too many sessions, too little memory, or too many control operations of the user.
    uint32_t open_session(const Client& who);
    /// Handles a request packet. Takes over the packet's descriptors in any case. If `close` is set, the caller must close the
    /// connection after it has sent the reply.
    Reply handle(uint32_t session, std::span<const std::byte> packet, std::span<const int> fds, bool& close);
    /// Returns the time before which the caller must not handle the session's next request. The time lies in the future if the
    /// session's user has exceeded control_rate.
    Nanos not_before(uint32_t session) const;
    /// Ends the session of a closed connection and reclaims all its objects. Afterwards no engine has a reference to them.
    void close_session(uint32_t session);

    /// Returns the sessions whose queues or doorbells are lost (Platform::is_lost). The caller must close their connections.
    std::vector<uint32_t> sessions_without_memory() const;
    /// Returns the number of users for whom rocid keeps rates or counts of refusals. Most have a session or a debt.
    size_t users() const;

    /// Handles received management datagrams and the timers of connections. Called before requests, when an engine reports
    /// waiting MADs (Event::Kind::gsi), and at next_deadline(). `now` becomes the conductor's time.
    void service(Nanos now);
    Nanos next_deadline() const;
    /// Sets the parameters to the next deferred reply that is ready. Returns false if there is none.
    bool next_reply(uint32_t& session, Reply& reply, bool& close);

    /// Replaces the addresses of a device. An address that remains keeps its GID index. Returns true if a GID changed; programs
    /// then get an event.
    bool set_addresses(uint32_t device, std::span<const DeviceAddress> addresses);
    /// Sets the link state and path MTU of a device. Returns true if one of them changed. Programs get an event if the link state
    /// changed.
    bool set_link(uint32_t device, bool up, uint32_t mtu_bytes);
    /// Take the results of Platform::solicit() and other changes of the kernel's neighbour table.
    void neighbour_heard(uint32_t device, const Gid& address, const MacAddress& mac);
    void neighbour_gone(uint32_t device, const Gid& address);

    /// Total numbers of objects. Tests detect leaks by them.
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
