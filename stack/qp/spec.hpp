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

/// What a shared receive queue is, from its creation to its end. One engine owns it and all its QPs. Its ring may be replaced
/// (resize_srq), so the ring is no part of it.
struct SrqSpec {
    uint32_t session = 0, handle = 0, generation = 0, srqn = 0;
    uint32_t pd = 0;
    uint32_t engine = 0;
    uint32_t xrcd = 0;        ///< XRC: global number of the domain, else 0
    rings::Cq* cq = nullptr;  ///< XRC and tag matching: the CQ of its receives
    TagSpec tags;             ///< tag matching
};

/// The owner of a QP, to which its events go. An XRC target may get another one (move_qp). A session's handles are its doorbell
/// slots.
struct Owner {
    uint32_t session = 0, handle = 0, generation = 0;
    bool operator==(const Owner&) const = default;
};

/// What a QP is, from its creation to its end. It is stored once, in the engine's object, which the conductor reads too. One
/// cache line for sending, one for receiving.
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
    rings::SqView sq;   ///< .depth 0: none
    rings::Cq* send_cq = nullptr;
    alignas(64) rings::RqView rq;  ///< .depth 0: none (SRQ)
    rings::Cq* recv_cq = nullptr;
    Srq* srq = nullptr;
};
static_assert(sizeof(Spec) == 128 && offsetof(Spec, rq) == 64);

/// A request of modify_qp whose values the conductor has checked and resolved. The engine, which alone knows the state of the QP,
/// decides whether the step is legal (qp/attributes.hpp).
struct Change {
    uint32_t mask = 0;   ///< enum ibv_qp_attr_mask
    bool trial = false;  ///< only decide, change nothing
    abi::QpAttr attr{};
    wire::PathTemplate path{};  ///< with IBV_QP_AV
};

/// Why an engine refuses a step of the state machine.
enum class Refusal : uint8_t {
    none,
    no_table,       ///< the type of the QP has no state machine
    no_such_state,  ///< IBV_QP_STATE is no state
    no_transition,  ///< there is no way from the current state to the other
    missing,        ///< attributes that the transition requires
    forbidden,      ///< attributes that the transition must not have
    another_state,  ///< IBV_QP_CUR_STATE is not the state of the QP
};
/// The engine's decision on a Change.
struct Decision {
    State from = State::reset, to = State::reset;
    Refusal refusal = Refusal::none;
    uint32_t named = 0;  ///< missing, forbidden: the attributes. no_such_state, another_state: the state in the request
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
    Handle create(const Spec& spec, const Owner& owner);
    size_t bytes() const { return slab_.taken_bytes(); }

private:
    void free(Qp* qp);
    Slab slab_;
};
/// State, counters and journal of a QP that its engine has forgotten. False: nothing ever went wrong on it.
bool last_words(const Qp& qp, Snapshot& now, Journal& journal);
Srq* create_srq(const SrqSpec& spec, const rings::RqView& queue);
void free(Srq* srq);

// What the conductor reads of the engine's objects: it is constant, or changes only by a command of the conductor itself.
const Spec& spec_of(const Qp& qp);
const Owner& owner_of(const Qp& qp);
const SrqSpec& spec_of(const Srq& srq);
const rings::RqView& queue_of(const Srq& srq);

}  // namespace roci::qp
