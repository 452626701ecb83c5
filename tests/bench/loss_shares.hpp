#pragma once

#include <string_view>

namespace roci::bench {

/// Runs `transport_bench --loss [WRITE|SEND|READ]`: measures how much of its throughput one QP keeps if frames are lost. If
/// `only` is not empty, measures only this operation. Returns the exit status of the program.
int loss_shares(std::string_view only);

}  // namespace roci::bench
