// Device memory (ibv_alloc_dm) is in the session's arena, which both rocid and the client have mapped. The client accesses device
// memory by copies (ibv_memcpy_to_dm). Peers access device memory by RDMA.
#include <bit>

#include "host/objects/handlers.hpp"

namespace roci::host::objects {

Outcome alloc_dm(Call& c) {
    const auto in = c.in<abi::AllocDmRequest>();
    Session& s = c.session;
    const Capabilities& caps = c.state.caps;
    if (in.length == 0) return fail(EINVAL, "device memory needs a length");
    if (in.log_align > caps.max_log_dm_alignment)
        return fail(EINVAL, "device memory aligned to 2^{}: 2^{} at most", in.log_align, caps.max_log_dm_alignment);
    if (in.length > caps.max_dm_bytes - s.device_memory) {
        return fail(ENOMEM, "{} bytes of device memory: {} of {} are in use", in.length, s.device_memory, caps.max_dm_bytes);
    }
    auto dm = std::make_unique<Dm>();
    if (Outcome o = s.arena.allocate(in.length, dm->memory); o.failed()) return o;
    dm->length = in.length;
    dm->total = &s.device_memory;
    s.device_memory += in.length;
    const auto place = s.dms.next();
    c.answer(abi::AllocDmReply{place.handle, place.generation, dm->memory.where()});
    s.dms.put(std::move(dm));
    return done();
}

Outcome free_dm(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Dm* dm;
    if (Outcome o = look_up(c.session.dms, handle, "device memory", dm); o.failed()) return o;
    if (Outcome o = must_be_idle(dm->uses, "device memory", "MRs"); o.failed()) return o;
    c.session.dms.erase(handle);
    return done();
}

/// Registers an MR of device memory. The client has no address of device memory, so the addresses of the MR start at 0
/// (ibv_alloc_dm(3)).
Outcome reg_dm_mr(Call& c) {
    const auto in = c.in<abi::RegDmMrRequest>();
    Session& s = c.session;
    Pd* pd;
    if (Outcome o = look_up(s.pds, in.pd, "PD", pd); o.failed()) return o;
    Dm* dm;
    if (Outcome o = look_up(s.dms, in.dm, "device memory", dm); o.failed()) return o;
    uint32_t access;
    if (Outcome o = check_access(in.access, access); o.failed()) return o;
    if ((access & mem::kZeroBased) == 0) return fail(EINVAL, "MRs of device memory need IBV_ACCESS_ZERO_BASED");
    if ((access & mem::kOnDemand) != 0) return fail(EINVAL, "device memory is not paged: no IBV_ACCESS_ON_DEMAND");
    if (in.offset > dm->length || in.length > dm->length - in.offset) {
        return fail(EINVAL, "MR of {} bytes from {} on in device memory of {}", in.length, in.offset, dm->length);
    }
    auto mr = std::make_unique<Mr>();
    mr->region = c.state.regions.make();
    mem::MemoryRegion& r = *mr->region;
    r.pd = pd->number;
    r.access = access;
    r.length = in.length;
    if (in.length != 0) r.segments = {{.offset = 0, .length = in.length, .base = dm->memory.base() + in.offset}};
    mr->pd = Use(pd->uses);
    mr->dm = Use(dm->uses);
    if (Outcome o = take_key(c.state, r); o.failed()) return o;
    const auto place = s.mrs.next();
    c.answer(abi::RegMrReply{place.handle, r.key.value, r.key.value, 0});
    s.mrs.put(std::move(mr));
    return done();
}

}  // namespace roci::host::objects
