// The reasons for which the responder refuses a request, one row per fault. Each row defines a counter of the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::qp {

// Each row: name; file below ports/1 of the sysfs view, or "" if there is none; meaning.
#define ROCI_REQUEST_FAULTS(X)                                                                               \
    X(invalid_succession, "", "packets whose opcode may not follow the one before it")                       \
    X(not_allowed, "", "requests that the QP's type forbids, or that need a missing receive queue")          \
    X(too_many_reads, "", "READs and atomics beyond max_dest_rd_atomic")                                     \
    X(bad_length, "", "packets whose length does not fit their opcode or message")                           \
    X(message_too_long, "hw_counters/resp_local_length_error", "messages longer than the receive's buffers") \
    X(access, "hw_counters/resp_remote_access_errors", "requests whose R_Key, PD, right or range is wrong")  \
    X(recv_protection, "", "receives whose L_Key, PD, right or range is wrong")                              \
    X(malformed_recv, "", "receives that the engine cannot read")                                            \
    X(unreachable, "", "requests for memory that was unmapped during the access")                            \
    X(invalidation, "", "SENDs with invalidate whose R_Key is not a memory window of the QP")                \
    X(no_right, "", "requests that the QP's access flags forbid")                                            \
    X(misaligned, "", "atomics whose address is not a multiple of 8")                                        \
    X(bad_flush, "", "FLUSHes with a reserved placement type or selectivity level")                          \
    X(read_memory_gone, "", "READs whose memory was deregistered before the last response")                  \
    X(wrong_qkey, "", "datagrams with another Q_Key than the QP's")

enum class RequestFault : uint8_t {
    none,
#define X(name, file, text) name,
    ROCI_REQUEST_FAULTS(X)
#undef X
        count_,
};

}  // namespace roci::qp
