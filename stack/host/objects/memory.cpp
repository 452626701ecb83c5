// Protection domains, mapped regions of a client's memory, and MRs.
#include <algorithm>

#include "host/objects/handlers.hpp"

namespace roci::host::objects {
namespace {

// Values of enum ibv_access_flags that mem::Access does not contain.
constexpr uint32_t kHugeTlb = 1 << 7;             // only a hint
constexpr uint32_t kOptionalAccess = 0x3ff00000;  // IBV_ACCESS_OPTIONAL_RANGE: flags that a driver may ignore
constexpr uint32_t kServedAccess =
    mem::kLocalWrite | mem::kRemoteWrite | mem::kRemoteRead | mem::kRemoteAtomic | mem::kMwBind | mem::kZeroBased |
    mem::kFlushGlobal |
    mem::kOnDemand;  // rocid accesses an on-demand region by address, so the kernel loads each page at the first access
constexpr uint32_t kWriteAccess = mem::kLocalWrite | mem::kRemoteWrite | mem::kRemoteAtomic;

// Values of enum ibv_rereg_mr_flags.
enum Rereg : uint32_t { kTranslation = 1, kPd = 2, kAccess = 4 };

Outcome check_range(uint64_t start, uint64_t length, const char* what) {
    if (length != 0 && start + (length - 1) < start) return fail(EINVAL, "{} {:#x} plus length {:#x} wraps", what, start, length);
    return done();
}

/// The segments of an MR, which read_layout() collects from a request.
struct Layout {
    std::vector<mem::Segment> segments;
    std::vector<std::shared_ptr<Region>> regions;
    uint64_t length = 0;
    bool slow = false;
};

/// Adds a segment. If the segment directly follows the last segment, and both are in the same mapping or both are accessed by
/// address, merges the two segments, because engines access a single segment faster.
void add_segment(Layout& l, const mem::Segment& s) {
    if (!l.segments.empty()) {
        mem::Segment& last = l.segments.back();
        const bool mapped = s.base != nullptr && last.mapped == s.mapped && last.base + last.length == s.base;
        const bool remote = s.base == nullptr && last.base == nullptr && last.client_address + last.length == s.client_address;
        if (mapped || remote) {
            last.length += s.length;
            return;
        }
    }
    l.segments.push_back(s);
}

Outcome add_slow(Call& c, Layout& l, const abi::MrSegment& in) {
    if (Outcome o = check_range(in.offset, in.length, "segment address"); o.failed()) return o;
    Session& s = c.session;
    if (!may_reach(c)) {
        return fail(
            EPERM,
            "rocid cannot reach the memory of process {}, which could not open its own /proc/self/mem; mount /proc there, or "
            "register shareable memory",
            s.who.pid);
    }
    add_segment(l, {.offset = l.length, .length = in.length, .client_address = in.offset});
    l.slow = true;
    return done();
}

Outcome add_mapped(Call& c, Layout& l, const abi::MrSegment& in, uint32_t access) {
    RegionHandle* handle;
    if (Outcome o = look_up(c.session.regions, in.region, "region", handle); o.failed()) return o;
    mem::MappedRegion& memory = handle->region->memory();
    if (in.offset > memory.length || in.length > memory.length - in.offset) {
        return fail(EINVAL, "segment {:#x}+{:#x} lies outside of region {} of {:#x} bytes", in.offset, in.length, in.region,
                    memory.length);
    }
    if ((access & kWriteAccess) != 0 && !memory.writable)
        return fail(EACCES, "region {} is read-only, but the access flags include writing", in.region);
    add_segment(l, {.offset = l.length,
                    .length = in.length,
                    .base = memory.base + in.offset,
                    .mapped = &memory,
                    .writable = memory.writable});
    if (std::find(l.regions.begin(), l.regions.end(), handle->region) == l.regions.end()) l.regions.push_back(handle->region);
    return done();
}

Outcome read_layout(Call& c, const abi::RegMrRequest& in, std::span<const std::byte> list, uint32_t access, Layout& l) {
    if (in.segments > abi::kMaxMrSegments || list.size() != size_t(in.segments) * sizeof(abi::MrSegment)) {
        return fail(EINVAL, "{} segments announced, but {} bytes of segments received; at most {} fit", in.segments, list.size(),
                    abi::kMaxMrSegments);
    }
    if (Outcome o = check_range(in.iova, in.length, "iova"); o.failed()) return o;
    for (uint32_t i = 0; i < in.segments; ++i) {
        abi::MrSegment s;
        std::memcpy(&s, list.data() + i * sizeof s, sizeof s);
        if (s.length == 0) return fail(EINVAL, "segment {} is empty", i);
        if (s.length > in.length - l.length) return fail(EINVAL, "segments are longer than the MR's {:#x} bytes", in.length);
        Outcome o = s.region == abi::kNoHandle ? add_slow(c, l, s) : add_mapped(c, l, s, access);
        if (o.failed()) return o;
        l.length += s.length;
    }
    if (l.length != in.length) return fail(EINVAL, "segments have {:#x} bytes, the MR {:#x}", l.length, in.length);
    return done();
}

void set_layout(mem::MemoryRegion& r, Layout& l, const abi::RegMrRequest& in, Session& s) {
    r.iova = in.iova;
    r.length = in.length;
    r.segments = std::move(l.segments);
    r.process = l.slow ? s.process.get() : nullptr;
}

void answer_keys(Call& c, uint32_t handle, Key key) { c.answer(abi::RegMrReply{handle, key.value, key.value, 0}); }

}  // namespace

Outcome check_access(uint32_t asked, uint32_t& served) {
    served = asked & kServedAccess;
    if ((asked & mem::kFlushPersistent) != 0) return fail(EINVAL, "IBV_ACCESS_FLUSH_PERSISTENT: there is no persistent memory");
    if (const uint32_t unknown = asked & ~(kServedAccess | kHugeTlb | kOptionalAccess); unknown != 0) {
        return fail(EINVAL, "unknown access flags {:#x}", unknown);
    }
    // Remote write access requires local write access (ibv_reg_mr(3)).
    if ((asked & (mem::kRemoteWrite | mem::kRemoteAtomic)) != 0 && (asked & mem::kLocalWrite) == 0) {
        return fail(EINVAL, "IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE");
    }
    return done();
}

bool may_reach(Call& c) {
    Session& s = c.session;
    if (!s.process) s.process = c.state.platform.remote_process(s.who.pid);
    return s.process != nullptr;
}

Outcome take_key(State& state, mem::MemoryRegion& region) {
    if (state.keys.in_use() >= state.limits.max_keys) return fail(ENOMEM, "all {} memory keys are in use", state.limits.max_keys);
    const auto index = state.keys.allocate(state.platform.random());
    if (!index) return fail(ENOMEM, "all {} memory keys are in use", state.keys.capacity());
    region.key = state.new_key(*index);
    state.shared.keys.publish(*index, &region);
    return done();
}

Outcome alloc_pd(Call& c) {
    auto& pds = c.session.pds;
    if (Outcome o = has_room(pds, c.state.caps.max_pds, "PD"); o.failed()) return o;
    const auto place = pds.next();
    pds.put(std::make_unique<Pd>()).number = c.state.new_pd_number();
    c.answer(abi::HandleReply{place.handle, place.generation});
    return done();
}

Outcome dealloc_pd(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Pd* pd;
    if (Outcome o = look_up(c.session.pds, handle, "PD", pd); o.failed()) return o;
    if (Outcome o = must_be_idle(pd->uses, "PD", "MRs, QPs, SRQs or AHs"); o.failed()) return o;
    c.state.pd_numbers.erase(pd->number);
    c.session.pds.erase(handle);
    return done();
}

Outcome add_region(Call& c) {
    const auto in = c.in<abi::AddRegionRequest>();
    Session& s = c.session;
    if (in.length == 0) return fail(EINVAL, "a region needs a length");
    if (s.mapped.regions >= c.state.caps.max_regions) return fail(ENOMEM, "session has {} regions, the limit", s.mapped.regions);
    if (in.length > c.state.caps.max_mapped_bytes - s.mapped.bytes) {
        return fail(ENOMEM, "{:#x} bytes more than {:#x} are beyond the session's limit of mapped memory", in.length,
                    s.mapped.bytes);
    }
    std::string why;
    auto memory = c.state.platform.map_region(c.received.take(), in.length, in.writable != 0, why);
    if (!memory) return fail(EINVAL, "region was not mapped: {}", why);
    const auto place = s.regions.next();
    auto handle = std::make_unique<RegionHandle>();
    handle->region = std::make_shared<Region>(c.state.platform, s.mapped, std::move(memory));
    s.regions.put(std::move(handle));
    c.answer(abi::HandleReply{place.handle, place.generation});
    return done();
}

Outcome remove_region(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    RegionHandle* region;
    if (Outcome o = look_up(c.session.regions, handle, "region", region); o.failed()) return o;
    c.session.regions.erase(handle);  // the mapping remains until the last MR in the region is destroyed
    return done();
}

Outcome reg_mr(Call& c) {
    const auto in = c.in<abi::RegMrRequest>();
    Session& s = c.session;
    Pd* pd;
    if (Outcome o = look_up(s.pds, in.pd, "PD", pd); o.failed()) return o;
    uint32_t access;
    if (Outcome o = check_access(in.access, access); o.failed()) return o;
    Layout layout;
    if (Outcome o = read_layout(c, in, c.after(sizeof in), access, layout); o.failed()) return o;

    auto mr = std::make_unique<Mr>();
    mr->region = c.state.regions.make();
    mr->region->pd = pd->number;
    mr->region->access = access;
    mr->memory = std::move(layout.regions);
    set_layout(*mr->region, layout, in, s);
    mr->pd = Use(pd->uses);
    if (Outcome o = take_key(c.state, *mr->region); o.failed()) return o;
    const auto place = s.mrs.next();
    answer_keys(c, place.handle, mr->region->key);
    s.mrs.put(std::move(mr));
    return done();
}

Outcome alloc_null_mr(Call& c) {
    Session& s = c.session;
    Pd* pd;
    if (Outcome o = look_up(s.pds, c.in<abi::HandleRequest>().handle, "PD", pd); o.failed()) return o;
    auto mr = std::make_unique<Mr>();
    mr->region = c.state.regions.make();
    mr->region->pd = pd->number;
    mr->region->access = mem::kLocalWrite;
    mr->region->length = ~uint64_t{0};
    mr->region->is_null = true;
    mr->pd = Use(pd->uses);
    if (Outcome o = take_key(c.state, *mr->region); o.failed()) return o;
    const auto place = s.mrs.next();
    c.answer(abi::RegMrReply{place.handle, mr->region->key.value, 0, 0});
    s.mrs.put(std::move(mr));
    return done();
}

namespace {

/// Prevents further binds of windows to the region. Fails with EINVAL if a window is bound, as Soft-RoCE does.
Outcome must_have_no_windows(mem::MemoryRegion& region) {
    if (mem::close_to_windows(region)) return done();
    return fail(EINVAL, "{} memory windows are bound to the MR: invalidate or deallocate them first", region.users.load());
}

/// The result of check_rereg(): the new properties of an MR.
struct Replacement {
    Pool<mem::MemoryRegion>::Handle region;
    Pd* pd = nullptr;  ///< the new PD; nullptr: the PD does not change
    Layout layout;
};

Outcome check_rereg(Call& c, const abi::ReregMrRequest& in, const mem::MemoryRegion& old, Replacement& out) {
    if (in.flags == 0 || (in.flags & ~(kTranslation | kPd | kAccess)) != 0)
        return fail(EINVAL, "rereg flags {:#x} are none or unknown", in.flags);
    mem::MemoryRegion& fresh = *out.region;
    fresh.access = old.access;
    fresh.pd = old.pd;
    if ((in.flags & kPd) != 0) {
        if (Outcome o = look_up(c.session.pds, in.mr.pd, "PD", out.pd); o.failed()) return o;
        fresh.pd = out.pd->number;
    }
    if ((in.flags & kAccess) != 0) {
        if (Outcome o = check_access(in.mr.access, fresh.access); o.failed()) return o;
    }
    if (old.is_null) return fail(EINVAL, "a null MR cannot be changed");
    if ((in.flags & kTranslation) != 0) return read_layout(c, in.mr, c.after(sizeof in), fresh.access, out.layout);
    const bool writable = std::all_of(old.segments.begin(), old.segments.end(), [](const mem::Segment& g) { return g.writable; });
    if ((fresh.access & kWriteAccess) != 0 && !writable)
        return fail(EACCES, "the memory of the MR is read-only, but the access flags include writing");
    return done();
}

void keep_layout(mem::MemoryRegion& fresh, const mem::MemoryRegion& old) {
    fresh.iova = old.iova;
    fresh.length = old.length;
    fresh.segments = std::vector<mem::Segment>(old.segments.begin(), old.segments.end());
    fresh.process = old.process;
    fresh.key = old.key;
}

}  // namespace

/// Replaces the MR's region in the key table by a new region. If the translation changes, the MR gets a new key, because the old
/// key must not give access to the new memory.
Outcome rereg_mr(Call& c) {
    const auto in = c.in<abi::ReregMrRequest>();
    Mr* mr;
    if (Outcome o = look_up(c.session.mrs, in.handle, "MR", mr); o.failed()) return o;
    Replacement change{.region = c.state.regions.make()};
    if (Outcome o = check_rereg(c, in, *mr->region, change); o.failed()) return o;
    if (Outcome o = must_have_no_windows(*mr->region); o.failed()) return o;
    const uint32_t index = mr->region->key.index();
    if ((in.flags & kTranslation) != 0) {
        set_layout(*change.region, change.layout, in.mr, c.session);
        change.region->key = c.state.new_key(index);
        std::swap(mr->memory, change.layout.regions);  // the old memory stays mapped until the function returns
    } else {
        keep_layout(*change.region, *mr->region);
    }
    c.state.shared.keys.publish(index, change.region.get());
    c.state.fence_all();
    c.state.memory_waits.free_later(std::exchange(mr->region, std::move(change.region)), c.session.process);
    if (change.pd != nullptr) mr->pd = Use(change.pd->uses);
    answer_keys(c, in.handle, mr->region->key);
    return done();
}

Outcome dereg_mr(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Mr* mr;
    if (Outcome o = look_up(c.session.mrs, handle, "MR", mr); o.failed()) return o;
    if (Outcome o = must_have_no_windows(*mr->region); o.failed()) return o;
    const uint32_t index = mr->region->key.index();
    c.state.shared.keys.clear(index);
    c.state.fence_all();
    if (in_use(*mr->region)) return wait_for_memory();
    c.session.mrs.erase(handle);
    c.state.keys.release(index);
    return done();
}

}  // namespace roci::host::objects
