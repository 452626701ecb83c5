// Ids, channels and the connection to rocid.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "abi/cm_control.hpp"
#include "connection.hpp"
#include "verbs.hpp"

#pragma GCC visibility push(default)
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
extern "C" {
// rdma-core exports the following functions without a public declaration.
int rdma_set_local_ece(struct rdma_cm_id* id, struct ibv_ece* ece);
int rdma_get_remote_ece(struct rdma_cm_id* id, struct ibv_ece* ece);
int rdma_reject_ece(struct rdma_cm_id* id, const void* private_data, uint8_t private_data_len);
// rdma-core added the following functions in release 60. Older headers do not declare them.
int rdma_resolve_addrinfo(struct rdma_cm_id* id, const char* node, const char* service, const struct rdma_addrinfo* hints);
int rdma_query_addrinfo(struct rdma_cm_id* id, struct rdma_addrinfo** info);
int rdma_write_cm_event(struct rdma_cm_id* id, enum rdma_cm_event_type event, int status, uint64_t arg);
}
#pragma GCC visibility pop

namespace roci::rdmacm {

struct Group;

/// Values of enum rdma_cm_event_type that rdma-core added in release 60. kRaiSa is a flag of rdma_addrinfo from the same release.
enum NewerEvent : uint32_t { kAddrinfoResolved = 16, kAddrinfoError = 17, kUserEvent = 18 };
inline constexpr int kRaiSa = 0x10;

/// An id of rdma_cm. The struct begins with the public rdma_cm_id. Up to `sync` the layout is that of rdma-core, because the
/// r-sockets of the system's librdmacm access these fields.
struct Id {
    rdma_cm_id id;
    void* system_device;  ///< always NULL
    void* connect;        ///< ai_connect of rdma_create_ep's rdma_addrinfo; rdma_connect sends these bytes as private data
    size_t connect_length;
    int events_completed;
    int connect_error;
    int sync;  ///< 1 if the program passed no channel; calls with the id then wait for their events
    pthread_cond_t cond;
    pthread_mutex_t mutex;
    // fields of this library
    uint32_t handle;
    uint32_t epoch;  ///< Service::epoch() when the id was created
    uint8_t initiator_depth, responder_resources;
    bool removed;  ///< true after the DEVICE_REMOVAL event of the id
    ibv_qp_init_attr* qp_init_attr;
    abi::CmQpAttrReply qp_attr[3];  ///< attributes for INIT, RTR and RTS from the last event that carried them; `mask` 0: the
                                    ///< next use requests the attributes from rocid; protected by `mutex`
    Group* groups;
    rdma_addrinfo* resolved;  ///< result of rdma_resolve_addrinfo that the program has not fetched; protected by `mutex`
    bool resolving;           ///< true from rdma_resolve_addrinfo until the program has fetched the result; protected by `mutex`

    static Id* from(rdma_cm_id* p) { return reinterpret_cast<Id*>(p); }
};
static_assert(sizeof(rdma_cm_id) == 416 && offsetof(Id, system_device) == 416 && offsetof(Id, events_completed) == 440 &&
              offsetof(Id, sync) == 448);

struct Channel {
    rdma_event_channel channel;  ///< channel.fd is the client's end of the event socket
    uint32_t handle;
    uint32_t epoch;
    static Channel* from(rdma_event_channel* p) { return reinterpret_cast<Channel*>(p); }
};

/// The membership of an id in a multicast group.
struct Group {
    Group* next;
    Id* owner;
    void* context;
    uint32_t handle;
    int events_completed;
    uint16_t join_flags;
    ibv_gid mgid;
    uint16_t mlid;
    sockaddr_storage address;
};

/// Sets errno and returns -1.
inline int fail(int error) {
    errno = error;
    return -1;
}
/// Converts 0 or an errno to 0, or -1 with errno.
inline int result(int error) { return error == 0 ? 0 : fail(error); }

/// An open device of rocid. All ids of the process that use the device share one context, which the library never closes.
struct Device {
    ibv_context* verbs = nullptr;
    ibv_pd* pd = nullptr;
    ibv_xrcd* xrcd = nullptr;
    uint8_t max_initiator_depth = 0, max_responder_resources = 0;
};

/// The session of this process for connection management. A process has one Service.
class Service {
public:
    static Service& instance();
    /// Connects to rocid if there is no connection yet. Returns 0 or an errno.
    int open();
    uint32_t epoch() const { return epoch_; }
    client::Connection& link() { return *link_; }

