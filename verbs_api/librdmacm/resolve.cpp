// rdma_resolve_addr and rdma_resolve_route. If the program created the id without a channel, each of the two calls waits for its
// event.
#include <cstring>

#include "id.hpp"

using namespace roci::rdmacm;
using roci::abi::Op;

int rdma_resolve_addr(rdma_cm_id* p, sockaddr* source, sockaddr* dest, int timeout_ms) {
    const socklen_t length = length_of(dest);
    if (length == 0 || (source != nullptr && length_of(source) == 0)) return fail(EINVAL);
    Id& id = *Id::from(p);
    roci::abi::CmResolveRequest request{};
    request.id = id.handle;
    request.timeout_ms = uint32_t(timeout_ms);
    if (source != nullptr) to_abi(source, request.source);
    to_abi(dest, request.dest);
    if (const int error = service().tell(Op::cm_resolve_addr, request); error != 0) return fail(error);
    std::memcpy(&p->route.addr.dst_storage, dest, length);
    return complete(id);
}

int rdma_resolve_route(rdma_cm_id* p, int) {
    Id& id = *Id::from(p);
    if (const int error = service().tell(Op::cm_resolve_route, roci::abi::HandleRequest{id.handle, 0}); error != 0)
        return fail(error);
    return complete(id);
}
