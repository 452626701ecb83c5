// The layout of send and receive queues in the arena: depths, strides, and the resulting capabilities.
#pragma once

#include "host/call.hpp"

namespace roci::host::objects {

struct SqShape {
    uint32_t depth = 0, stride = 0;  ///< depth is a power of two; stride is a multiple of 64 bytes
    uint32_t max_sge = 0, max_inline = 0;
    uint64_t bytes() const { return sizeof(abi::SqShared) + uint64_t(depth) * stride; }
};
struct RqShape {
    uint32_t depth = 0, stride = 0;  ///< depth is a power of two; stride is a multiple of 32 bytes
    uint32_t max_sge = 0;
    uint64_t bytes() const { return sizeof(abi::RqShared) + uint64_t(depth) * stride; }
};

/// Returns the smallest shape for the requested capabilities. max_inline is the space in a slot behind the WQE's head, up to
/// Limits::max_inline. If 0 entries are requested, the queue gets one entry.
SqShape sq_shape(const abi::QpCap& asked, const Limits& limits);
RqShape rq_shape(uint32_t max_wr, uint32_t max_sge);

Outcome lay_out_sq(Session& session, const SqShape& shape, ArenaBlock& block, rings::SqView& view);
Outcome lay_out_rq(Session& session, const RqShape& shape, ArenaBlock& block, rings::RqView& view);

}  // namespace roci::host::objects
