// How a CQ lies in the arena.
#pragma once

#include "host/call.hpp"

namespace roci::host::objects {

struct CqParts {
    abi::CqShared* shared = nullptr;
    rings::CqLane lanes[abi::kMaxEngines];
};

/// Allocates CqShared and `lanes` lanes of `depth` entries.
Outcome lay_out_cq(Session& session, uint32_t depth, uint32_t lanes, ArenaBlock& block, CqParts& parts);

/// Entries a lane for a CQ of `cqe` entries: the next power of two. Every slot is usable, so that the CQ overruns with exactly
/// the entry after the last one reported.
Outcome cq_depth(const Limits& limits, uint32_t cqe, uint32_t& depth);

}  // namespace roci::host::objects
