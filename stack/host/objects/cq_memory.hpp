// The layout of a CQ in the arena.
#pragma once

#include "host/call.hpp"

namespace roci::host::objects {

struct CqParts {
    abi::CqShared* shared = nullptr;
    rings::CqLane lanes[abi::kMaxEngines];
};

/// Allocates CqShared and `lanes` lanes of `depth` entries.
Outcome lay_out_cq(Session& session, uint32_t depth, uint32_t lanes, ArenaBlock& block, CqParts& parts);

/// Sets `depth` to the entries per lane for a CQ of `cqe` entries: the next power of two, which is also reported to the program.
/// The program can use all entries; one more entry is an overrun.
Outcome cq_depth(const Limits& limits, uint32_t cqe, uint32_t& depth);

}  // namespace roci::host::objects
