// ibv_import_pd(3) and similar calls. An import creates a second struct for an existing object of this process. The first struct
// still owns the object, and an unimport frees only the second struct.
#include "context.hpp"

using namespace roci::client;

ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
    auto* pd = new (std::nothrow) Pd{};
    if (pd == nullptr) return fail<ibv_pd>(ENOMEM);
    pd->pd = {context, handle};
    return &pd->pd;
}
void ibv_unimport_pd(ibv_pd* pd) { delete Pd::from(pd); }

ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
    auto copy = std::unique_ptr<Mr>(new (std::nothrow) Mr{});
    if (!copy) return fail<ibv_mr>(ENOMEM);
    const int err = Context::from(pd->context)->mr_handles.with(handle, [&](const Mr* mr) {
        if (mr == nullptr) return ENOENT;
        copy->mr = mr->mr;
        copy->access = mr->access;
        copy->iova = mr->iova;
        return 0;
    });
    if (err != 0) return fail<ibv_mr>(err);
    copy->mr.pd = pd;
    copy->mr.addr = nullptr;  // ibv_import_mr(3): the importer may have the memory at another address
    return &copy.release()->mr;
}
void ibv_unimport_mr(ibv_mr* mr) { delete Mr::from(mr); }

ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
    auto copy = std::unique_ptr<Dm>(new (std::nothrow) Dm{});
    if (!copy) return fail<ibv_dm>(ENOMEM);
    const int err = Context::from(context)->dms.with(handle, [&](const Dm* dm) {
        if (dm == nullptr) return ENOENT;
        *copy = *dm;
        return 0;
    });
    return err == 0 ? &copy.release()->dm : fail<ibv_dm>(err);
}
void ibv_unimport_dm(ibv_dm* dm) { delete Dm::from(dm); }
