// An event, which the library keeps until the program acknowledges it.
#pragma once

#include "id.hpp"

namespace roci::rdmacm {

struct Event {
    rdma_cm_event event;
    uint8_t private_data[abi::kMaxCmPrivateData];
    Id* counted;   ///< an acknowledgement increments its counter
    Group* group;  ///< likewise
};

void count_group(Group& group);
void count_event(Id& id);

}  // namespace roci::rdmacm
