// Control messages between a client library and rocid, over a SOCK_SEQPACKET unix socket.
//
// One connection is one session. A session has at most one open device. A request is RequestHeader and the op's Request body.
// Each request gets exactly one reply: ReplyHeader, the op's Reply body (usually absent on error), and `reason_length` bytes of
// text, which give the cause of an error and a remedy. File descriptors are passed by SCM_RIGHTS with the same packet. Object
// handles belong to the session; when the connection closes, rocid reclaims all objects of the session. Bodies are plain structs.
// The receiver pads a shorter body with zeros, so fields can be added at the end. Attribute masks and enum values are those of
// <infiniband/verbs.h>.
#pragma once

#include <cstdint>

#include "rings.hpp"
#include "tag_matching.hpp"
#include "version.hpp"
#include "wqe.hpp"

namespace roci::abi {

inline constexpr uint32_t kMaxMessage = 60 * 1024;
inline constexpr uint32_t kMaxFdsPerMessage = 32;
inline constexpr uint32_t kNoHandle = 0xffffffff;

enum class Op : uint16_t {
    hello = 1,  ///< must be the first request
    list_devices,
    open_device,  ///< request fd (optional): the client's /proc/self/mem, for memory that cannot be mapped. Reply fds: client's
                  ///< end of the socket for asynchronous events, engine page, doorbell memfd, one wake eventfd per engine, and
                  ///< with kDevicePage the device page (device_page.hpp)
    query_device,
    query_port,
    query_gid_table,
    alloc_pd,
    dealloc_pd,
    add_region,  ///< request fd: the file that rocid maps
    remove_region,
    reg_mr,
    rereg_mr,
    dereg_mr,
    create_channel,  ///< reply fd: client's end of the socket for CompEventRecord
    destroy_channel,
    create_cq,
    resize_cq,
    modify_cq,
    destroy_cq,
    create_srq,
    modify_srq,
    query_srq,
    destroy_srq,
    create_qp,
    modify_qp,
    query_qp,
    destroy_qp,
    create_ah,
    destroy_ah,
    attach_mcast,
    detach_mcast,
    alloc_mw,
    dealloc_mw,
    open_xrcd,
    close_xrcd,
    status,  ///< reply fd: memfd with the JSON text of `roci status`
    alloc_dm,
    free_dm,
    reg_dm_mr,      ///< the reply is RegMrReply; dereg_mr frees the handle
    alloc_null_mr,  ///< the request is HandleRequest with the PD; the reply is RegMrReply; dereg_mr frees the handle
    // operations of rdma_cm; their bodies are in cm_control.hpp
    cm_open_channel,  ///< reply fd: client's end of the socket for EventSignal
    cm_close_channel,
    cm_create_id,
    cm_destroy_id,
    cm_bind,
    cm_resolve_addr,
    cm_resolve_route,
    cm_listen,
    cm_connect,
    cm_accept,
    cm_establish,
    cm_reject,
    cm_notify,
    cm_disconnect,
    cm_get_event,
    cm_qp_attr,
    cm_query,
    cm_set_option,
    cm_migrate,
    cm_join,
    cm_leave,
    cm_write_event,
    start_capture,  ///< reply fd: read end of a pipe, to which rocid writes pcapng until the capture or the session ends
    stop_capture,
    open_qp,      ///< reply: HandleReply; destroy_qp frees the handle
    counters,     ///< reply fd: memfd of the counter page (counter_page.hpp)
    why,          ///< reply fd: memfd with the text of `roci why`
    add_chunk,    ///< request fd: a new memfd for queues; reply: HandleReply, the number of the chunk
    send_posted,  ///< the request is HandleRequest with a UD QP; the reply is SendPostedReply
    last_op,
};

struct RequestHeader {
    Op op;
    uint16_t reserved;
    uint32_t cookie;  ///< returned in the reply
};

struct ReplyHeader {
    int32_t error;  ///< 0 or a positive errno
    uint32_t cookie;
    uint32_t body_length;
    uint32_t reason_length;  ///< bytes of text after the body, without a terminator
    /// If `error` is ENOMEM and this value is not 0, the request needs an arena chunk of this many bytes. The client then creates
    /// the chunk, passes its descriptor by add_chunk and sends the request again.
    uint64_t wanted_chunk;
};

/// The body of requests and replies without fields. HandleRequest and HandleReply are the bodies with one handle.
struct Empty {};
struct HandleRequest {
    uint32_t handle;
    uint32_t reserved;
};
struct HandleReply {
    uint32_t handle;
    uint32_t generation;
};

// ---- connection -----------------------------------------------------------------------------------------------------

struct HelloRequest {
    uint32_t magic;
    uint32_t abi_version;
    char program[64];
};
/// rocid also sends this reply, with error EPROTO, when it refuses the client's version. The layout of this struct never changes,
/// so that clients of all versions can read the reply.
struct HelloReply {
    uint32_t abi_min;
    uint32_t abi_max;
    uint32_t devices;
    uint32_t engines;
};

struct DeviceEntry {
    char name[64];       ///< "roci0"
    char netdev[16];     ///< kernel interface of the port, or ""
    uint64_t node_guid;  ///< big endian
    uint32_t index;      ///< number for OpenDeviceRequest
    uint32_t reserved;
};
struct ListDevicesReply {
    uint32_t count;
    uint32_t reserved;
    DeviceEntry device[32];
};

struct OpenDeviceRequest {
    uint32_t device;
    uint32_t flags;  ///< OpenDeviceWishes; rocid ignores unknown bits
};
enum OpenDeviceWishes : uint32_t {
    kWantsDevicePage = 1 << 0,  ///< the client can use the device page
};
enum OpenDeviceFlags : uint32_t {
    kHugeChunks = 1 << 0,  ///< the client uses huge pages for arena chunks if huge pages are available
    kPopulate = 1 << 1,    ///< the client allocates the pages of registered memory, so that rocid is not charged for the pages
    kDevicePage = 1 << 2,  ///< the last descriptor of the reply is the device page
};
struct OpenDeviceReply {
    uint32_t engines;
    uint32_t session;
    uint64_t doorbell_stride;
    uint32_t flags;  ///< OpenDeviceFlags
    uint32_t reserved;
};  ///< the DoorbellPage of engine e is at e * doorbell_stride in the doorbell memfd

// ---- attributes -----------------------------------------------------------------------------------------------------

struct GidValue {
    uint8_t raw[16];
};

/// The limits and capabilities of a device: the supported part of struct ibv_device_attr_ex.
struct DeviceAttr {
    uint64_t node_guid, sys_image_guid;  ///< big endian
    uint64_t max_mr_size, page_size_cap;
    uint64_t device_cap_flags;  ///< enum ibv_device_cap_flags
    uint64_t hca_core_clock_khz;
    uint64_t completion_timestamp_mask;
    uint32_t vendor_id, vendor_part_id, hw_ver;
    uint32_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_inline;
    uint32_t max_cq, max_cqe, max_mr, max_pd;
    uint32_t max_qp_rd_atom, max_qp_init_rd_atom, max_res_rd_atom;
    uint32_t atomic_cap;  ///< enum ibv_atomic_cap
    uint32_t max_mw, max_mcast_grp, max_mcast_qp_attach, max_ah;
    uint32_t max_srq, max_srq_wr, max_srq_sge;
    uint32_t max_pkeys;
    uint32_t local_ca_ack_delay;
    uint32_t phys_ports;
    uint32_t comp_vectors;
    char fw_ver[64];
    uint64_t max_dm_size;                      ///< bytes of device memory per session
    uint64_t odp_general;                      ///< enum ibv_odp_general_caps
    uint32_t odp_rc, odp_uc, odp_ud, odp_xrc;  ///< enum ibv_odp_transport_cap_bits
    uint32_t max_cq_count, max_cq_period;      ///< limits of CQ moderation: completions, microseconds
    TagCaps tm;
};

struct PortAttr {
    uint32_t state;                ///< enum ibv_port_state
    uint32_t max_mtu, active_mtu;  ///< enum ibv_mtu
    uint32_t gid_table_length;
    uint32_t max_message;
    uint32_t pkey_table_length;
    uint32_t active_width, active_speed;
    uint32_t phys_state;
    uint32_t port_cap_flags;
    uint32_t bad_pkey_counter, qkey_violation_counter;
};

struct GidEntry {
    GidValue gid;
    uint32_t index;
    uint32_t type;
    char netdev[16];
};  ///< `type`: always 2, RoCE v2 (enum ibv_gid_type of <infiniband/verbs.h>)
struct QueryGidTableReply {
    uint32_t count;
    uint32_t reserved;
    GidEntry entry[128];
};

// ---- memory ---------------------------------------------------------------------------------------------------------

/// The request of add_region carries the descriptor of a file. rocid maps the first `length` bytes of the file (MAP_SHARED). A
/// removed region remains mapped as long as an MR uses the region.
struct AddRegionRequest {
    uint64_t length;
    uint32_t writable;
    uint32_t reserved;
};

/// A contiguous part of an MR. Segments are in ascending order, without gaps. If `region` is kNoHandle, `offset` is a virtual
/// address of the client. rocid accesses this address through the client's /proc/self/mem or /proc/PID/mem. rocid counts these
/// accesses, because they are slow.
struct MrSegment {
    uint32_t region;
    uint32_t reserved;
    uint64_t offset;
    uint64_t length;
};
inline constexpr uint32_t kMaxMrSegments = 2048;  ///< limit per message

struct RegMrRequest {
    uint32_t pd;
    uint32_t access;  ///< enum ibv_access_flags; rocid ignores optional bits
    uint64_t iova;    ///< the address that local SGEs and requests of peers use for the first byte of the MR
    uint64_t length;
    uint32_t segments;  ///< MrSegment[segments] follow
    uint32_t reserved;
};
struct RegMrReply {
    uint32_t handle;
    uint32_t lkey;
    uint32_t rkey;
    uint32_t reserved;
};

/// `flags`: enum ibv_rereg_mr_flags. With IBV_REREG_MR_CHANGE_TRANSLATION, MrSegment[mr.segments] follow.
struct ReregMrRequest {
    uint32_t handle;
    uint32_t flags;
    RegMrRequest mr;
};

/// The request of add_chunk, which carries the descriptor of a memfd for queues. The client has allocated all pages of the memfd.
/// rocid writes to the memfd and seals it, so that no page can be removed. Therefore the memfd must not have F_SEAL_SEAL or
/// F_SEAL_WRITE yet.
struct AddChunkRequest {
    uint64_t length;
};

// ---- completion queues ----------------------------------------------------------------------------------------------

struct CreateCqRequest {
    uint32_t cqe;      ///< minimum number of entries
    uint32_t channel;  ///< handle or kNoHandle
    uint32_t vector;
    uint32_t flags;  ///< bit 0: ignore an overrun (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)
};
struct CreateCqReply {
    uint32_t handle, generation;
    uint32_t depth;  ///< entries per lane, power of two
    uint32_t lanes;
    Location where;  ///< place of CqShared and the lanes
};
struct ResizeCqRequest {
    uint32_t handle;
    uint32_t cqe;
    uint32_t consumer[kMaxEngines];
};  ///< the client holds the CQ's lock until the reply; the new ring starts at index 0 with the entries that were not polled
struct ModifyCqRequest {
    uint32_t handle;
    uint32_t count;
    uint32_t period_us;
    uint32_t reserved;
};

// ---- shared receive queues ------------------------------------------------------------------------------------------

struct CreateSrqRequest {
    uint32_t pd;
    uint32_t type;  ///< enum ibv_srq_type
    uint32_t max_wr, max_sge, limit;
    uint32_t xrcd, cq;  ///< handles for XRC and tag matching SRQs, else kNoHandle
    uint32_t tm_max_tags, tm_max_ops;
};
struct CreateSrqReply {
    uint32_t handle, generation;
    uint32_t srqn;
    uint32_t depth, stride, max_wr, max_sge, reserved;
    Location where;
    TagQueue tags;
};
struct ModifySrqRequest {
    uint32_t handle;
    uint32_t mask;
    uint32_t max_wr;
    uint32_t limit;
};
/// With IBV_SRQ_MAX_WR the client holds the SRQ's lock until the reply, so that no thread posts meanwhile. Queued requests keep
/// their indices in the new ring.
struct ModifySrqReply {
    uint32_t depth;  ///< 0 if the ring did not change
    uint32_t max_wr;
    Location where;
};
struct QuerySrqReply {
    uint32_t max_wr, max_sge, limit, reserved;
};

// ---- queue pairs ----------------------------------------------------------------------------------------------------

struct QpCap {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data, reserved;
};

struct CreateQpRequest {
    uint32_t pd;
    uint32_t type;              ///< enum ibv_qp_type
    uint32_t send_cq, recv_cq;  ///< handles; IBV_QPT_XRC_SEND has no recv_cq, IBV_QPT_XRC_RECV has no CQ
    uint32_t srq;               ///< handle, or kNoHandle
    uint32_t xrcd;              ///< IBV_QPT_XRC_RECV: handle of the domain
    uint32_t sq_sig_all;
    uint32_t create_flags;
    QpCap cap;
};
struct CreateQpReply {
    uint32_t handle, generation;
    uint32_t qpn;
    uint32_t engine;  ///< engine whose doorbell page the QP uses
    uint32_t slot;    ///< bit of the QP in the doorbell page
    uint32_t sq_depth, sq_stride;
    uint32_t rq_depth, rq_stride;  ///< 0 if the QP uses an SRQ
    uint32_t reserved;
    QpCap cap;  ///< granted capabilities, at least the requested ones
    Location sq, rq;
};

/// The request of open_qp, which gives the session a handle of an existing XRC target QP. Another session may have created the
/// QP. Closing the last handle of a QP destroys the QP. Events of the QP go to the session with the oldest handle.
struct OpenQpRequest {
    uint32_t xrcd;  ///< handle of the target's domain
    uint32_t qpn;
    uint32_t type;  ///< enum ibv_qp_type
    uint32_t reserved;
};

struct AhAttr {
    GidValue dgid;
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
    uint8_t sl, port_num, is_global, static_rate, src_path_bits;
    uint16_t dlid;
    uint8_t dmac[6];  ///< if all zero, rocid resolves the address
};

/// The fields of struct ibv_qp_attr. The bits of `mask` in requests are those of enum ibv_qp_attr_mask.
struct QpAttr {
    uint32_t qp_state, cur_qp_state;  ///< enum ibv_qp_state
    uint32_t path_mtu;                ///< enum ibv_mtu
    uint32_t path_mig_state;
    uint32_t qkey;
    uint32_t rq_psn, sq_psn;
    uint32_t dest_qp_num;
    uint32_t qp_access_flags;
    QpCap cap;
    AhAttr ah, alt_ah;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining;
    uint8_t max_rd_atomic, max_dest_rd_atomic;
    uint8_t min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry;
    uint8_t alt_port_num, alt_timeout, reserved;
    uint32_t rate_limit;
};
inline constexpr uint32_t kMostModifySteps = 3;
/// Up to kMostModifySteps further structs of this type may follow in the same message. rocid executes the requests in order and
/// stops at the first failure.
struct ModifyQpRequest {
    uint32_t handle;
    uint32_t mask;
    QpAttr attr;
};
struct ModifyQpReply {
    uint32_t qp_state;
    uint32_t reserved;
};
struct QueryQpReply {
    QpAttr attr;
    uint32_t sq_sig_all;
    uint32_t reserved;
};

// ---- the rest -------------------------------------------------------------------------------------------------------

struct CreateAhRequest {
    uint32_t pd;
    uint32_t reserved;
    AhAttr attr;
};
struct SendPostedReply {
    uint32_t more;  ///< 1: the QP has further requests that could be sent now
    uint32_t reserved;
};
struct McastRequest {
    uint32_t qp;
    uint32_t lid;
    GidValue gid;
};
struct AllocMwRequest {
    uint32_t pd;
    uint32_t type;
};
struct AllocMwReply {
    uint32_t handle;
    uint32_t rkey;
};
/// The bits of OpenXrcdRequest::oflags, with the Linux values of O_CREAT and O_EXCL.
enum XrcdFlags : uint32_t { kXrcdCreate = 0100, kXrcdExclusive = 0200 };
/// The request of open_xrcd. If `has_fd` is 1, the request carries a descriptor. Sessions that pass descriptors of the same file
/// share the domain.
struct OpenXrcdRequest {
    uint32_t oflags;
    uint32_t has_fd;
};

/// The request of alloc_dm. Device memory is in the arena, so the client itself copies to and from device memory.
struct AllocDmRequest {
    uint64_t length;
    uint32_t log_align;
    uint32_t reserved;
};
struct AllocDmReply {
    uint32_t handle, generation;
    Location where;
};
struct RegDmMrRequest {
    uint32_t pd;
    uint32_t dm;
    uint32_t access;
    uint32_t reserved;
    uint64_t offset, length;
};

// ---- diagnosis (roci why, roci pcap) --------------------------------------------------------------------------------------

/// The request of Op::why. The reply carries a memfd with a report about one queue pair, or about all connections and connection
/// attempts of rdma_cm.
struct WhyRequest {
    uint32_t qpn;
    uint32_t connections;  ///< 1: report about rdma_cm; `qpn` is 0 then
};
/// The request of start_capture. A session has at most one capture. If `qpn` is not 0, rocid ignores `device` and captures only
/// frames of that QP, on the QP's device.
struct StartCaptureRequest {
    uint32_t device;       ///< index of the device; kNoHandle: all devices
    uint32_t qpn;          ///< 0: all frames of the port
    uint32_t snap_length;  ///< bytes to keep per frame; 0: all
    uint32_t reserved;
};
/// The reply to stop_capture. rocid writes the remaining frames to the pipe before it closes the pipe.
struct StopCaptureReply {
    uint64_t captured;
    uint64_t missed;  ///< frames that are not in the capture, because the ring to the writer thread was full
};

}  // namespace roci::abi
