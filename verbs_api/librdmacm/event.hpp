// An event of rdma_cm. The library keeps each event until the program acknowledges the event.
#pragma once

#include "id.hpp"

namespace roci::rdmacm {

struct Event {
    rdma_cm_event event;
    uint8_t private_data[abi::kMaxCmPrivateData];
    Id* counted;   ///< the id whose events_completed the acknowledgement increments
    Group* group;  ///< the group whose events_completed the acknowledgement also increments; nullptr if the event has no group
};

void count_group(Group& group);
void count_event(Id& id);

}  // namespace roci::rdmacm
