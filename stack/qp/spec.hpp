// Data that the conductor passes to an engine to create, change and query a QP. It is validated: handles are resolved, ranges
// checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "abi/control.hpp"
#include "base/slab.hpp"
#include "base/types.hpp"
#include "cc/controller.hpp"
#include "qp/counters.hpp"
#include "qp/limit.hpp"
#include "qp/repair.hpp"
#include "qp/tag_matching.hpp"
#include "rings/queues.hpp"
#include "wire/build.hpp"

namespace roci::qp {

struct Qp;       // state.hpp
struct Srq;      // srq.hpp
struct Journal;  // journal.hpp

/// enum ibv_qp_type and ibv_qp_state, as numbers of the ABI.
enum class Type : uint8_t { rc = 2, uc = 3, ud = 4, raw_packet = 8, xrc_send = 9, xrc_recv = 10 };
enum class State : uint8_t { reset, init, rtr, rts, sqd, sqe, err };

/// A shared receive queue. One engine owns it and all its QPs.
struct SrqSpec {
    uint32_t session = 0, handle = 0, generation = 0, srqn = 0;
    uint32_t pd = 0;
    rings::RqView rq;
    uint32_t limit = 0;
    uint32_t engine = 0;
    uint32_t xrcd = 0;        ///< XRC: global number of the domain, else 0
    rings::Cq* cq = nullptr;  ///< XRC and tag matching: the CQ of its receives
    TagSpec tags;             ///< tag matching
};

/// The owner of a QP, to which its events go.
struct Owner {
    uint32_t session = 0, handle = 0, generation = 0;
    bool operator==(const Owner&) const = default;
};

/// One cache line for sending, one for receiving and events.
struct Spec {
    Type type = Type::rc;
    bool sq_sig_all = false;
    uint16_t max_send_sge = 0;     ///< granted
    uint32_t max_inline_data = 0;  ///< granted
    Qpn qpn;
    uint32_t engine = 0;
    uint32_t port = 0;  ///< device index
    uint32_t pd = 0;    ///< global PD number
    uint32_t xrcd = 0;  ///< XRC_RECV: global number of the domain
    uint32_t slot = 0;  ///< doorbell bit
    rings::SqView sq;   ///< .depth 0: none
    rings::Cq* send_cq = nullptr;
    alignas(64) rings::RqView rq;  ///< .depth 0: none (SRQ); consumed by the engine
    rings::Cq* recv_cq = nullptr;
    Srq* srq = nullptr;
    uint32_t session = 0, handle = 0, generation = 0;
};
static_assert(sizeof(Spec) == 128 && offsetof(Spec, rq) == 64);

/// A session's handles are its doorbell slots.
inline void set_owner(Spec& spec, const Owner& owner) {
    spec.session = owner.session;
    spec.handle = spec.slot = owner.handle;
    spec.generation = owner.generation;
}

/// Attributes of modify_qp after the conductor applied the mask rules (qp/attributes.hpp). `mask`: enum ibv_qp_attr_mask, only
/// what is to be changed.
struct Change {
    uint32_t mask = 0;
    State next = State::reset;  ///< with IBV_QP_STATE; else the current one
    abi::QpAttr attr{};
    wire::PathTemplate path{};   ///< with IBV_QP_AV
    wire::PathSpec path_spec{};  ///< with IBV_QP_AV: addresses that incoming packets must carry, reversed
    bool hairpin = false;        ///< with IBV_QP_AV: the peer is this very device
};

/// What query_qp and status show.
struct Snapshot {
    State state = State::reset;
    bool sq_draining = false;
    Counters counters{};
    Psn send_psn, unacked_psn, expected_psn;
    uint32_t send_queued = 0, recv_posted = 0;
    RepeatMode repeat = RepeatMode::unknown;
    uint32_t round_trip = 0;  ///< smoothed, ns; 0: not measured yet
    uint32_t probes = 0;      ///< sent because no ACK came for a few round trips
    cc::Policy policy = cc::Policy::fixed_window;
    uint16_t window = 0;         ///< packets that congestion control allows
    uint32_t rate = 0;           ///< likewise, bytes per millisecond; 0: no limit
    uint32_t kept = 0;           ///< frames in its reorder buffer
    Limit limit = Limit::state;  ///< query_qps only, as are the next two
    Habits habits;
    uint32_t open_window = 0;  ///< packets that may be unacknowledged now
};

/// All QPs of a rocid, adjacent in memory. Used by the conductor.
class Pool {
public:
    struct Free {
        Pool* pool = nullptr;
        void operator()(Qp* qp) const { pool->free(qp); }
    };
    using Handle = std::unique_ptr<Qp, Free>;

    explicit Pool(ChunkSource& chunks);
    /// Creates a QP in RESET. nullptr: no memory. It may be destroyed only after the engine has executed remove_qp.
    Handle create(const Spec& spec);
    size_t bytes() const { return slab_.taken_bytes(); }

private:
    void free(Qp* qp);
    Slab slab_;
};
/// State, counters and journal of a QP that its engine has forgotten. False: nothing ever went wrong on it.
bool last_words(const Qp& qp, Snapshot& now, Journal& journal);
Srq* create_srq(const SrqSpec& spec);
void free(Srq* srq);

}  // namespace roci::qp
