// rdma_resolve_addrinfo, and events that the program writes (rdma_write_cm_event). As in rdma-core, rdma_resolve_addrinfo
// resolves the name before it returns. An event then reports the result.
#include <netdb.h>

#include "id.hpp"

using namespace roci::rdmacm;

namespace {

int write_event(const Id& id, NewerEvent event, int status, uint64_t arg) {
    return service().tell(roci::abi::Op::cm_write_event, roci::abi::CmWriteEventRequest{id.handle, event, status, 0, arg});
}

/// Converts an error number of getaddrinfo(3) to an errno.
int to_errno(int result) {
    constexpr struct {
        int result, error;
    } kErrors[] = {
        {EAI_AGAIN, EAGAIN}, {EAI_MEMORY, ENOMEM}, {EAI_FAMILY, EAFNOSUPPORT}, {EAI_NONAME, ENOENT}, {EAI_SERVICE, ENOENT}};
    if (result == EAI_SYSTEM) return errno;
    for (const auto& e : kErrors)
        if (e.result == result) return e.error;
    return EINVAL;
}

void set_result(Id& id, rdma_addrinfo* list) {
    pthread_mutex_lock(&id.mutex);
    id.resolved = list;
    id.resolving = list != nullptr;
    pthread_mutex_unlock(&id.mutex);
}

/// Removes the result from the id and returns the result, or nullptr if the id has no result.
rdma_addrinfo* take_result(Id& id) {
    pthread_mutex_lock(&id.mutex);
    rdma_addrinfo* const list = id.resolved;
    if (list != nullptr) {
        id.resolved = nullptr;
        id.resolving = false;
    }
    pthread_mutex_unlock(&id.mutex);
    return list;
}

bool begin(Id& id) {
    pthread_mutex_lock(&id.mutex);
    const bool free = !id.resolving;
    id.resolving = true;
    pthread_mutex_unlock(&id.mutex);
    return free;
}

}  // namespace

int rdma_write_cm_event(rdma_cm_id* p, rdma_cm_event_type event, int status, uint64_t arg) {
    if (p == nullptr || uint32_t(event) != kUserEvent) return fail(EINVAL);
    return result(write_event(*Id::from(p), kUserEvent, status, arg));
}

int rdma_resolve_addrinfo(rdma_cm_id* p, const char* node, const char* port, const rdma_addrinfo* hints) {
    if (p == nullptr) return fail(EINVAL);
    if (hints != nullptr && (hints->ai_flags & kRaiSa) != 0) return fail(EOPNOTSUPP);
    Id& id = *Id::from(p);
    if (!begin(id)) return fail(EBUSY);
    rdma_addrinfo* list = nullptr;
    errno = EINVAL;
    const int found = rdma_getaddrinfo(node, port, hints, &list);
    const int status = found == -1 ? errno : found != 0 ? to_errno(found) : 0;
    set_result(id, list);
    const int error = write_event(id, status == 0 ? kAddrinfoResolved : kAddrinfoError, -status, 0);
    if (error == 0) return complete(id);
    rdma_freeaddrinfo(take_result(id));
    return fail(error);
}

int rdma_query_addrinfo(rdma_cm_id* p, rdma_addrinfo** info) {
    if (p == nullptr || info == nullptr) return fail(EINVAL);
    rdma_addrinfo* const list = take_result(*Id::from(p));
    if (list == nullptr) return fail(ENOENT);
    *info = list;
    return 0;
}
