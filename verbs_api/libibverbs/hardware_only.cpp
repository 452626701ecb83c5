// Public functions that this device does not support. They fail like rdma-core's functions on a device without support.
//
// DMA handles need hardware, because they set hints in PCIe transactions. dma-bufs of device memory also need hardware, because
// other PCIe devices use the dma-bufs. A completion counter (ibv_create_comp_cntr) counts local requests, including unsignalled
// requests, or operations of the peer. rocid has no such counters.
#include <cstring>

#include "context.hpp"
#include "newer.hpp"

namespace roci::client {

Dmah* alloc_dmah(ibv_context*, const DmahInitAttr*) { return fail<Dmah>(EOPNOTSUPP); }
int dealloc_dmah(Dmah*) { return refuse(EOPNOTSUPP); }

int dm_export_dmabuf_fd(ibv_dm*) {
    errno = EOPNOTSUPP;
    return -1;
}

int query_comp_cntr_caps(ibv_context*, CompCntrCaps* caps, size_t size) {
    std::memset(static_cast<void*>(caps), 0, size);
    return refuse(EOPNOTSUPP);
}
CompCntr* create_comp_cntr(ibv_context*, const void*) { return fail<CompCntr>(EOPNOTSUPP); }
int destroy_comp_cntr(CompCntr*) { return refuse(EOPNOTSUPP); }
int set_comp_cntr(CompCntr*, uint64_t) { return refuse(EOPNOTSUPP); }
int set_err_comp_cntr(CompCntr*, uint64_t) { return refuse(EOPNOTSUPP); }
int inc_comp_cntr(CompCntr*, uint64_t) { return refuse(EOPNOTSUPP); }
int inc_err_comp_cntr(CompCntr*, uint64_t) { return refuse(EOPNOTSUPP); }
int read_comp_cntr(CompCntr*, uint64_t*) { return refuse(EOPNOTSUPP); }
int read_err_comp_cntr(CompCntr*, uint64_t*) { return refuse(EOPNOTSUPP); }
int qp_attach_comp_cntr(ibv_qp*, CompCntr*, const void*) { return refuse(EOPNOTSUPP); }

}  // namespace roci::client
