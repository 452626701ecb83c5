// The communication manager holds connections and their states (IBA 12.9). The manager does no I/O: receive() processes messages,
// advance() processes expired timers, next_message() returns messages to be sent, and next_event() returns events. One object
// serves all ports. The manager is not thread-safe.
//
// The local communication ID identifies a connection. A connection may have an owner, which is a program's cm_id. The manager
// stores the owner only as a cookie (`owner`). destroy() removes the owner. The manager then ends the connection as the protocol
// requires. Config::max_connections limits the memory. At the limit, the manager refuses further requests.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "cm/ip_cm.hpp"
#include "cm/mad.hpp"

namespace roci::cm {

/// Converts an encoded time to nanoseconds: 4.096 us * 2^n (IBA 12.7.26).
constexpr Nanos response_time(uint8_t n) { return Nanos{4096} << (n & 31); }

/// The two ends of a message.
struct Endpoint {
    uint32_t port = 0;  ///< index of the device
    Gid local, remote;
    MacAddress remote_mac;  ///< all zero if unknown
    uint8_t traffic_class = 0;
};
struct Incoming {
    Endpoint from;
    Qpn source;
    Mad mad;
};
struct Outgoing {
    Endpoint to;
    Qpn dest = kGsiQpn;
    Mad mad;
};

enum class State : uint8_t {
    idle,  ///< the connection has ended; the owner must call destroy()
    req_sent,
    req_rcvd,
    rep_sent,
    rep_rcvd,
    established,
    dreq_sent,
    dreq_rcvd,
    timewait,
    sidr_req_sent,
    sidr_req_rcvd,
};

struct Connection {
    uint32_t id = 0;  ///< local communication ID, or SIDR request ID
    uint32_t remote_id = 0;
    State state = State::idle;
    bool active = false, datagram = false;
    bool owned = true;
    bool paired = false;  ///< the peer's ID is known, and Manager::peers_ has an entry for it
    uint64_t owner = 0;
    Endpoint peer;
    uint32_t local_qpn = 0, remote_qpn = 0;
    uint64_t transaction = 0;
    Req req;  ///< the REQ that was sent or received
    Rep rep;  ///< the REP that was sent or received
    SidrReq sidr_req;
    Mad last{};  ///< the message that is repeated after a timeout
    uint8_t response_timeout = 20, max_retries = 15;
    uint8_t repeats_left = 0;
    Nanos deadline = kNever, interval = 0, give_up = kNever;
};

struct Event {
    enum class Kind : uint8_t {
        connect_request,  ///< a REQ or SIDR_REQ arrived, stored in Connection::req or sidr_req; `owner` is the listener's owner
        reply,            ///< a REP arrived; the owner sets up its QP and calls ready(), or calls reject()
        established,      ///< the RTU arrived, or traffic_seen() reported a packet of the peer
        rejected,         ///< a REJ arrived with `reason`, or a DREQ arrived before the RTU was sent
        unreachable,      ///< the peer did not answer a REQ, REP or SIDR_REQ
        disconnected,     ///< a DREQ, a DREP or a late REJ arrived, or the peer's QP sent a REQ for a new connection
        gone,             ///< the peer did not answer the DREQ; the connection has ended
        timewait_exit,    ///< the connection's QP numbers may be used again
        sidr_reply,       ///< a SIDR_REP arrived; `reason` is the status in the SIDR_REP
    };
    Kind kind = Kind::established;
    uint32_t connection = 0;
    uint64_t owner = 0;
    uint16_t reason = 0;                ///< a value of Reason or SidrStatus
    uint32_t qpn = 0, qkey = 0;         ///< only for sidr_reply
    std::vector<uint8_t> private_data;  ///< the whole private data field of the message
};

struct Listener {
    uint64_t service_id = 0;
    std::optional<uint32_t> port;   ///< nullopt: every device
    Gid address;                    ///< zero: every address
    bool ipv4 = true, ipv6 = true;  ///< address families that are accepted if `address` is zero
    uint64_t owner = 0;
};

struct ConnectSpec {
    Endpoint to;
    uint64_t service_id = 0;
    uint64_t ca_guid = 0;
    uint32_t qpn = 0, psn = 0;
    Service service = Service::rc;
    uint8_t extended_transport = 0;
    uint8_t responder_resources = 0, initiator_depth = 0;
    uint8_t retry_count = 7, rnr_retry_count = 7, flow_control = 0, srq = 0;
    uint8_t mtu = 5, ack_timeout = 14, hop_limit = 64;
    uint32_t flow_label = 0;
    std::array<uint8_t, 92> private_data{};
    uint64_t owner = 0;
};
struct AcceptSpec {
    uint64_t ca_guid = 0;
    uint32_t qpn = 0, psn = 0;
    uint8_t responder_resources = 0, initiator_depth = 0, flow_control = 0, rnr_retry_count = 7, srq = 0;
    std::array<uint8_t, 196> private_data{};
};
struct SidrSpec {
    Endpoint to;
    uint64_t service_id = 0;
    std::array<uint8_t, 216> private_data{};
    uint64_t owner = 0;
};

struct Config {
    uint32_t first_id = 1;             ///< first communication ID; should differ between runs of rocid
    uint32_t max_connections = 65536;  ///< limit of the number of connections in all states together
    uint8_t response_timeout = 20;     ///< time to wait for the answer to a REQ or SIDR_REQ; 4.096 us * 2^n
    uint8_t max_retries = 15;
    uint8_t mra_timeout = 24;  ///< service timeout in sent MRAs; 4.096 us * 2^n
};

class Manager {
public:
    explicit Manager(const Config& config) : config_(config), next_id_(config.first_id) {}

