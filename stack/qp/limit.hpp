// Determines what limits the send rate of a QP now (limit_of), and how the program posts its send requests (habits_of). These
// functions run only when a user calls `roci status`, `roci top` or `roci why`. They read the requester's state and the
// client's ring, so the transport records nothing in advance.
#pragma once

#include <cstdint>

namespace roci::qp {

struct Context;
struct Qp;

// Each row: name; meaning.
#define ROCI_LIMITS(X)                                                                        \
    X(state, "the QP is not in RTS: it sends nothing")                                        \
    X(program, "nothing is posted: the flow waits for the program")                           \
    X(credits, "the peer has no receive posted for the next message")                         \
    X(window, "as many packets as engine.max_inflight allows wait for their acknowledgement") \
    X(congestion, "congestion control holds the flow back")                                   \
    X(loss, "packets are sent again: they were lost, or the peer is silent")                  \
    X(reads, "max_rd_atomic READs and atomics are outstanding, or a fence waits for them")    \
    X(memory, "memory that is reached by address has not answered")                           \
    X(peer, "everything that is posted is sent: the answer of the peer is awaited")           \
    X(rate, "the user's limit bytes_per_second or packets_per_second is reached")             \
    X(port, "the port takes no more frames")                                                  \
    X(lcore, "the QP may send and waits for its turn: the engine has more to do")

enum class Limit : uint8_t {
#define X(name, text) name,
    ROCI_LIMITS(X)
#undef X
};
struct LimitText {
    const char* name;
    const char* text;
};
inline constexpr LimitText kLimits[] = {
#define X(name, text) {#name, text},
    ROCI_LIMITS(X)
#undef X
};

/// Returns what limits the QP now. Called between rounds of the QP's engine. The result is a single sample. The most frequent
/// result of several samples describes the QP best.
Limit limit_of(const Context& ctx, const Qp& qp);

/// Statistics of the last send requests that the engine has fetched, read from the client's ring. The client can change the ring
/// at any time, so the values are only displayed.
struct Habits {
    static constexpr uint32_t kMost = 16;
    uint8_t looked = 0;     ///< number of requests that were examined
    uint8_t signaled = 0;   ///< number of examined requests that produce a completion
    uint8_t unaligned = 0;  ///< examined requests whose first buffer has at least 512 bytes and begins within a cache line
};
Habits habits_of(const Qp& qp);

}  // namespace roci::qp
