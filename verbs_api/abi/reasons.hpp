// The reasons why a work request fails or a QP refuses a packet. The number of a reason is the vendor_err of the completion.
// `roci why` prints the text. Numbers never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace roci::abi {

// columns: number, name, what happened, what to check
#define ROCI_REASONS(X)                                                                                                       \
    X(1, flushed, "the QP was in error before this work request was done", "its first completion in error has the cause")     \
    X(2, peer_silent, "the peer did not answer any of the retries",                                                           \
      "compare destination QP number, GID, starting PSN and path MTU of both ends; the peer's QP must be in RTR or RTS, and " \
      "the network must carry UDP port 4791 and frames of the path MTU")                                                      \
    X(3, packets_lost, "packets were lost again after every retry", "look at the network, or raise retry_cnt")                \
    X(4, no_receive_posted, "the peer had no receive posted, and all RNR retries are used up",                                \
      "let the peer post receives before messages arrive, raise rnr_retry (7: no limit), or let the peer set a longer "       \
      "min_rnr_timer")                                                                                                        \
    X(5, peer_refused_access, "the peer refused the access: R_Key, protection domain, right or range is wrong there",         \
      "compare R_Key, address and length with what the peer registered")                                                      \
    X(6, peer_refused_request, "the peer refused the request as invalid",                                                     \
      "compare the peer's qp_access_flags, the length of its receives, its max_dest_rd_atomic, and the alignment of atomics") \
    X(7, peer_failed, "the peer could not execute the request",                                                               \
      "its own receive is wrong: L_Key, protection domain or range, or its memory is gone")                                   \
    X(8, bad_response, "the peer's response does not fit the request", "one of both ends is broken")                          \
    X(9, malformed_request, "the work request is not allowed on this QP",                                                     \
      "look at opcode and QP type, number of SGEs, inline length, and max_rd_atomic")                                         \
    X(10, message_too_long, "the message is longer than the QP can send",                                                     \
      "a datagram has the path MTU at most, a message 2 GiB")                                                                 \
    X(11, bad_address_handle, "the address handle is not valid for this QP", "it must exist and have the PD of the QP")       \
    X(12, bad_bind, "the memory window could not be bound", "look at region, right IBV_ACCESS_MW_BIND, and range")            \
    X(16, lkey_unknown, "the L_Key of an SGE names no memory region", "was the region deregistered?")                         \
    X(17, lkey_other_pd, "the L_Key of an SGE is of another protection domain than the queue", "register with the QP's PD")   \
    X(18, lkey_no_right, "the region of an SGE may not be written", "register it with IBV_ACCESS_LOCAL_WRITE")                \
    X(19, lkey_range, "an SGE reaches beyond its memory region", "compare address and length with the registration")          \
    X(20, memory_gone, "the memory of a region went away", "did the program unmap it or truncate its file?")                  \
    X(24, rkey_unknown, "the R_Key of a request names no memory region", "is it stale, or of another program?")               \
    X(25, rkey_other_pd, "the R_Key of a request is of another protection domain than the QP", "register with the QP's PD")   \
    X(26, rkey_no_right, "the region of an R_Key does not permit this access",                                                \
      "register it with IBV_ACCESS_REMOTE_WRITE, _READ, _ATOMIC or IBV_ACCESS_FLUSH_GLOBAL")                                  \
    X(27, rkey_range, "a request reaches beyond the memory region of its R_Key", "compare address and length")                \
    X(32, invalid_succession, "a packet's opcode may not follow the one before it", "the peer is broken")                     \
    X(33, not_allowed, "a request is not possible on this QP", "look at its type, and whether it has a receive queue")        \
    X(34, too_many_reads, "the peer has more READs and atomics under way than max_dest_rd_atomic",                            \
      "set the peer's max_rd_atomic to no more than max_dest_rd_atomic here")                                                 \
    X(35, bad_length, "a packet's length does not fit its message", "do both ends have the same path MTU?")                   \
    X(36, receive_too_small, "a message is longer than the receive that was posted for it", "post longer receives")           \
    X(37, malformed_receive, "a receive is malformed", "look at its number of SGEs")                                          \
    X(38, invalidation, "a SEND with invalidate names no memory window of this QP", "look at the R_Key that it carries")      \
    X(39, access_flags, "the QP's qp_access_flags do not permit this request",                                                \
      "set IBV_ACCESS_REMOTE_WRITE, _READ, _ATOMIC or IBV_ACCESS_FLUSH_GLOBAL with ibv_modify_qp")                            \
    X(40, misaligned, "an atomic's address is not a multiple of 8", "align it")                                               \
    X(41, wrong_qkey, "datagrams came with another Q_Key than the QP's", "compare the Q_Keys of both ends")                   \
    X(42, datagram_dropped, "datagrams came while no receive was posted that is long enough",                                 \
      "post more receives, each 40 bytes longer than the datagram")                                                           \
    X(43, bad_flush, "a FLUSH has a reserved placement type or selectivity level", "the peer is broken")                      \
    X(48, cq_overrun, "the completion queue overran", "make it as large as all queues that complete into it, or poll more often")

enum class Reason : uint8_t {
    none = 0,
#define X(number, name, text, advice) name = (number),
    ROCI_REASONS(X)
#undef X
};

struct ReasonText {
    Reason reason;
    const char* name;
    const char* text;
    const char* advice;
};
inline constexpr ReasonText kReasons[] = {
#define X(number, name, text, advice) {Reason::name, #name, text, advice},
    ROCI_REASONS(X)
#undef X
};

/// Returns nullptr if no reason has this number.
constexpr const ReasonText* find_reason(uint32_t number) {
    for (const ReasonText& r : kReasons)
        if (uint32_t(r.reason) == number) return &r;
    return nullptr;
}

}  // namespace roci::abi
