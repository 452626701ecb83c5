// The layout of a CQ in the arena. A lane is one engine's part of a CQ.
#pragma once

#include "host/call.hpp"

namespace roci::host::objects {

struct CqParts {
    abi::CqShared* shared = nullptr;
    rings::CqLane lanes[abi::kMaxEngines];
};

/// Allocates CqShared and `lanes` lanes of `depth` entries.
Outcome lay_out_cq(Session& session, uint32_t depth, uint32_t lanes, ArenaBlock& block, CqParts& parts);

/// Sets `depth`, the number of entries per lane, to the smallest power of two that is at least `cqe`. The client gets `depth` as
/// the size of the CQ. If a lane already holds `depth` entries, another entry is an overrun. Fails with EINVAL if `cqe` is 0 or
/// too large.
Outcome cq_depth(const Limits& limits, uint32_t cqe, uint32_t& depth);

}  // namespace roci::host::objects
