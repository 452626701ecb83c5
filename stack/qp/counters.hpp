// Counters of QPs and devices. The tables below define the storage, the names in `roci status` and `roci stat`, the files in
// the sysfs view of `roci run`, and docs/counters.md. Only one engine writes each counter. Any thread may read the counters
// with relaxed loads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bump.hpp"
#include "qp/faults.hpp"

namespace roci::qp {

// Each row: name; unit; file below ports/1 of the sysfs view, or "" if there is none; meaning.

/// Counters of QPs only. These counters are stored first, because every packet changes some of them.
#define ROCI_PACKET_COUNTERS(X)                                             \
    X(tx_packets, "packets", "", "packets sent, including retransmissions") \
    X(tx_bytes, "bytes", "", "bytes of the frames sent")                    \
    X(rx_packets, "packets", "", "packets received and accepted")           \
    X(rx_bytes, "bytes", "", "bytes of payload received")

/// Counters of both QPs and devices.
#define ROCI_EVENT_COUNTERS(X)                                                                                            \
    X(tx_messages, "messages", "", "messages sent, including READ requests and atomics")                                  \
    X(rx_messages, "messages", "", "messages received, including executed READs and atomics")                             \
    X(retransmits, "packets", "", "retransmitted packets")                                                                \
    X(timeouts, "events", "hw_counters/local_ack_timeout_err", "local ACK timeouts: the peer did not respond in time")    \
    X(rnr_nak_sent, "packets", "hw_counters/out_of_buffer", "messages refused because no receive was posted")             \
    X(rnr_nak_received, "packets", "hw_counters/rnr_nak_retry_err", "RNR NAKs received: the peer had no receive posted")  \
    X(seq_nak_sent, "packets", "", "sequence NAKs sent: a packet was missing")                                            \
    X(seq_nak_received, "packets", "hw_counters/packet_seq_err", "sequence NAKs received: the peer did not get a packet") \
    X(duplicates, "packets", "", "repeated requests, and responses to no outstanding request")                            \
    X(out_of_order, "packets", "hw_counters/out_of_sequence", "requests that arrived before an earlier request")          \
    X(implied_naks, "events", "hw_counters/implied_nak_seq_err", "responses that imply the loss of an earlier response")  \
    X(requests_refused, "requests", "", "refused requests of the peer; each request_* counts one kind of fault")          \
    X(dropped, "packets", "", "packets and messages discarded: wrong QP state, no receive, or invalid")

#define ROCI_PORT_COUNTERS(X)                                                                                                    \
    X(tx_frames, "frames", "counters/port_xmit_packets", "frames sent")                                                          \
    X(tx_octets, "bytes", "counters/port_xmit_data", "bytes of the frames sent, without FCS; the file counts units of 4 bytes")  \
    X(rx_frames, "frames", "counters/port_rcv_packets", "frames received")                                                       \
    X(rx_octets, "bytes", "counters/port_rcv_data", "bytes of the frames received; the file counts units of 4 bytes")            \
    X(rx_errors, "frames", "counters/port_rcv_errors", "RoCE frames refused because they are malformed or damaged")              \
    X(icrc_errors, "frames", "hw_counters/rx_icrc_encapsulated",                                                                 \
      "RoCE frames refused because their ICRC is wrong; part of rx_errors")                                                      \
    X(ecn_marked, "packets", "hw_counters/np_ecn_marked_roce_packets", "packets marked Congestion Experienced")                  \
    X(cnp_sent, "packets", "hw_counters/np_cnp_sent", "CNPs sent, because packets were marked")                                  \
    X(cnp_received, "packets", "hw_counters/rp_cnp_handled", "congestion notifications (CNPs) from the peer of a QP")            \
    X(cnp_ignored, "packets", "hw_counters/rp_cnp_ignored", "CNPs that are not from the peer of the QP")                         \
    X(duplicate_requests, "packets", "hw_counters/duplicate_request", "repeated requests")                                       \
    X(write_requests, "messages", "hw_counters/rx_write_requests", "RDMA WRITEs executed")                                       \
    X(read_requests, "messages", "hw_counters/rx_read_requests", "RDMA READs executed")                                          \
    X(atomic_requests, "messages", "hw_counters/rx_atomic_requests", "atomics executed")                                         \
    X(tx_errors, "completions", "hw_counters/req_cqe_error", "send completions in error, including flushed ones")                \
    X(tx_flushed, "completions", "hw_counters/req_cqe_flush_error", "send completions flushed; part of tx_errors")               \
    X(rx_errors_completed, "completions", "hw_counters/resp_cqe_error", "receive completions in error, including flushed ones")  \
    X(rx_flushed, "completions", "hw_counters/resp_cqe_flush_error", "receive completions flushed; part of rx_errors_completed") \
    X(retry_exceeded, "requests", "", "requests that failed: no response after all retries")                                     \
    X(rnr_retry_exceeded, "requests", "", "requests that failed: no receive posted after all RNR retries")                       \
    X(remote_access_errors, "requests", "hw_counters/req_remote_access_errors",                                                  \
      "requests that the peer refused: NAK remote access error")                                                                 \
    X(remote_invalid_requests, "requests", "hw_counters/req_remote_invalid_request",                                             \
      "requests that the peer refused: NAK invalid request")                                                                     \
    X(remote_operation_errors, "requests", "", "requests that the peer refused: NAK remote operational error")                   \
    X(local_errors, "requests", "", "requests that failed locally: wrong L_Key, length or work request")

/// Description of one counter. `file` is empty if the sysfs view has no such file.
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
/// The counters of one QP.
struct Counters {
    ROCI_PACKET_COUNTERS(X)
    EventCounters events;
};
/// The counters of one device on one engine.
struct DeviceCounters : EventCounters {
    ROCI_PORT_COUNTERS(X)
    std::array<uint64_t, size_t(RequestFault::count_) - 1> faults{};  ///< by RequestFault; fault `none` has no entry
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

/// Returns the values in the order of kQpCounters.
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
