// Functions of this library that are exported only in rdma-core's private nodes.
#pragma once

#include "verbs.hpp"

namespace roci::client {

/// ibv_devinfo -v and pyverbs call this function. The numbers are those of the kernel's sysfs: 0 for InfiniBand or RoCE v1, 1 for
/// RoCE v2. Returns 0, or -1 with errno.
int query_gid_type(ibv_context* context, uint8_t port, unsigned int index, unsigned int* type);

const char* wr_opcode_name(ibv_wr_opcode opcode);

}  // namespace roci::client
