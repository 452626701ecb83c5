// The connection to rocid, the devices, and the table that maps handles to ids.
#include <cstring>

#include "id.hpp"

namespace roci::rdmacm {

Service& Service::instance() {
    static Service* const s = new Service;  // never destroyed: exit handlers may still use ids
    return *s;
}

Service::Service() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                       instance().forget_after_fork();
                       instance().mutex_.unlock();
                   });
}

/// Runs in a fork's child. Discards the ids, the session and the devices of the parent. The child opens its own session when it
/// first needs a session, and its own devices when it first needs them.
void Service::forget_after_fork() {
    if (link_ != nullptr) link_->leave_to_parent();
    (void)link_.release();  // leaks the connection, because another thread of the parent may have held the connection's lock
    devices_.clear();
    ids_.clear();
    ++epoch_;
}

int Service::open() {
    const std::lock_guard guard(mutex_);
    if (link_ != nullptr) return link_->gone() ? EIO : 0;
    auto link = std::make_unique<client::Connection>();
    // Reports ENODEV if rocid does not run, because then there are no RDMA devices.
    if (const int error = link->open(); error != 0) return error == ENOENT || error == ECONNREFUSED ? ENODEV : error;
    link_ = std::move(link);
    return 0;
}

Device* Service::open_device(ibv_device* found) {
    auto d = std::make_unique<Device>();
    d->verbs = ibv_open_device(found);
    if (d->verbs == nullptr) return nullptr;
    d->pd = ibv_alloc_pd(d->verbs);
    if (d->pd == nullptr) {
        ibv_close_device(d->verbs);
        return nullptr;
    }
    ibv_device_attr attr{};
    if (ibv_query_device(d->verbs, &attr) == 0) {
        d->max_initiator_depth = uint8_t(attr.max_qp_init_rd_atom > 255 ? 255 : attr.max_qp_init_rd_atom);
        d->max_responder_resources = uint8_t(attr.max_qp_rd_atom > 255 ? 255 : attr.max_qp_rd_atom);
    }
    Device* raw = d.get();
    devices_[ibv_get_device_name(found)] = std::move(d);
    return raw;
}

Device* Service::device(const char* name) {
    const std::lock_guard guard(mutex_);
    if (const auto it = devices_.find(name); it != devices_.end()) return it->second.get();
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr) return nullptr;
    Device* d = nullptr;
    errno = ENODEV;
    for (ibv_device** p = list; *p != nullptr && d == nullptr; ++p)
        if (std::strcmp(ibv_get_device_name(*p), name) == 0) d = open_device(*p);
    ibv_free_device_list(list);
    return d;
}

Device* Service::device(const ibv_context* verbs) {
    const std::lock_guard guard(mutex_);
    for (const auto& [name, d] : devices_)
        if (d->verbs == verbs) return d.get();
    return nullptr;
}

std::vector<ibv_context*> Service::all_devices() {
    std::vector<ibv_context*> out;
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr) return out;
    for (ibv_device** p = list; *p != nullptr; ++p)
        if (const Device* d = device(ibv_get_device_name(*p))) out.push_back(d->verbs);
    ibv_free_device_list(list);
    return out;
}

void Service::insert(Id& id) {
    const std::lock_guard guard(mutex_);
    id.epoch = epoch_;
    ids_[id.handle] = &id;
}
void Service::remove(const Id& id) {
    const std::lock_guard guard(mutex_);
    const auto it = ids_.find(id.handle);
    if (it != ids_.end() && it->second == &id) ids_.erase(it);
}
Id* Service::find(uint32_t handle) {
    const std::lock_guard guard(mutex_);
    const auto it = ids_.find(handle);
    return it == ids_.end() ? nullptr : it->second;
}

Id* Service::next_removed(const rdma_event_channel* channel) {
    const std::lock_guard guard(mutex_);
    for (const auto& [handle, id] : ids_) {
        if (id->id.channel != channel || id->id.verbs == nullptr || id->removed) continue;
        id->removed = true;
        return id;
    }
    return nullptr;
}

}  // namespace roci::rdmacm

using roci::rdmacm::service;

ibv_context** rdma_get_devices(int* num_devices) {
    if (num_devices != nullptr) *num_devices = 0;
    if (const int error = service().open(); error != 0) {
        errno = error;
        return nullptr;
    }
    const auto all = service().all_devices();
    auto** list = static_cast<ibv_context**>(std::calloc(all.size() + 1, sizeof(void*)));
    if (list == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    std::copy(all.begin(), all.end(), list);
    if (num_devices != nullptr) *num_devices = int(all.size());
    return list;
}
void rdma_free_devices(ibv_context** list) { std::free(list); }
