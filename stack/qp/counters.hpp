// Counters of QPs and devices: one table makes the storage, the names in `roci status` and `roci stat`, the files of the sysfs
// view, and docs/counters.md. The engine alone writes them; anybody may read them (relaxed).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bump.hpp"
#include "qp/faults.hpp"

namespace roci::qp {

// name; unit; file below ports/1 of the sysfs view, or ""; meaning

/// Of a QP alone. The first cache line of the counters: every packet needs it.
#define ROCI_PACKET_COUNTERS(X)                                     \
    X(tx_packets, "packets", "", "packets sent, repeated ones too") \
    X(tx_bytes, "bytes", "", "bytes of the frames sent")            \
    X(rx_packets, "packets", "", "packets received and accepted")   \
    X(rx_bytes, "bytes", "", "bytes of payload received")

/// Of a QP and of its device.
#define ROCI_EVENT_COUNTERS(X)                                                                                         \
    X(tx_messages, "messages", "", "messages and requests sent")                                                       \
    X(rx_messages, "messages", "", "messages and requests executed")                                                   \
    X(retransmits, "packets", "", "packets sent again")                                                                \
    X(timeouts, "events", "hw_counters/local_ack_timeout_err", "local ACK timeouts: the peer was silent")              \
    X(rnr_nak_sent, "packets", "hw_counters/out_of_buffer", "messages refused because no receive was posted")          \
    X(rnr_nak_received, "packets", "hw_counters/rnr_nak_retry_err", "RNR NAKs of the peer: it had no receive posted")  \
    X(seq_nak_sent, "packets", "", "sequence NAKs sent: a packet was missing")                                         \
    X(seq_nak_received, "packets", "hw_counters/packet_seq_err", "sequence NAKs received: the peer missed a packet")   \
    X(duplicates, "packets", "", "requests that came again, and responses that nobody waited for")                     \
    X(out_of_order, "packets", "hw_counters/out_of_sequence", "requests that came before an earlier one")              \
    X(implied_naks, "events", "hw_counters/implied_nak_seq_err", "responses that showed that an earlier one was lost") \
    X(requests_refused, "requests", "", "requests of the peer refused for any fault; request_* counts each")           \
    X(dropped, "packets", "", "packets and messages without effect: no state, no receive, or no meaning")

#define ROCI_PORT_COUNTERS(X)                                                                                                 \
    X(tx_frames, "frames", "counters/port_xmit_packets", "frames sent")                                                       \
    X(tx_octets, "bytes", "counters/port_xmit_data", "bytes of the frames sent, without FCS; the file has words of 4")        \
    X(rx_frames, "frames", "counters/port_rcv_packets", "frames received")                                                    \
    X(rx_octets, "bytes", "counters/port_rcv_data", "bytes of the frames received; the file has words of 4")                  \
    X(rx_errors, "frames", "counters/port_rcv_errors", "RoCE frames refused because they are malformed or damaged")           \
    X(icrc_errors, "frames", "hw_counters/rx_icrc_encapsulated", "of them: those whose ICRC is wrong")                        \
    X(ecn_marked, "packets", "hw_counters/np_ecn_marked_roce_packets", "packets marked Congestion Experienced")               \
    X(cnp_sent, "packets", "hw_counters/np_cnp_sent", "congestion notifications sent, for marked packets")                    \
    X(cnp_received, "packets", "hw_counters/rp_cnp_handled", "congestion notifications of a QP's peer")                       \
    X(cnp_ignored, "packets", "hw_counters/rp_cnp_ignored", "congestion notifications of somebody else")                      \
    X(duplicate_requests, "packets", "hw_counters/duplicate_request", "requests that came again")                             \
    X(write_requests, "messages", "hw_counters/rx_write_requests", "RDMA WRITEs executed")                                    \
    X(read_requests, "messages", "hw_counters/rx_read_requests", "RDMA READs executed")                                       \
    X(atomic_requests, "messages", "hw_counters/rx_atomic_requests", "atomics executed")                                      \
    X(tx_errors, "completions", "hw_counters/req_cqe_error", "send completions in error, flushed ones too")                   \
    X(tx_flushed, "completions", "hw_counters/req_cqe_flush_error", "of them: flushed")                                       \
    X(rx_errors_completed, "completions", "hw_counters/resp_cqe_error", "receive completions in error, flushed too")          \
    X(rx_flushed, "completions", "hw_counters/resp_cqe_flush_error", "of them: flushed")                                      \
    X(retry_exceeded, "requests", "", "requests given up: no answer after all retries")                                       \
    X(rnr_retry_exceeded, "requests", "", "requests given up: no receive posted after all RNR retries")                       \
    X(remote_access_errors, "requests", "hw_counters/req_remote_access_errors", "requests refused: NAK remote access")        \
    X(remote_invalid_requests, "requests", "hw_counters/req_remote_invalid_request", "requests refused: NAK invalid request") \
    X(remote_operation_errors, "requests", "", "requests refused: NAK remote operational error")                              \
    X(local_errors, "requests", "", "requests that failed here: L_Key, length or the work request itself")

/// One counter's text. `file` is empty where no tool has a name for it.
struct CounterInfo {
    const char* name;
    const char* unit;
    const char* file;
    const char* text;
};

#define X(name, unit, file, text) uint64_t name = 0;
struct EventCounters {
    ROCI_EVENT_COUNTERS(X)
};
/// Of one QP.
struct Counters {
    ROCI_PACKET_COUNTERS(X)
    EventCounters events;
};
/// Of one device on one engine.
struct DeviceCounters : EventCounters {
    ROCI_PORT_COUNTERS(X)
    std::array<uint64_t, size_t(RequestFault::count_) - 1> faults{};  ///< by RequestFault, without none
};
#undef X

#define X(name, unit, file, text) {#name, unit, file, text},
#define ROCI_FAULT_INFO(name, file, text) {"request_" #name, "requests", file, text},
inline constexpr CounterInfo kQpCounters[] = {ROCI_PACKET_COUNTERS(X) ROCI_EVENT_COUNTERS(X)};
inline constexpr CounterInfo kDeviceCounters[] = {ROCI_EVENT_COUNTERS(X) ROCI_PORT_COUNTERS(X)
                                                      ROCI_REQUEST_FAULTS(ROCI_FAULT_INFO)};
#undef ROCI_FAULT_INFO
#undef X

inline constexpr size_t kQpCounterCount = std::size(kQpCounters), kDeviceCounterCount = std::size(kDeviceCounters);
static_assert(sizeof(Counters) == kQpCounterCount * sizeof(uint64_t));
static_assert(sizeof(DeviceCounters) == kDeviceCounterCount * sizeof(uint64_t));

using roci::bump;
inline void bump(DeviceCounters& d, RequestFault f) { bump(d.faults[size_t(f) - 1]); }

/// In the order of kQpCounters.
inline std::array<uint64_t, kQpCounterCount> values(const Counters& c) {
    std::array<uint64_t, kQpCounterCount> out{};
    size_t at = 0;
#define X(name, unit, file, text) out[at++] = c.name;
    ROCI_PACKET_COUNTERS(X)
#undef X
#define X(name, unit, file, text) out[at++] = c.events.name;
    ROCI_EVENT_COUNTERS(X)
#undef X
    return out;
}

}  // namespace roci::qp
