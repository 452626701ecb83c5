// Functions of this library that are exported only in rdma-core's private nodes (private.cpp).
#pragma once

#include "verbs.hpp"

namespace roci::client {

/// Sets `type` to the type of a GID, with rdma-core's private numbers: 0 for InfiniBand, RoCE v1 and empty entries, 1 for RoCE
/// v2. Returns 0, or -1 with errno. ibv_devinfo -v and pyverbs call this function.
int query_gid_type(ibv_context* context, uint8_t port, unsigned int index, unsigned int* type);

const char* wr_opcode_name(ibv_wr_opcode opcode);

}  // namespace roci::client
