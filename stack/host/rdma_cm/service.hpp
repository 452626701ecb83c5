// The rdma_cm service of the conductor (rocid's control thread). The service implements the clients' ids as specified in
// rdma_cm(7): addresses, port spaces, listeners with backlogs, and events on channels. The communication manager (cm/manager.hpp)
// establishes the connections.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "abi/cm_control.hpp"
#include "cm/manager.hpp"
#include "host/call.hpp"
#include "host/handle_table.hpp"
#include "host/paths/neighbours.hpp"
#include "host/rdma_cm/journal.hpp"

namespace roci::host::rdma_cm {

/// The values of enum rdma_cm_event_type.
enum class CmEventType : uint32_t {
    addr_resolved,
    addr_error,
    route_resolved,
    route_error,
    connect_request,
    connect_response,
    connect_error,
    unreachable,
    rejected,
    established,
    disconnected,
    device_removal,
    multicast_join,
    multicast_error,
    addr_change,
    timewait_exit,
    addrinfo_resolved,
    addrinfo_error,
    user,
};

struct CmEvent {
    uint32_t id = abi::kNoHandle;     ///< id of the event; for CONNECT_REQUEST, the listener
    uint32_t child = abi::kNoHandle;  ///< for CONNECT_REQUEST, the new id
    uint32_t id_generation = 0, child_generation = 0;
    uint32_t group = abi::kNoHandle;
    CmEventType type = CmEventType::addr_resolved;
    int32_t status = 0;
    abi::CmParam param{};
    abi::AhAttr ah{};
    bool written() const { return type >= CmEventType::addrinfo_resolved; }
};

struct CmChannel {
    std::deque<CmEvent> events;
    uint32_t stale = 0;  ///< approximate number of events of destroyed ids
    uint32_t ids = 0;
};

enum class IdState : uint8_t {
    idle,
    bound,
    listening,
    resolving,
    addr_resolved,
    route_resolved,
    connecting,
    requested,
    accepted,
    connected,
    disconnected
};

struct CmGroup {
    uint32_t id = 0;
    uint32_t events_reported = 0;
};

struct CmId {
    uint32_t handle = 0;
    uint32_t channel = 0;
    cm::PortSpace space = cm::PortSpace::tcp;
    qp::Type qp_type = qp::Type::rc;
    IdState state = IdState::idle;
    abi::CmAddress source{}, dest{};
    std::optional<uint32_t> device;
    Gid local, remote;
    MacAddress remote_mac;
    bool owns_port = false;
    bool reuse = false, af_only = false;
    uint8_t traffic_class = 0, ack_timeout = 14;
    uint32_t psn = 0;
    uint8_t responder_resources = 0, initiator_depth = 0;
    uint8_t retry_count = 7;
    uint8_t peer_rnr_retries = 0;       ///< the peer's RNR retry count, from this side's REQ or REP; 0 before that message
    uint32_t listener = 0;              ///< number of the listener in the communication manager
    uint32_t backlog = 0, pending = 0;  ///< for a listener: limit and number of requests that the program has not fetched
    uint32_t parent = abi::kNoHandle;   ///< for the id of a request that the program has not fetched: the listener
    uint32_t connection = 0;            ///< number of the connection in the communication manager
    uint32_t events_reported = 0;
    uint32_t events_waiting = 0;   ///< number of the id's events in the channel's queue
    uint32_t qpn = 0;              ///< number of the QP that the program uses for the connection
    std::vector<uint32_t> groups;  ///< handles of the id's multicast groups
    CmJournal journal;
    bool datagram() const { return qp_type == qp::Type::ud; }
};

struct CmClient {
    HandleTable<CmChannel> channels;
    HandleTable<CmId> ids;
    HandleTable<CmGroup> groups;
    uint32_t written = 0;  ///< number of waiting events that cm_write_event has queued
    /// Updates `written` after the removal of an event from the queue of its channel.
    void forget(const CmEvent& e) {
        if (e.written()) --written;
    }
};

/// An id that uses a port.
struct PortUser {
    uint32_t session = 0, id = 0;
    Gid address;  ///< zero: any address
    bool ipv4 = true, ipv6 = true;
    bool reuse = false, listening = false;
};

struct CmService {
    explicit CmService(uint64_t seed);

    cm::Manager manager;
    std::unordered_map<uint32_t, CmClient> clients;  ///< by session
    std::map<std::pair<cm::PortSpace, uint16_t>, std::vector<PortUser>> ports;
    CmArchive gone;
    uint32_t next_signal = 0;
    uint64_t refused_backlog = 0;  ///< requests refused because the listener's backlog was full
    uint64_t random_state;

    uint32_t random();
    CmClient& client(uint32_t session) { return clients[session]; }
};

inline constexpr uint32_t kMaxWrittenEvents = 16384;                  ///< limit of CmClient::written
inline constexpr uint32_t kMaxCmIds = 65536, kMaxCmChannels = 65536;  ///< per session

inline constexpr uint32_t kUdpQkey = 0x01234567;  ///< Q_Key of all UDP ports (RDMA_UDP_QKEY)
/// First pipe number of rdma_cm event channels. The pipes of completion channels have lower numbers.
inline constexpr uint32_t kCmChannelBase = 0x40000000;

// ids.cpp
Outcome open_channel(Call&);
Outcome close_channel(Call&);
Outcome create_id(Call&);
Outcome destroy_id(Call&);
Outcome migrate(Call&);
Outcome set_option(Call&);
Outcome find_id(Call& c, uint32_t handle, CmId*& out);
void destroy(State&, uint32_t session, CmId& id);
void destroy_requests(State&, uint32_t session, const CmId& listener);
// address.cpp
Outcome bind(Call&);
Outcome resolve_addr(Call&);
Outcome resolve_route(Call&);
Outcome listen(Call&);
Outcome query(Call&);
/// Queues events for ids whose address resolution has ended.
void take_settled_addresses(State&);
abi::CmQueryReply describe_route(const State&, const CmId& id);
void release_port(State&, uint32_t session, const CmId& id);
abi::CmAddress to_address(const Gid& gid, uint16_t port);
Gid to_gid(const abi::CmAddress& a);
// connect.cpp
Outcome connect(Call&);
Outcome accept(Call&);
Outcome establish(Call&);
Outcome reject(Call&);
Outcome notify(Call&);
Outcome disconnect(Call&);
Outcome qp_attr(Call&);
/// Returns the attributes of ibv_modify_qp() that take the id's QP to `qp_state`. If the connection has not reached the stage for
/// this state, the mask is 0.
abi::CmQpAttrReply qp_attributes(const State&, const CmId& id, uint32_t qp_state);
abi::AhAttr path_to_peer(const State&, const CmId& id);
// events.cpp
Outcome get_event(Call&);
Outcome write_event(Call&);
void push_event(State&, uint32_t session, CmId& id, CmEvent event);
/// Records that another `count` events in the channel's queue belong to destroyed ids.
void forget_events(CmClient&, uint32_t channel, uint32_t count);
/// Processes received messages and expired timers.
void service(State&);
/// Sends the messages of the communication manager, and converts its events to events of ids.
void settle(State&);
void reclaim(State&, uint32_t session);
// multicast.cpp
Outcome join(Call&);
Outcome leave(Call&);

}  // namespace roci::host::rdma_cm
