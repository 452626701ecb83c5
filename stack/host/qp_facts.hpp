// What `roci why` knows of one QP, and what is kept of those that are gone.
#pragma once

#include <deque>
#include <string>

#include "abi/control.hpp"
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
    bool gone = false;
    uint32_t send_depth = 0, recv_depth = 0;
    bool has_srq = false;
    uint64_t slow_ops = 0;    ///< accesses by address to its session's memory
    uint32_t engine_qps = 0;  ///< QPs of its engine
    /// QPs that receive on its device, and those of them whose packets were lost or overtaken.
    uint32_t receiving = 0, disturbed = 0;
    std::string refused;  ///< what modify_qp refused last, if it is the reason that the QP is not connected
};

/// QPs that had a journal when they went. One user's do not push out those of others, as long as there are few users.
class Archive {
public:
    static constexpr size_t kMost = 256, kMostOfUser = 32;
    void keep(QpFacts facts);
    /// The latest of that number; nullptr: none.
    const QpFacts* find(uint32_t qpn) const;
    size_t size() const { return all_.size(); }

private:
    std::deque<QpFacts> all_;
};

}  // namespace roci::host
