#include "mem/memory_region.hpp"
#include "qp/context.hpp"

namespace roci::qp {

template <class Copy>
bool SgeList::walk(uint64_t offset, uint32_t length, uint32_t needed, Copy&& copy) const {
    for (const abi::Sge& sge : sges_) {
        if (length == 0) return true;
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const uint32_t part = uint32_t(std::min<uint64_t>(length, sge.length - offset));
        const mem::MemoryRegion* region = nullptr;
        const uint64_t va = sge.addr + offset;
        if (mem::check(keys_, Key{sge.lkey}, pd_, 0, va, part, needed, region) != mem::Fault::ok) return false;
        if (!copy(*region, va, part)) return false;
        length -= part;
        offset = 0;
    }
    return length == 0;
}

bool SgeList::gather(uint64_t offset, uint8_t* out, uint32_t length) const {
    return walk(offset, length, 0, [&](const mem::MemoryRegion& r, uint64_t va, uint32_t n) {
        const bool ok = mem::copy_out(r, va, reinterpret_cast<std::byte*>(out), n);
        out += n;
        return ok;
    });
}

mem::InPlace SgeList::in_place(uint64_t offset, uint32_t length) const {
    mem::InPlace found;
    const auto take = [&](const mem::MemoryRegion& r, uint64_t va, uint32_t n) {
        if (n != length) return false;
        found = mem::in_place(r, va, n);
        return true;
    };
    return walk(offset, length, 0, take) ? found : mem::InPlace{};
}

bool SgeList::scatter(uint64_t offset, const uint8_t* in, uint32_t length) const {
    return walk(offset, length, mem::kLocalWrite, [&](const mem::MemoryRegion& r, uint64_t va, uint32_t n) {
        const bool ok = mem::copy_in(r, va, reinterpret_cast<const std::byte*>(in), n);
        in += n;
        return ok;
    });
}

bool SgeList::describe(uint64_t offset, uint32_t length, uint32_t needed, std::byte* bytes, mem::SlowRequest& request) const {
    return walk(offset, length, needed, [&](const mem::MemoryRegion& r, uint64_t va, uint32_t n) {
        const bool ok = mem::add(request, r, va, bytes, n);
        bytes += n;
        return ok;
    });
}

}  // namespace roci::qp
