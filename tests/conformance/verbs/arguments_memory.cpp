// Wrong arguments of memory regions, memory windows and device memory.
#include <sys/mman.h>

#include "arguments.hpp"

namespace verbs_test {
namespace {

using enum Way;

Got mr(Stage& s, void* at, size_t length, int access) { return made(ibv_reg_mr(s.a.pd, at, length, access), ibv_dereg_mr); }
Got mr(Stage& s, int access) { return mr(s, s.a.memory.data(), 4096, access); }

/// Maps new memory with this protection and registers it.
Got mapping(Stage& s, int protection, int access) {
    void* at = mmap(nullptr, 8192, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Got got = mr(s, at, 8192, access);
    munmap(at, 8192);
    errno = got.left;
    return got;
}

Got rereg(Stage& s, int flags, ibv_pd* pd, void* at, size_t length, int access) {
    const int value = ibv_rereg_mr(s.plain, flags, pd, at, length, access);
    return {value == 0 ? 0 : errno, errno};
}

template <class F>
Got bind1(Stage& s, F spoil) {
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {s.a.mr, s.a.address(), 64, IBV_ACCESS_REMOTE_WRITE};
    ibv_mw* window = s.mw1;
    spoil(s, bind, window);
    return returned(ibv_bind_mw(s.a.qp, window, &bind));
}

template <class F>
Got dm(Stage& s, F spoil) {
    ibv_alloc_dm_attr attr{};
    attr.length = 4096;
    spoil(attr);
    return made(ibv_alloc_dm(s.a.context, &attr), ibv_free_dm);
}

template <class F>
Got in_dm(Stage& s, F use) {
    ibv_alloc_dm_attr attr{};
    attr.length = 4096;
    ibv_dm* memory = ibv_alloc_dm(s.a.context, &attr);
    if (memory == nullptr) return {ENOSYS, ENOSYS};
    errno = 0;
    const Got got = use(s, memory);
    ibv_free_dm(memory);
    return got;
}

template <class F>
Got advise(Stage& s, F spoil) {
    ibv_sge sge = s.a.sge(0, 64);
    uint32_t count = 1, flags = 0;
    ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH;
    spoil(sge, count, flags, advice);
    return returned(ibv_advise_mr(s.a.pd, advice, flags, &sge, count));
}

constexpr const char *kNoDm = "it has no device memory", *kNoAdvice = "it prefetches nothing";
constexpr int kRemote = IBV_ACCESS_REMOTE_WRITE;

const Row kRows[] = {
    // ---- regions ----
    {"reg_mr", "remote write without local write", negative, EINVAL, [](Stage& s) { return mr(s, IBV_ACCESS_REMOTE_WRITE); }},
    {"reg_mr", "remote atomic without local write", negative, EINVAL, [](Stage& s) { return mr(s, IBV_ACCESS_REMOTE_ATOMIC); }},
    {"reg_mr", "an unknown right", negative, EINVAL, [](Stage& s) { return mr(s, IBV_ACCESS_LOCAL_WRITE | 1 << 17); }},
    {"reg_mr", "memory that is not mapped", negative, EFAULT,
     [](Stage& s) { return mr(s, reinterpret_cast<void*>(0x10000), 4096, kFullAccess); }},
    {"reg_mr", "memory without access", negative, EFAULT, [](Stage& s) { return mapping(s, PROT_NONE, IBV_ACCESS_LOCAL_WRITE); }},
    {"reg_mr", "read-only memory, local write", negative, EFAULT,
     [](Stage& s) { return mapping(s, PROT_READ, IBV_ACCESS_LOCAL_WRITE); }},
    {"reg_mr", "an address plus length that wraps", negative, EINVAL,
     [](Stage& s) { return mr(s, reinterpret_cast<void*>(~uintptr_t{0} - 100), 4096, kFullAccess); }},
    {"rereg_mr", "no flags", negative, EINVAL, [](Stage& s) { return rereg(s, 0, nullptr, nullptr, 0, 0); }, EOPNOTSUPP,
     "Linux 6.1 re-registers no region of Soft-RoCE"},
    {"rereg_mr", "unknown flags", negative, EINVAL, [](Stage& s) { return rereg(s, 1 << 9, nullptr, nullptr, 0, 0); }},
    {"rereg_mr", "no address", negative, EINVAL,
     [](Stage& s) { return rereg(s, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 4096, 0); }},
    {"rereg_mr", "no length", negative, EINVAL,
     [](Stage& s) { return rereg(s, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, s.a.memory.data(), 0, 0); }},
    {"rereg_mr", "no PD", negative, EINVAL, [](Stage& s) { return rereg(s, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0); },
     EOPNOTSUPP, "Linux 6.1 re-registers no region of Soft-RoCE"},
    {"rereg_mr", "rights that do not go together", negative, EINVAL,
     [](Stage& s) { return rereg(s, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kRemote); }, EOPNOTSUPP,
     "Linux 6.1 re-registers no region of Soft-RoCE"},
    {"rereg_mr", "rights without the flag", negative, EINVAL,
     [](Stage& s) { return rereg(s, IBV_REREG_MR_CHANGE_PD, s.a.pd, nullptr, 0, kFullAccess); }},
    // ---- windows ----
    {"alloc_mw", "an unknown type", negative, EINVAL,
     [](Stage& s) { return made(ibv_alloc_mw(s.a.pd, number<ibv_mw_type>(3)), ibv_dealloc_mw); }},
    {"bind_mw", "a window of type 2", header, EINVAL,
     [](Stage& s) { return bind1(s, [](Stage& t, auto&, ibv_mw*& w) { w = t.mw2; }); }},
    {"bind_mw", "a region of another PD", header, EPERM,
     [](Stage& s) { return bind1(s, [](Stage& t, auto& b, auto&) { b.bind_info.mr = t.foreign; }); }},
    {"bind_mw", "a range without a region", header, EINVAL,
     [](Stage& s) { return bind1(s, [](Stage&, auto& b, auto&) { b.bind_info.mr = nullptr; }); }},
    {"bind_mw", "zero-based", value, EINVAL,
     [](Stage& s) { return bind1(s, [](Stage&, auto& b, auto&) { b.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED; }); }},
    // ---- device memory ----
    {"alloc_dm", "no length", negative, EINVAL, [](Stage& s) { return dm(s, [](auto& x) { x.length = 0; }); }, kSkip, kNoDm},
    {"alloc_dm", "an alignment that is too large", negative, EINVAL,
     [](Stage& s) { return dm(s, [](auto& x) { x.log_align_req = 63; }); }, kSkip, kNoDm},
    {"alloc_dm", "more than there is", negative, ENOMEM,
     [](Stage& s) { return dm(s, [](auto& x) { x.length = size_t{1} << 40; }); }, kSkip, kNoDm},
    {"alloc_dm", "unknown attributes", negative, EOPNOTSUPP,
     [](Stage& s) { return dm(s, [](auto& x) { x.comp_mask = 1 << 9; }); }, kSkip, kNoDm},
    {"memcpy_to_dm", "beyond the end", value, EFAULT,
     [](Stage& s) {
         return in_dm(s, [](Stage& t, ibv_dm* m) { return returned(ibv_memcpy_to_dm(m, 4092, t.a.memory.data(), 8)); });
     },
     kSkip, kNoDm},
    {"memcpy_from_dm", "beyond the end", value, EFAULT,
     [](Stage& s) {
         return in_dm(s, [](Stage& t, ibv_dm* m) { return returned(ibv_memcpy_from_dm(t.a.memory.data(), m, 8192, 8)); });
     },
     kSkip, kNoDm},
    {"reg_dm_mr", "not zero-based", negative, EINVAL,
     [](Stage& s) {
         return in_dm(
             s, [](Stage& t, ibv_dm* m) { return made(ibv_reg_dm_mr(t.a.pd, m, 0, 64, IBV_ACCESS_LOCAL_WRITE), ibv_dereg_mr); });
     },
     kSkip, kNoDm},
    {"reg_dm_mr", "beyond the end", negative, EINVAL,
     [](Stage& s) {
         return in_dm(s, [](Stage& t, ibv_dm* m) {
             return made(ibv_reg_dm_mr(t.a.pd, m, 4090, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED), ibv_dereg_mr);
         });
     },
     kSkip, kNoDm},
    // ---- advice ----
    {"advise_mr", "no elements", value, EINVAL, [](Stage& s) { return advise(s, [](auto&, auto& n, auto&, auto&) { n = 0; }); },
     EOPNOTSUPP, kNoAdvice},
    {"advise_mr", "unknown flags", value, EINVAL,
     [](Stage& s) { return advise(s, [](auto&, auto&, auto& f, auto&) { f = 1 << 9; }); }, EOPNOTSUPP, kNoAdvice},
    {"advise_mr", "unknown advice", value, EOPNOTSUPP,
     [](Stage& s) { return advise(s, [](auto&, auto&, auto&, auto& a) { a = number<ibv_advise_mr_advice>(77); }); }},
    {"advise_mr", "a key that is none", value, EINVAL,
     [](Stage& s) { return advise(s, [](auto& sge, auto&, auto&, auto&) { sge.lkey = 0xdead00; }); }, EOPNOTSUPP, kNoAdvice},
    {"advise_mr", "a region without on-demand paging", value, EINVAL,
     [](Stage& s) { return advise(s, [](auto&, auto&, auto&, auto&) {}); }, EOPNOTSUPP, kNoAdvice},
    {"reg_dmabuf_mr", "not supported", negative, EOPNOTSUPP,
     [](Stage& s) { return made(ibv_reg_dmabuf_mr(s.a.pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE), ibv_dereg_mr); }},
};

}  // namespace

std::span<const Row> memory_rows() { return kRows; }

}  // namespace verbs_test
