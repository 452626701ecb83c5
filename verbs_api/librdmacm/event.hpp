// An event. The library keeps each event until the program acknowledges it.
#pragma once

#include "id.hpp"

namespace roci::rdmacm {

struct Event {
    rdma_cm_event event;
    uint8_t private_data[abi::kMaxCmPrivateData];
    Id* counted;   ///< the id whose counter an acknowledgement increments
    Group* group;  ///< the group whose counter an acknowledgement increments; nullptr for events of no group
};

void count_group(Group& group);
void count_event(Id& id);

}  // namespace roci::rdmacm
