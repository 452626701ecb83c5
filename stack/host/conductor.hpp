// The conductor: sessions and their objects, sans-IO. Takes one control message at a time, validates everything in it, keeps the
// object tables, drives the engines by commands and answers. All of one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/control.hpp"
#include "base/types.hpp"
#include "engine/command.hpp"
#include "host/config.hpp"
#include "host/platform.hpp"
#include "io/shared.hpp"

namespace roci::host {

/// Descriptors are owned by whoever holds the struct; the transport closes what it has sent.
struct Reply {
    std::vector<std::byte> bytes;      ///< ReplyHeader, body, reason
    std::vector<int> fds;              ///< to send, then to close; those of `shared_fds` are not closed
    std::vector<int> shared_fds_mask;  ///< 1 = the fd at this index stays open after sending (arena chunks, engine page)
    bool deferred = false;             ///< empty: the reply comes later, from next_reply(); take no further request meanwhile
};

struct Client {
    int pid = 0;
    uint32_t uid = 0, gid = 0;
};

class Conductor {
public:
    Conductor(const Limits& limits, std::vector<DeviceConfig> devices, engine::Shared& shared, engine::CommandPort& engines,
              Platform& platform);
    /// Closes what sessions are left, by commands and fences: engines must still run.
    ~Conductor();

    /// A connection was accepted. Returns a session id (never reused while rocid lives), or kNoHandle when there are too many.
    uint32_t open_session(const Client& who);
    /// One request packet and its descriptors (taken over in any case). Always gives a reply; `close` = the connection must be
    /// closed after it.
    Reply handle(uint32_t session, std::span<const std::byte> packet, std::span<const int> fds, bool& close);
    /// The connection is gone: reclaims everything. Engines hold nothing of it afterwards.
    void close_session(uint32_t session);

    /// Sessions whose queues or doorbells are lost (Platform::is_lost). They cannot go on: end their connections.
    std::vector<uint32_t> sessions_without_memory() const;

    /// What the conductor does by itself: management datagrams that arrived, timers of connections. Called before requests, when
    /// an engine says that MADs wait (Event::Kind::gsi), and at next_deadline(). Sets the conductor's time.
    void service(Nanos now);
    Nanos next_deadline() const;
    /// A reply that was deferred and is there now. False: none is.
    bool next_reply(uint32_t& session, Reply& reply, bool& close);

    /// The addresses of a device are these now. What stays keeps its GID index. True: something changed, and programs were told.
    bool set_addresses(uint32_t device, std::span<const DeviceAddress> addresses);
    /// How the link of a device is from now on, and which path MTU it carries. Programs are told by port events. True: something
    /// is new.
    bool set_link(uint32_t device, bool up, uint32_t mtu_bytes);
    /// Answers to Platform::solicit(), and what else the kernel learns of neighbours.
    void neighbour_heard(uint32_t device, const Gid& address, const MacAddress& mac);
    void neighbour_gone(uint32_t device, const Gid& address);

    /// Totals, to prove that nothing leaks.
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