    // ---- Calls of owners. A result of type int is 0 or an errno: EINVAL if the state does not permit the call, or ENOENT if the
    // connection does not exist
    /// Adds a listener. Returns the number of the listener, which is never 0.
    uint32_t listen(const Listener& listener);
    void unlisten(uint64_t service_id, uint32_t number);
    /// Sends a REQ. Returns the local communication ID, or 0 if there are too many connections.
    uint32_t connect(const ConnectSpec& spec, Nanos now);
    /// Sends a REP.
    int accept(uint32_t id, const AcceptSpec& spec, Nanos now);
    /// Sends the RTU. The owner calls ready() when the owner's QP can receive and send.
    int ready(uint32_t id, Nanos now);
    /// Called if the QP has received a packet from the peer before the RTU arrived (IBA 12.9.6 COMM_EST). Establishes the
    /// connection. Returns EISCONN if the connection is established already.
    int traffic_seen(uint32_t id, Nanos now);
    int reject(uint32_t id, Reason reason, std::span<const uint8_t> private_data, Nanos now);
    /// Sends a DREQ, or the DREP if the peer has sent a DREQ.
    int disconnect(uint32_t id, Nanos now);
    uint32_t resolve_service(const SidrSpec& spec, Nanos now);
    int answer_service(uint32_t id, SidrStatus status, uint32_t qpn, uint32_t qkey, std::span<const uint8_t> private_data,
                       Nanos now);
    /// Removes the owner, so that the connection raises no more events. If the state requires it, sends a REJ, DREQ, DREP or
    /// SIDR_REP to the peer.
    void destroy(uint32_t id, Nanos now);
    void set_owner(uint32_t id, uint64_t owner);
    const Connection* find(uint32_t id) const;

    // ---- messages from peers, and time
    void receive(const Incoming& in, Nanos now);
    void advance(Nanos now);
    Nanos next_deadline() const { return timers_.empty() ? kNever : timers_.begin()->first; }
    bool next_message(Outgoing& out);
    bool next_event(Event& out);

    struct Counters {
        uint64_t received[11] = {}, sent[11] = {}, repeated = 0, duplicates = 0, stale = 0, unknown = 0, malformed = 0,
                 timeouts = 0, refused_full = 0, refused_no_listener = 0;
    };
    const Counters& counters() const { return counters_; }
    size_t connections() const { return connections_.size(); }

private:
    /// Identifies a connection by a number of the peer: a communication ID, a SIDR request ID or a QP number (enum Space).
    struct PeerKey {
        Gid gid;
        uint32_t id = 0;
        uint8_t space = 0;
        bool operator==(const PeerKey&) const = default;
    };
    struct PeerHash {
        size_t operator()(const PeerKey& k) const;
    };
    enum Space : uint8_t { kCommId, kSidr, kQpn };
    using PeerTable = std::unordered_map<PeerKey, uint32_t, PeerHash>;

    // manager.cpp
    Connection* get(uint32_t id);
    Connection* add(const Endpoint& peer);
    bool make_room();
    void forget_later(const Connection& c);
    void erase(Connection& c);
    void pair(Connection& c, uint32_t remote_id, uint32_t remote_qpn);
    void unpair_qpn(Connection& c);
    void set_timer(Connection& c, Nanos deadline);
    void repeat_until_answered(Connection& c, Nanos now);
    void stop_repeating(Connection& c);
    void expire(Connection& c, Nanos now);
    void give_up(Connection& c, Nanos now);
    void enter_timewait(Connection& c, Nanos now);
    void end(Connection& c);
    void raise(const Connection& c, Event::Kind kind, uint16_t reason = 0, std::span<const uint8_t> private_data = {});
    void transmit(const Endpoint& to, const Mad& mad);
    template <class Message>
    void send(Connection& c, const Message& message);
    void send_rej(Connection& c, Answered message, Reason reason, std::span<const uint8_t> private_data = {});
    void send_dreq(Connection& c, Nanos now);
    void send_drep(Connection& c);

    // messages.cpp
    void on_req(const Incoming& in, uint64_t tid, Nanos now);
    void on_repeated_req(Connection& c);
    void on_mra(const Incoming& in, Nanos now);
    void on_rej(const Incoming& in, Nanos now);
    void on_rep(const Incoming& in, uint64_t tid, Nanos now);
    void on_rtu(const Incoming& in, Nanos now);
    void on_dreq(const Incoming& in, uint64_t tid, Nanos now);
    void on_drep(const Incoming& in, Nanos now);
    const Listener* find_listener(uint64_t service_id, const Incoming& in, std::span<const uint8_t> private_data) const;
    Connection* named(uint32_t id, uint32_t remote_id, const Incoming& in);

    // datagram.cpp
    void on_sidr_req(const Incoming& in, uint64_t tid, Nanos now);
    void on_sidr_rep(const Incoming& in, Nanos now);

    const Config config_;
    uint32_t next_id_;
    uint32_t last_listener_ = 0;
    std::unordered_map<uint32_t, std::unique_ptr<Connection>> connections_;
    PeerTable peers_;
    std::unordered_map<uint64_t, std::vector<std::pair<uint32_t, Listener>>> listeners_;  ///< by service ID
    std::set<std::pair<Nanos, uint32_t>> timers_;
    std::deque<uint32_t> ending_;  ///< connections without an owner, oldest first; make_room() removes them
    std::deque<Outgoing> messages_;
    std::deque<Event> events_;
    Counters counters_;
};

}  // namespace roci::cm
