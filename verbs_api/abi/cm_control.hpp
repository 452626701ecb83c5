// Bodies of the connection management operations (rdma_cm). They need no open device: librdmacm has a session of its own, and an
// id names the device that it is bound to. Event channels are pipes: one EventSignal a waiting event (it may come to nothing if
// the event's id is destroyed meanwhile); the event itself is fetched by cm_get_event.
#pragma once

#include "control.hpp"

namespace roci::abi {

inline constexpr uint32_t kMaxCmPrivateData = 224;

/// family: 0 none, 2 IPv4, 10 IPv6. The address as a GID (IPv4 mapped), the port in host order.
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

/// cm_open_channel: reply fd is the pipe's read end. cm_close_channel: EBUSY while ids are on it.
struct CmCreateIdRequest {
    uint32_t channel;
    uint32_t port_space;
    uint32_t qp_type;
    uint32_t reserved;
};
/// Reply to cm_destroy_id, cm_migrate and cm_leave: number of events of the id or group that librdmacm has fetched. librdmacm
/// waits until the program has acknowledged all of them.
struct CmEventsReply {
    uint32_t events_reported;
    uint32_t reserved;
};

struct CmBindRequest {
    uint32_t id;
    uint32_t reserved;
    CmAddress address;
};
/// mac: of the destination if the client knows it, else zero.
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

/// struct rdma_conn_param and the UD answer.
struct CmParam {
    uint32_t qpn, qkey;
    uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
    uint8_t private_length, reserved;
    uint8_t private_data[kMaxCmPrivateData];
};
/// cm_connect, cm_accept (passive: REP or SIDR_REP).
struct CmConnectRequest {
    uint32_t id;
    uint32_t reserved;
    CmParam param;
};
/// reason 0: consumer defined.
struct CmRejectRequest {
    uint32_t id;
    uint32_t reason;
    CmParam param;
};
struct CmNotifyRequest {
    uint32_t id;
    uint32_t event;
};  ///< enum ibv_event_type

struct CmQpAttrRequest {
    uint32_t id;
    uint32_t qp_state;
};
/// mask 0: the connection is not that far (only where it is part of an event).
struct CmQpAttrReply {
    uint32_t mask;
    uint32_t reserved;
    QpAttr attr;
};

/// cm_query: all about an id's route.
struct CmQueryReply {
    CmAddress source, dest;
    uint32_t device;  ///< index, or kNoHandle: not bound to one
    uint32_t port_num;
    char device_name[64];
    GidValue sgid, dgid;
    uint32_t mtu;  ///< enum ibv_mtu
    uint16_t pkey;
    uint8_t traffic_class, hop_limit, packet_life_time, resolved;  ///< resolved: the route is known
    uint16_t reserved;
};

/// cm_get_event(channel handle): EAGAIN when there is none. What a library asks next in any case comes along: the id's route, and
/// the attributes that take its QP to INIT, RTR and RTS.
struct CmEventReply {
    uint32_t id;        ///< of a CONNECT_REQUEST: the new id
    uint32_t listener;  ///< of a CONNECT_REQUEST: the listening id; else kNoHandle
    uint32_t group;     ///< multicast events: handle of the membership; else kNoHandle
    uint32_t event;     ///< enum rdma_cm_event_type
    int32_t status;
    uint32_t reserved;
    CmParam param;
    AhAttr ah;  ///< UD: where the peer is
    CmQueryReply route;
    CmQpAttrReply qp[3];
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
};  ///< HandleReply
struct CmLeaveRequest {
    uint32_t id;
    uint32_t group;
};

}  // namespace roci::abi
