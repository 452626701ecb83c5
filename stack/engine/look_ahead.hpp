// Thousands of QPs do not fit into the nearest cache, and what a message needs is reached from its QP by a chain of pointers. So
// each QP on the list is visited some turns before its own, step by step: each step reads what the one before has asked for. What
// a client may be changing meanwhile is taken as a hint only.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/stage.hpp"
#include "mem/prefetch.hpp"
#include "qp/state.hpp"

namespace roci::engine {

class LookAhead {
public:
    explicit LookAhead(const mem::KeyTable& keys) : keys_(keys) {}
    /// Before each QP's turn. `first`: of the requesters that have one, which is it. From round to round it goes on where it is:
    /// to catch up with the first steps would be a chain of waits.
    void turn(const qp::Qp* first) {
        ROCI_STAGE(ahead);
        if (coming_.front() == nullptr) {
            enter(first);
            for (uint32_t i = 1; i < kSteps; ++i) step();
        }
        step();
    }
    /// Before any QP goes.
    void forget() { coming_ = {}; }

private:
    static constexpr uint32_t kSteps = 3 + mem::kPrefetchSteps;

    void step() {
        const qp::Qp* next = coming_.front() != nullptr ? coming_.front()->asking.next : nullptr;
        std::shift_right(coming_.begin(), coming_.end(), 1);
        enter(next);
        if (const qp::Qp* qp = coming_[1]) requester(*qp);
        if (const qp::Qp* qp = coming_[2]) queues(*qp);
        if (const qp::Qp* qp = coming_[3]) memory<0>(*qp);
        if (const qp::Qp* qp = coming_[4]) memory<1>(*qp);
        if (const qp::Qp* qp = coming_[5]) memory<2>(*qp);
    }

    void enter(const qp::Qp* qp) {
        coming_.front() = qp;
        if (qp != nullptr) qp::prefetch_basics(*qp);
    }
    static void requester(const qp::Qp& qp) {
        qp::prefetch_path(qp);
        qp::prefetch_requester(qp);
    }
    static bool fetches(const qp::Qp& qp) {
        return qp.has_work && qp.requester.queue.current() == nullptr && qp.spec.sq.depth != 0;
    }
    /// The next work request in the client's ring.
    static void queues(const qp::Qp& qp) {
        if (!fetches(qp)) return;
        __builtin_prefetch(&qp.spec.sq.shared->idle);
        __builtin_prefetch(qp.spec.sq.slot(qp.requester.queue.fetched()));
    }
    /// The bytes that it sends.
    template <uint32_t step>
    void memory(const qp::Qp& qp) const {
        if (!qp.has_work || qp.spec.sq.depth == 0) return;
        const qp::Requester& rq = qp.requester;
        const auto* wqe = rq.queue.current() == nullptr ? qp.spec.sq.slot(rq.queue.fetched())
                                                        : reinterpret_cast<const std::byte*>(&qp::wqe(*rq.queue.current()));
        abi::Sge sge;
        std::memcpy(&sge, wqe + abi::kSendWqeHead, sizeof sge);
        mem::prefetch<step>(keys_, Key{sge.lkey}, sge.addr);
    }

    const mem::KeyTable& keys_;
    std::array<const qp::Qp*, kSteps> coming_{};  ///< by the step that was done for it last
};

}  // namespace roci::engine