    /// Returns the device with this name. Opens the device if it is not open. Returns nullptr with errno on failure.
    Device* device(const char* name);
    Device* device(const ibv_context* verbs);
    /// Opens all devices and returns their contexts.
    std::vector<ibv_context*> all_devices();

    void insert(Id& id);
    void remove(const Id& id);
    Id* find(uint32_t handle);
    /// Called after rocid has ended. Returns an id of the channel that has a device and is not marked as removed. Marks the
    /// returned id as removed. Returns nullptr if there is no such id.
    Id* next_removed(const rdma_event_channel* channel);

    template <class Request, class Answer>
    int call(abi::Op op, const Request& body, Answer& answer, client::ReplyFds* fds = nullptr) {
        if (const int error = open(); error != 0) return error;
        return link_->call(op, body, answer, fds);
    }
    template <class Request>
    int tell(abi::Op op, const Request& body) {
        if (const int error = open(); error != 0) return error;
        return link_->tell(op, body);
    }

private:
    Service();
    void forget_after_fork();
    Device* open_device(ibv_device* device);

    std::mutex mutex_;
    std::unique_ptr<client::Connection> link_;
    uint32_t epoch_ = 1;
    std::unordered_map<std::string, std::unique_ptr<Device>> devices_;
    std::unordered_map<uint32_t, Id*> ids_;
};

inline Service& service() { return Service::instance(); }
/// Returns true if this process created the id. Returns false in a fork's child if the parent created the id.
inline bool ours(const Id& id) { return id.epoch == service().epoch(); }

// Several files use the following functions. The functions are grouped by the file that defines them.
// address.cpp
int to_abi(const sockaddr* address, abi::CmAddress& out);  ///< returns 0 or EAFNOSUPPORT
void from_abi(const abi::CmAddress& address, sockaddr_storage& out);
socklen_t length_of(const sockaddr* address);  ///< returns 0 if the family is not supported
// id.cpp
Id* allocate_id(rdma_event_channel* channel, void* context, rdma_port_space space, ibv_qp_type type);
void free_id(Id* id);
int create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context, rdma_port_space space, ibv_qp_type type);
int query_route(Id& id);
int take_route(Id& id, abi::CmQueryReply q);
/// Discards the id's stored QP attributes, so that the next use requests them from rocid.
void forget_attributes(Id& id);
int destroy_handle(uint32_t handle);  ///< returns the number of reported events, or -1
// qp.cpp
/// The values of rdma_accept() that replace rocid's attributes of the QP.
struct OwnAttributes {
    uint8_t responder_resources = RDMA_MAX_RESP_RES;
    uint8_t initiator_depth = RDMA_MAX_INIT_DEPTH;
    std::optional<uint8_t> min_rnr_timer;
};
int connect_qp(rdma_cm_id& id, const OwnAttributes& own);
int modify_to_error(rdma_cm_id& id);
int attributes(rdma_cm_id& id, ibv_qp_state state, ibv_qp_attr& attr, int& mask);
/// Called after a REP has arrived. Moves the QP to RTS and sends the RTU. Returns 0, or -1 with errno.
int confirm_response(Id& id);
/// Called after the join of a group. Stores the group's address and attaches the QP to the group. Does not attach the QP if the
/// membership is send-only.
int joined(Group& group, const ibv_ah_attr& address);
// events.cpp
/// If the id is synchronous (Id::sync), waits for the event that ends the current call. Returns 0, or -1 with the errno of the
/// event.
int complete(Id& id);

inline bool datagram(const rdma_cm_id& id) { return id.qp_type == IBV_QPT_UD; }

}  // namespace roci::rdmacm
