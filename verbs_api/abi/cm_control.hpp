// The bodies of the connection management operations (rdma_cm). These operations need no open device: librdmacm has its own
// session, and each bound id belongs to a device.
//
// An event channel is a socket on which rocid sends one EventSignal per waiting event. The reply to cm_open_channel carries the
// client's end of this socket. After a signal the client fetches the event by cm_get_event. If the event's id was destroyed after
// the signal, cm_get_event finds no event. cm_close_channel fails with EBUSY while the channel has ids.
#pragma once

#include "control.hpp"

namespace roci::abi {

inline constexpr uint32_t kMaxCmPrivateData = 224;

/// `family` is 0 (none), 2 (IPv4) or 10 (IPv6). `ip` is the address as a GID; an IPv4 address is an IPv4-mapped IPv6 address.
/// `port` is in host byte order.
struct CmAddress {
    uint16_t family;
    uint16_t port;
    uint32_t scope;
    GidValue ip;
};

struct EventSignal {
    uint32_t number;
    uint32_t reserved;
};

struct CmCreateIdRequest {
    uint32_t channel;
    uint32_t port_space;
    uint32_t qp_type;
    uint32_t reserved;
};
/// The reply to cm_destroy_id, cm_migrate and cm_leave. `events_reported` is the number of events of the id or group that
/// librdmacm has fetched. librdmacm waits until the program has acknowledged all these events.
struct CmEventsReply {
    uint32_t events_reported;
    uint32_t reserved;
};

struct CmBindRequest {
    uint32_t id;
    uint32_t reserved;
    CmAddress address;
};
/// `mac` is the destination's MAC address, or all zero if the client does not know the address.
struct CmResolveRequest {
    uint32_t id;
    uint32_t timeout_ms;
    CmAddress source, dest;
    uint8_t mac[6];
    uint16_t reserved;
};
struct CmListenRequest {
    uint32_t id;
    uint32_t backlog;
};

/// The fields of struct rdma_conn_param, and the QP number and Q_Key of a UD reply.
struct CmParam {
    uint32_t qpn, qkey;
    uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
    uint8_t private_length, reserved;
    uint8_t private_data[kMaxCmPrivateData];
};
/// Returns min_rnr_timer for the QP of a connection (encoding: IBA table 45). `peer_retries` is the peer's RNR retry count. If
/// the peer repeats without limit, a short time (0.64 ms) is best. Otherwise the connection ends if no receive is posted during
/// all retries. So the time is the longest (655 ms), as in Linux.
constexpr uint8_t min_rnr_timer(uint8_t peer_retries) {
    constexpr uint8_t kNoLimit = 7, kShort = 12, kLongest = 0;
    return peer_retries >= kNoLimit ? kShort : kLongest;
}
/// The body of cm_connect and cm_accept. For cm_connect rocid sends a REQ or SIDR_REQ, for cm_accept a REP or SIDR_REP.
struct CmConnectRequest {
    uint32_t id;
    uint32_t reserved;
    CmParam param;
};
/// `reason` 0 means "consumer defined".
struct CmRejectRequest {
    uint32_t id;
    uint32_t reason;
    CmParam param;
};
struct CmNotifyRequest {
    uint32_t id;
    uint32_t event;
};  ///< `event`: enum ibv_event_type

struct CmQpAttrRequest {
    uint32_t id;
    uint32_t qp_state;
};
/// The reply to cm_qp_attr, and a part of CmEventReply. In a CmEventReply, `mask` 0 means that the attributes are not known at
/// this step of the connection.
struct CmQpAttrReply {
    uint32_t mask;
    uint32_t reserved;
    QpAttr attr;
};

/// The reply to cm_query: the addresses, the device and the path of an id.
struct CmQueryReply {
    CmAddress source, dest;
    uint32_t device;  ///< index of the device; kNoHandle if the id is not bound to a device
    uint32_t port_num;
    char device_name[64];
    GidValue sgid, dgid;
    uint32_t mtu;  ///< enum ibv_mtu
    uint16_t pkey;
    uint8_t traffic_class, hop_limit, packet_life_time, resolved;  ///< `resolved`: 1 if the route is known
    uint16_t reserved;
};

/// The reply to cm_get_event. The request has the channel's handle. If no event waits, the error is EAGAIN. The reply also has
/// the data that librdmacm usually needs next: the id's route, and the attributes that move the id's QP to INIT, RTR and RTS.
struct CmEventReply {
    uint32_t id;        ///< id of the event; for a CONNECT_REQUEST, the new id
    uint32_t listener;  ///< for a CONNECT_REQUEST, the listening id; else kNoHandle
    uint32_t group;     ///< for a multicast event, the handle of the membership; else kNoHandle
    uint32_t event;     ///< enum rdma_cm_event_type
    int32_t status;
    uint32_t reserved;
    CmParam param;
    AhAttr ah;  ///< UD: the address of the peer
    CmQueryReply route;
    CmQpAttrReply qp[3];
};

/// The request of cm_write_event. The program or librdmacm adds an event to the id's channel by this operation. `event` is
/// RDMA_CM_EVENT_ADDRINFO_RESOLVED, RDMA_CM_EVENT_ADDRINFO_ERROR or RDMA_CM_EVENT_USER. cm_get_event returns `arg` as the private
/// data of the event.
struct CmWriteEventRequest {
    uint32_t id;
    uint32_t event;
    int32_t status;
    uint32_t reserved;
    uint64_t arg;
};

struct CmOptionRequest {
    uint32_t id;
    int32_t level, name;
    uint32_t length;
    uint8_t value[16];
};
struct CmMigrateRequest {
    uint32_t id;
    uint32_t channel;
};
struct CmJoinRequest {
    uint32_t id;
    uint32_t flags;
    CmAddress address;
};  ///< the reply is HandleReply
struct CmLeaveRequest {
    uint32_t id;
    uint32_t group;
};

}  // namespace roci::abi
