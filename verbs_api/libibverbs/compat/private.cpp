// The IBVERBS_PRIVATE_34 symbols. rdma-core's drivers (libmlx5 and others) link against them, and programs link against the
// drivers. No driver runs in this library, so nearly all functions exist only for linking and return an error.
#include "context.hpp"

#pragma GCC visibility push(default)
extern "C" {

bool verbs_allow_disassociate_destroy = false;

/// Does nothing. The constructors of driver libraries call it.
void verbs_register_driver_34(const void*) {}

void __verbs_log(  // NOLINT(bugprone-reserved-identifier): the library's own name
    void*, uint32_t, const char*, ...) {}
void verbs_set_ops(void*, const void*) {}
void verbs_uninit_context(void*) {}
void* _verbs_init_and_alloc_context(ibv_device*, int, size_t, void*, uint32_t) { return roci::client::fail(EOPNOTSUPP); }
unsigned int __ioctl_final_num_attrs(  // NOLINT(bugprone-reserved-identifier)
    unsigned int attributes, void*) {
    return attributes;
}

ibv_context* verbs_open_device(ibv_device* device, void*) { return ibv_open_device(device); }

void verbs_init_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, void* user) {
    cq->context = context;
    cq->channel = channel;
    cq->cq_context = user;
    cq->comp_events_completed = 0;
    cq->async_events_completed = 0;
    pthread_mutex_init(&cq->mutex, nullptr);
    pthread_cond_init(&cq->cond, nullptr);
    if (channel == nullptr) return;
    pthread_mutex_lock(&context->mutex);
    ++channel->refcnt;
    pthread_mutex_unlock(&context->mutex);
}

// Obsolete since rdma-core 17, but an old driver plugin may still call it.
void ibv_register_driver(const char*, void*) {}

// The functions that send commands to the kernel's uverbs device. All of them fail.
#define REFUSED(name)       \
    int name(void) {        \
        errno = EOPNOTSUPP; \
        return EOPNOTSUPP;  \
    }
REFUSED(execute_ioctl)
REFUSED(ibv_cmd_advise_mr)
REFUSED(ibv_cmd_alloc_dm)
REFUSED(ibv_cmd_alloc_mw)
REFUSED(ibv_cmd_alloc_pd)
REFUSED(ibv_cmd_attach_mcast)
REFUSED(ibv_cmd_close_xrcd)
REFUSED(ibv_cmd_create_ah)
REFUSED(ibv_cmd_create_counters)
REFUSED(ibv_cmd_create_cq)
REFUSED(ibv_cmd_create_cq_ex)
REFUSED(ibv_cmd_create_cq_ex2)
REFUSED(ibv_cmd_create_flow)
REFUSED(ibv_cmd_create_flow_action_esp)
REFUSED(ibv_cmd_create_qp)
REFUSED(ibv_cmd_create_qp_ex)
REFUSED(ibv_cmd_create_qp_ex2)
REFUSED(ibv_cmd_create_rwq_ind_table)
REFUSED(ibv_cmd_create_srq)
REFUSED(ibv_cmd_create_srq_ex)
REFUSED(ibv_cmd_create_wq)
REFUSED(ibv_cmd_dealloc_mw)
REFUSED(ibv_cmd_dealloc_pd)
REFUSED(ibv_cmd_dereg_mr)
REFUSED(ibv_cmd_destroy_ah)
REFUSED(ibv_cmd_destroy_counters)
REFUSED(ibv_cmd_destroy_cq)
REFUSED(ibv_cmd_destroy_flow)
REFUSED(ibv_cmd_destroy_flow_action)
REFUSED(ibv_cmd_destroy_qp)
REFUSED(ibv_cmd_destroy_rwq_ind_table)
REFUSED(ibv_cmd_destroy_srq)
REFUSED(ibv_cmd_destroy_wq)
REFUSED(ibv_cmd_detach_mcast)
REFUSED(ibv_cmd_free_dm)
REFUSED(ibv_cmd_get_context)
REFUSED(ibv_cmd_modify_cq)
REFUSED(ibv_cmd_modify_flow_action_esp)
REFUSED(ibv_cmd_modify_qp)
REFUSED(ibv_cmd_modify_qp_ex)
REFUSED(ibv_cmd_modify_srq)
REFUSED(ibv_cmd_modify_wq)
REFUSED(ibv_cmd_open_qp)
REFUSED(ibv_cmd_open_xrcd)
REFUSED(ibv_cmd_poll_cq)
REFUSED(ibv_cmd_post_recv)
REFUSED(ibv_cmd_post_send)
REFUSED(ibv_cmd_post_srq_recv)
REFUSED(ibv_cmd_query_context)
REFUSED(ibv_cmd_query_device_any)
REFUSED(ibv_cmd_query_mr)
REFUSED(ibv_cmd_query_port)
REFUSED(ibv_cmd_query_qp)
REFUSED(ibv_cmd_query_srq)
REFUSED(ibv_cmd_read_counters)
REFUSED(ibv_cmd_reg_dm_mr)
REFUSED(ibv_cmd_reg_dmabuf_mr)
REFUSED(ibv_cmd_reg_mr)
REFUSED(ibv_cmd_req_notify_cq)
REFUSED(ibv_cmd_rereg_mr)
REFUSED(ibv_cmd_resize_cq)
#undef REFUSED
}
#pragma GCC visibility pop
