// Prefetches the data of QPs that will have their turn soon (qp/run_queue.hpp). Thousands of QPs do not fit into the nearest
// cache, and a chain of pointers leads from a QP to the data of a message. The pipeline therefore visits each QP of the run queue
// some turns early, in several steps. Each step reads the data that the previous step has prefetched. A client may change its
// ring meanwhile, so values from the ring are used as hints only.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/stage.hpp"
#include "mem/prefetch.hpp"
#include "qp/state.hpp"

namespace roci::engine {

class PrefetchPipeline {
public:
    explicit PrefetchPipeline(const mem::KeyTable& keys) : keys_(keys) {}
    /// Called before each QP's turn. `first` is the QP at the head of the run queue. The pipeline stays filled from round to
    /// round, because each refill would cost a chain of cache misses.
    void turn(const qp::Qp* first) {
        ROCI_STAGE(ahead);
        if (stages_.front() == nullptr) {
            enter(first);
            for (uint32_t i = 1; i < kSteps; ++i) step();
        }
        step();
    }
    /// Drops all QPs from the pipeline. Called before any QP is removed from the engine.
    void forget() { stages_ = {}; }

private:
    static constexpr uint32_t kSteps = 3 + mem::kPrefetchSteps;

    void step() {
        const qp::Qp* next = stages_.front() != nullptr ? stages_.front()->asking.next : nullptr;
        std::shift_right(stages_.begin(), stages_.end(), 1);
        enter(next);
        if (const qp::Qp* qp = stages_[1]) requester(*qp);
        if (const qp::Qp* qp = stages_[2]) queues(*qp);
        if (const qp::Qp* qp = stages_[3]) memory<0>(*qp);
        if (const qp::Qp* qp = stages_[4]) memory<1>(*qp);
        if (const qp::Qp* qp = stages_[5]) memory<2>(*qp);
    }

    void enter(const qp::Qp* qp) {
        stages_.front() = qp;
        if (qp != nullptr) qp::prefetch_basics(*qp);
    }
    static void requester(const qp::Qp& qp) {
        qp::prefetch_path(qp);
        qp::prefetch_requester(qp);
    }
    static bool fetches(const qp::Qp& qp) {
        return qp.has_work && qp.requester.queue.current() == nullptr && qp.spec.sq.depth != 0;
    }
    /// Prefetches the next work request in the client's ring.
    static void queues(const qp::Qp& qp) {
        if (!fetches(qp)) return;
        __builtin_prefetch(&qp.spec.sq.shared->idle);
        __builtin_prefetch(qp.spec.sq.slot(qp.requester.queue.fetched()));
    }
    /// Executes one step of the prefetch of a payload. The payload is that of the QP's current work request or, if the QP has no
    /// fetched work request left to send, of the next work request in the client's ring.
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
    std::array<const qp::Qp*, kSteps> stages_{};  ///< QPs, indexed by the last step that was executed for the QP
};

}  // namespace roci::engine
