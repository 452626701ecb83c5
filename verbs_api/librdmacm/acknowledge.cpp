// Acknowledgements of events. rdma_destroy_id() and rdma_leave_multicast() wait until the program has acknowledged all events of
// the id or of the group membership.
#include <cstdlib>

#include "event.hpp"

namespace roci::rdmacm {

void count_group(Group& g) {
    pthread_mutex_lock(&g.owner->mutex);
    ++g.events_completed;
    pthread_cond_signal(&g.owner->cond);
    pthread_mutex_unlock(&g.owner->mutex);
}

void count_event(Id& id) {
    pthread_mutex_lock(&id.mutex);
    ++id.events_completed;
    pthread_cond_signal(&id.cond);
    pthread_mutex_unlock(&id.mutex);
}

}  // namespace roci::rdmacm

using namespace roci::rdmacm;

int rdma_ack_cm_event(rdma_cm_event* event) {
    if (event == nullptr) return fail(EINVAL);
    auto* e = reinterpret_cast<Event*>(event);
    if (e->group != nullptr) count_group(*e->group);
    count_event(*e->counted);
    std::free(e);
    return 0;
}
