#pragma once

namespace roci::bench {

/// Runs `transport_bench --loss`: measures how much of its throughput one QP keeps if frames are lost. Returns the exit status of
/// the program.
int loss_shares();

}  // namespace roci::bench
