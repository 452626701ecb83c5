// Tables of the specification: AETH syndromes, RNR timers, end-to-end credits, and for each send opcode its wire operations and
// completion opcode.
#pragma once

#include <array>
#include <cstdint>

#include "abi/wqe.hpp"
#include "base/types.hpp"
#include "qp/spec.hpp"
#include "wire/opcode.hpp"

namespace roci::qp {

/// AETH syndrome: bits 6:5 select the kind, bits 4:0 contain the value (IBA 9.7.5.2.1, table 43).
enum class AethKind : uint8_t { ack = 0, rnr_nak = 1, reserved = 2, nak = 3 };
constexpr AethKind aeth_kind(uint8_t syndrome) { return AethKind(syndrome >> 5 & 3); }
constexpr uint8_t aeth_value(uint8_t syndrome) { return syndrome & 0x1f; }
constexpr uint8_t make_syndrome(AethKind k, uint8_t value) { return uint8_t(uint8_t(k) << 5 | (value & 0x1f)); }

/// NAK codes (IBA table 45).
enum class NakCode : uint8_t {
    psn_sequence = 0,
    invalid_request = 1,
    remote_access = 2,
    remote_operational = 3,
    invalid_rd_request = 4
};
constexpr uint8_t nak_syndrome(NakCode c) { return make_syndrome(AethKind::nak, uint8_t(c)); }

/// Times of the RNR NAK timer field in microseconds (IBA table 46). Code 0 is the longest time.
inline constexpr std::array<uint32_t, 32> kRnrTimerUs = {
    655360, 10,   20,   30,   40,    60,    80,    120,   160,   240,   320,   480,    640,    960,    1280,   1920,
    2560,   3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

/// Returns the local ACK timeout, 4.096 us * 2^n; n = 0 disables the timeout (IBA 9.9.2.1).
constexpr Nanos ack_timeout(uint8_t n) { return n == 0 ? kNever : Nanos{4096} << n; }

/// End-to-end credit codes (IBA table 44): the AETH field encodes a number of receive WQEs. Code 31 means that the responder does
/// not count receives.
inline constexpr uint8_t kNoCredits = 31;
inline constexpr std::array<uint32_t, 31> kCredits = {0,    1,    2,    3,    4,    6,     8,     12,    16,   24,   32,
                                                      48,   64,   96,   128,  192,  256,   384,   512,   768,  1024, 1536,
                                                      2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
/// Returns the largest code whose number of receives does not exceed `posted`.
constexpr uint8_t credit_code(uint32_t posted) {
    uint8_t code = 0;
    while (code + 1u < kCredits.size() && kCredits[code + 1u] <= posted) ++code;
    return code;
}

/// The kinds of send work requests.
enum class WorkKind : uint8_t { none, send, write, local, read, atomic, atomic_write, flush };
/// Returns true for work that the peer answers with a READ or atomic response. The number of such requests in progress is limited
/// by max_rd_atomic (IBA 9.7.7).
constexpr bool needs_response(WorkKind k) { return k >= WorkKind::read; }
/// Payload length of an ATOMIC WRITE (IBA 1.6, annex on memory placement extensions).
inline constexpr uint32_t kAtomicWriteBytes = 8;

struct WorkInfo {
    WorkKind kind = WorkKind::none;
    abi::WcOpcode wc = abi::WcOpcode::send;
    bool takes_recv = false;  ///< consumes a receive WQE of the peer, so end-to-end credits apply
    wire::Operation only{}, first{}, middle{}, last{};
};

namespace detail {
constexpr std::array<WorkInfo, 16> make_work_table() {
    using O = wire::Operation;
    using W = abi::WrOpcode;
    using C = abi::WcOpcode;
    std::array<WorkInfo, 16> t{};
    t[size_t(W::send)] = {WorkKind::send, C::send, true, O::send_only, O::send_first, O::send_middle, O::send_last};
    t[size_t(W::send_imm)] = {WorkKind::send, C::send, true, O::send_only_imm, O::send_first, O::send_middle, O::send_last_imm};
    t[size_t(W::send_inv)] = {WorkKind::send, C::send, true, O::send_only_inv, O::send_first, O::send_middle, O::send_last_inv};
    t[size_t(W::rdma_write)] = {WorkKind::write, C::rdma_write,   false,        O::write_only,
                                O::write_first,  O::write_middle, O::write_last};
    t[size_t(W::rdma_write_imm)] = {WorkKind::write, C::rdma_write,    true, O::write_only_imm, O::write_first,
                                    O::write_middle, O::write_last_imm};
    t[size_t(W::rdma_read)] = {WorkKind::read,  C::rdma_read,    false,          O::read_request,
                               O::read_request, O::read_request, O::read_request};
    t[size_t(W::atomic_cmp_swp)] = {WorkKind::atomic, C::comp_swap, false, O::cmp_swap, O::cmp_swap, O::cmp_swap, O::cmp_swap};
    t[size_t(W::atomic_fetch_add)] = {WorkKind::atomic, C::fetch_add, false,       O::fetch_add,
                                      O::fetch_add,     O::fetch_add, O::fetch_add};
    t[size_t(W::atomic_write)] = {WorkKind::atomic_write, C::atomic_write, false,          O::atomic_write,
                                  O::atomic_write,        O::atomic_write, O::atomic_write};
    t[size_t(W::flush)] = {WorkKind::flush, C::flush, false, O::flush, O::flush, O::flush, O::flush};
    t[size_t(W::bind_mw)] = {WorkKind::local, C::bind_mw, false};
    t[size_t(W::local_inv)] = {WorkKind::local, C::local_inv, false};
    return t;
}
}  // namespace detail
inline constexpr std::array<WorkInfo, 16> kWork = detail::make_work_table();
/// Returns the row of an opcode. The opcode may be any byte; the row of an unknown opcode has kind none.
constexpr const WorkInfo& work_info(abi::WrOpcode o) { return kWork[size_t(o) < kWork.size() ? size_t(o) : 9u + 3u]; }
static_assert(kWork[12].kind == WorkKind::none);

/// Returns the service in the BTH opcodes of a QP type.
constexpr wire::Service service_of(Type t) {
    switch (t) {
        case Type::uc:
            return wire::Service::uc;
        case Type::ud:
            return wire::Service::ud;
        case Type::xrc_send:
        case Type::xrc_recv:
            return wire::Service::xrc;
        default:
            return wire::Service::rc;
    }
}

/// Returns true for types without acknowledgements. Their requests are complete once they are sent (IBA 9.8.3).
constexpr bool unacknowledged(Type t) { return t == Type::uc || t == Type::ud; }

/// Returns true if a QP of this type may send this kind of work (IBA table 92).
constexpr bool sends(Type t, WorkKind k) {
    if (t == Type::ud) return k == WorkKind::send;
    if (t == Type::uc) return k == WorkKind::send || k == WorkKind::write || k == WorkKind::local;
    return t == Type::rc || t == Type::xrc_send;
}

/// The largest number of SGEs that any receive WQE may have.
inline constexpr uint32_t kMaxRecvSge = 64;

/// Longest message (IBA 9.7.8: 2^31 bytes).
inline constexpr uint64_t kMaxMessage = uint64_t{1} << 31;

}  // namespace roci::qp
