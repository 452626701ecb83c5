// Public functions of libibverbs that rdma-core added after release 44. The headers of the build machine may lack these functions
// or have older forms of their structs. So this header declares the functions and structs under other names. ROCI_NEWER gives a
// function its exported name. The struct layouts are those of rdma-core 65.
#pragma once

#include <cstddef>

#include "verbs.hpp"

#define ROCI_NEWER(name) __asm__(#name) __attribute__((visibility("default")))

namespace roci::client {

// rdma-core 45: FLUSH
inline constexpr auto kWrFlush = ibv_wr_opcode(14);
inline constexpr uint64_t kQpExWithFlush = 1 << 11;
inline constexpr unsigned kAccessFlushGlobal = 1 << 8;
/// ibv_qp_ex with the member `wr_flush`, which follows the members of release 44.
template <class Ex>
struct WithFlush : Ex {
    void (*wr_flush)(ibv_qp_ex*, uint32_t rkey, uint64_t address, size_t length, uint8_t type, uint8_t level) = nullptr;
};
template <class Ex>
requires requires(Ex ex) { ex.wr_flush; }
struct WithFlush<Ex> : Ex {};
using QpEx = WithFlush<ibv_qp_ex>;
static_assert(sizeof(QpEx) == offsetof(ibv_qp_ex, wr_atomic_write) + 2 * sizeof(void*));

// rdma-core 59: memory regions by attributes, DMA handles
enum RegMrMask : uint64_t { kRegIova = 1, kRegAddr = 2, kRegFd = 4, kRegFdOffset = 8, kRegDmah = 16, kRegBuf = 32 };
struct Dmah;
struct Buf;
struct MrInitAttr {
    size_t length;
    int access;
    uint64_t comp_mask;  ///< enum RegMrMask; the fields below are valid only if their bit is set
    uint64_t iova;
    void* addr;
    int fd;
    uint64_t fd_offset;
    Dmah* dmah;
    Buf* buf;
};
static_assert(sizeof(MrInitAttr) == 72 && offsetof(MrInitAttr, comp_mask) == 16 && offsetof(MrInitAttr, buf) == 64);
struct DmahInitAttr;
ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr* attr) ROCI_NEWER(ibv_reg_mr_ex);
Dmah* alloc_dmah(ibv_context* context, const DmahInitAttr* attr) ROCI_NEWER(ibv_alloc_dmah);
int dealloc_dmah(Dmah* dmah) ROCI_NEWER(ibv_dealloc_dmah);

// rdma-core 62
/// `speed` is in units of 100 Mb/s.
int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) ROCI_NEWER(ibv_query_port_speed);
int dm_export_dmabuf_fd(ibv_dm* dm) ROCI_NEWER(ibv_dm_export_dmabuf_fd);

// rdma-core 64: buffers that the library allocates
void* alloc_buf(ibv_pd* pd, size_t size, Buf** buf) ROCI_NEWER(ibv_alloc_buf);
void free_buf(Buf* buf) ROCI_NEWER(ibv_free_buf);
ibv_mr* reg_buf_mr(ibv_pd* pd, Buf* buf, void* addr, size_t length, int access) ROCI_NEWER(ibv_reg_buf_mr);

// rdma-core 65
int export_buf_dmabuf_fd(Buf* buf) ROCI_NEWER(ibv_export_buf_dmabuf_fd);

// rdma-core 65: completion counters
struct CompCntr;
struct CompCntrCaps {
    uint64_t max_value;
    uint32_t max_counters;
    uint32_t supported_qp_attach_ops;
};
static_assert(sizeof(CompCntrCaps) == 16);
int query_comp_cntr_caps(ibv_context* context, CompCntrCaps* caps, size_t size) ROCI_NEWER(_ibv_query_comp_cntr_caps);
CompCntr* create_comp_cntr(ibv_context* context, const void* attr) ROCI_NEWER(ibv_create_comp_cntr);
int destroy_comp_cntr(CompCntr* counter) ROCI_NEWER(ibv_destroy_comp_cntr);
int set_comp_cntr(CompCntr* counter, uint64_t value) ROCI_NEWER(ibv_set_comp_cntr);
int set_err_comp_cntr(CompCntr* counter, uint64_t value) ROCI_NEWER(ibv_set_err_comp_cntr);
int inc_comp_cntr(CompCntr* counter, uint64_t amount) ROCI_NEWER(ibv_inc_comp_cntr);
int inc_err_comp_cntr(CompCntr* counter, uint64_t amount) ROCI_NEWER(ibv_inc_err_comp_cntr);
int read_comp_cntr(CompCntr* counter, uint64_t* value) ROCI_NEWER(ibv_read_comp_cntr);
int read_err_comp_cntr(CompCntr* counter, uint64_t* value) ROCI_NEWER(ibv_read_err_comp_cntr);
int qp_attach_comp_cntr(ibv_qp* qp, CompCntr* counter, const void* attr) ROCI_NEWER(ibv_qp_attach_comp_cntr);

}  // namespace roci::client

#undef ROCI_NEWER
