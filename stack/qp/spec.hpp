// Data that the conductor (rocid's control thread) passes to an engine to create, change and query a QP. The conductor has
// validated the data: handles are resolved and ranges are checked.
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
struct Srq;      // state.hpp
struct Journal;  // journal.hpp

/// The values of enum ibv_qp_type and ibv_qp_state, as in the ABI.
enum class Type : uint8_t { rc = 2, uc = 3, ud = 4, raw_packet = 8, xrc_send = 9, xrc_recv = 10 };
enum class State : uint8_t { reset, init, rtr, rts, sqd, sqe, err };

/// The constant properties of a shared receive queue. One engine owns an SRQ and all its QPs. The ring is not a constant
/// property, because resize_srq may replace the ring.
struct SrqSpec {
    uint32_t session = 0, handle = 0, generation = 0, srqn = 0;
    uint32_t pd = 0;
    uint32_t engine = 0;
    uint32_t xrcd = 0;        ///< XRC: global number of the domain; otherwise 0
    rings::Cq* cq = nullptr;  ///< XRC and tag matching: the CQ for the SRQ's completions
    TagSpec tags;             ///< only for tag matching
};

/// The owner of a QP. The owner's session receives the QP's events. An XRC target may get another owner (MoveQp). The handle of a
/// QP is also the number of its doorbell slot in the session.
struct Owner {
    uint32_t session = 0, handle = 0, generation = 0;
    bool operator==(const Owner&) const = default;
};

/// The constant properties of a QP. The properties are stored once, in the engine's object, and the conductor reads the
/// properties there. The first cache line contains the fields for sending, and the second contains the fields for receiving.
struct Spec {
    Type type = Type::rc;
    bool sq_sig_all = false;
    uint16_t max_send_sge = 0;     ///< the granted value
    uint32_t max_inline_data = 0;  ///< the granted value, bytes
    Qpn qpn;
    uint32_t engine = 0;
    uint32_t port = 0;  ///< index of the device
    uint32_t pd = 0;    ///< global PD number
    uint32_t xrcd = 0;  ///< XRC_RECV: global number of the domain
    rings::SqView sq;   ///< depth 0: there is no send queue
    rings::Cq* send_cq = nullptr;
    alignas(64) rings::RqView rq;  ///< depth 0: there is no receive queue, for example because the QP uses an SRQ
    rings::Cq* recv_cq = nullptr;
    Srq* srq = nullptr;
};
static_assert(sizeof(Spec) == 128 && offsetof(Spec, rq) == 64);

/// A request of modify_qp whose values the conductor has checked and resolved. The engine decides whether the transition is
/// legal (qp/attributes.hpp), because only the engine has the state of the QP.
struct Change {
    uint32_t mask = 0;   ///< bits of enum ibv_qp_attr_mask
    bool trial = false;  ///< the engine checks the transition and changes nothing
    abi::QpAttr attr{};
    wire::PathTemplate path{};  ///< valid with IBV_QP_AV
};

/// Reasons for which an engine refuses a state transition.
enum class Refusal : uint8_t {
    none,
    no_table,       ///< the type of the QP has no state machine
    no_such_state,  ///< the value of IBV_QP_STATE is not a state
    no_transition,  ///< the state machine has no such transition
    missing,        ///< attributes that the transition requires are missing
    forbidden,      ///< attributes that the transition does not permit are present
    another_state,  ///< the value of IBV_QP_CUR_STATE is not the QP's current state
};
/// The engine's decision on a Change.
struct Decision {
    State from = State::reset, to = State::reset;
    Refusal refusal = Refusal::none;
    uint32_t named = 0;  ///< for missing and forbidden, the attributes; for no_such_state and another_state, the requested state
    Nanos at = 0;        ///< time of the decision, by the engine's clock
};

/// The values of a QP that query_qp and `roci status` report.
struct Snapshot {
    State state = State::reset;
    bool sq_draining = false;
    Counters counters{};
    Psn send_psn, unacked_psn, expected_psn;
    uint32_t send_queued = 0, recv_posted = 0;
    RepeatMode repeat = RepeatMode::unknown;
    bool reports = false;     ///< the peer sends loss reports, and the QP uses them
    uint32_t round_trip = 0;  ///< smoothed round trip, ns; 0 if not measured yet
    uint32_t probes = 0;      ///< number of probes sent because no ACK arrived for a few round trips
    cc::Policy policy = cc::Policy::fixed_window;
    uint16_t window = 0;         ///< packets that congestion control permits in flight
    uint32_t rate = 0;           ///< rate that congestion control permits, bytes per millisecond; 0: no limit
    uint32_t kept = 0;           ///< number of frames in the QP's reorder buffer
    Limit limit = Limit::state;  ///< set by the command QueryQp only
    Habits habits;               ///< set by QueryQp only, if the command requests the journal
    uint32_t open_window = 0;    ///< number of packets that may be unacknowledged now; set by QueryQp only
};

/// Memory of all QPs of a rocid, in one slab. Only the conductor uses the pool.
class Pool {
public:
    struct Free {
        Pool* pool = nullptr;
        void operator()(Qp* qp) const { pool->free(qp); }
    };
    using Handle = std::unique_ptr<Qp, Free>;

    explicit Pool(ChunkSource& chunks);
    /// Creates a QP in RESET. Returns nullptr if memory is exhausted. The QP may be destroyed only after the engine has executed
    /// the command RemoveQp.
    Handle create(const Spec& spec, const Owner& owner);
    size_t bytes() const { return slab_.taken_bytes(); }

private:
    void free(Qp* qp);
    Slab slab_;
};
/// Reads state, counters and journal of a QP that its engine has removed. Returns false if the QP has no journal, because no
/// unusual event occurred.
bool last_words(const Qp& qp, Snapshot& now, Journal& journal);
Srq* create_srq(const SrqSpec& spec, const rings::RqView& queue);
void free(Srq* srq);

// Parts of the engine's objects that the conductor may read, because they are constant or change only by a command of the
// conductor.
const Spec& spec_of(const Qp& qp);
const Owner& owner_of(const Qp& qp);
const SrqSpec& spec_of(const Srq& srq);
const rings::RqView& queue_of(const Srq& srq);

}  // namespace roci::qp
