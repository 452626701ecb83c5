// The data about one QP that `roci why` reports, and the archive of this data for destroyed QPs.
#pragma once

#include <deque>
#include <string>

#include "abi/control.hpp"
#include "host/state_steps.hpp"
#include "qp/journal.hpp"
#include "qp/spec.hpp"

namespace roci::host {

struct QpFacts {
    uint32_t qpn = 0, device = 0, uid = 0;
    int pid = 0;
    std::string program;
    qp::Type type{};
    abi::QpAttr attr{};
    qp::Snapshot now;
    qp::Journal journal;
    StateSteps steps;
    bool gone = false;
    uint32_t send_depth = 0, recv_depth = 0;
    bool has_srq = false;
    uint64_t slow_ops = 0;    ///< number of accesses to slow memory (mem/slow_memory.hpp) of the QP's session
    uint32_t engine_qps = 0;  ///< number of QPs and SRQs of the QP's engine
    /// `receiving`: number of QPs that receive on the device. `disturbed`: number of these QPs that have detected PSN gaps.
    uint32_t receiving = 0, disturbed = 0;
    std::string refused;  ///< copy of Qp::refused
};

/// Data of destroyed QPs that had a journal, or whose last modify_qp was refused in a state before RTS. The archive keeps the
/// newest kMostOfUser QPs per user and the newest kMost QPs in total. If there are at most kMost / kMostOfUser users, the QPs of
/// one user do not displace QPs of other users.
class Archive {
public:
    static constexpr size_t kMost = 256, kMostOfUser = 32;
    void keep(QpFacts facts);
    /// Returns the data of the last destroyed QP with this number, or nullptr.
    const QpFacts* find(uint32_t qpn) const;
    size_t size() const { return all_.size(); }

private:
    std::deque<QpFacts> all_;
};

}  // namespace roci::host
