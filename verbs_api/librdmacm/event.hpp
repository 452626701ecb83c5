// An event as the library holds it until the program acknowledges it.
#pragma once

#include "id.hpp"

namespace roci::rdmacm {

struct Event {
    rdma_cm_event event;
    uint8_t private_data[abi::kMaxCmPrivateData];
    Id* counted;   ///< whose counter an acknowledgement raises
    Group* group;  ///< and this one's
};

void count_group(Group& group);
void count_event(Id& id);

}  // namespace roci::rdmacm
