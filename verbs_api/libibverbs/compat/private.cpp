// The symbols of rdma-core's private nodes (symbol versions IBVERBS_PRIVATE_*). rdma-core's drivers (libmlx5 and others) link
// against these symbols, and programs link against the drivers. This library loads no driver. So nearly all functions exist only
// for linking: they do nothing or return an error. private_symbols.txt lists the nodes that export each symbol. This file is
// built without link-time optimisation, which would drop the aliases.
#include "compat/private.hpp"

#include "context.hpp"

#pragma GCC visibility push(default)
extern "C" {

// The implementations of all symbols that exist only for linking. There is one function per result.
[[gnu::used]] void private_nothing(void) {}
[[gnu::used]] int private_errno(void) { return roci::client::refuse(EOPNOTSUPP); }
[[gnu::used]] void* private_null(void) { return roci::client::fail(EOPNOTSUPP); }
[[gnu::used]] int private_minus_one(void) {
    errno = EOPNOTSUPP;
    return -1;
}

[[gnu::used]] bool own_verbs_allow_disassociate_destroy = false;

[[gnu::used]] unsigned int own___ioctl_final_num_attrs(unsigned int attributes, void*) { return attributes; }

[[gnu::used]] ibv_context* own_verbs_open_device(ibv_device* device, void*) { return ibv_open_device(device); }

[[gnu::used]] void own_verbs_init_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, void* user) {
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

[[gnu::used]] int own_ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, unsigned int* type) {
    return roci::client::query_gid_type(context, port, index, type);
}

[[gnu::used]] const char* own_ibv_wr_opcode_str(ibv_wr_opcode opcode) { return roci::client::wr_opcode_name(opcode); }

// Always fails, because no listed device has a kernel device (verbs_device.sysfs is NULL).
[[gnu::used]] int own_ibv_read_ibdev_sysfs_file(char*, size_t, void*, const char*, ...) {
    errno = EINVAL;
    return -1;
}

#include "private_aliases.inc"

// This public function is obsolete since rdma-core 17. An old driver plugin may still call it.
void ibv_register_driver(const char*, void*) {}
}
#pragma GCC visibility pop
