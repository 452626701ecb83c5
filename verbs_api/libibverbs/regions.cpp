#include "regions.hpp"

#include <fcntl.h>

#include <cerrno>

#include "log.hpp"
#include "objects.hpp"

namespace roci::client {
namespace {

/// Appends a segment. If the new segment continues the last segment, extends the last segment instead.
void append(std::vector<abi::MrSegment>& segments, const abi::MrSegment& next) {
    if (!segments.empty()) {
        abi::MrSegment& last = segments.back();
        if (last.region == next.region && last.offset + last.length == next.offset) {
            last.length += next.length;
            return;
        }
    }
    segments.push_back(next);
}

}  // namespace

int RegionTable::use(Context& context, const memory::Piece& piece, RegionKey& key, uint32_t& handle) {
    key = {piece.id, piece.fd_length, piece.writable};
    std::lock_guard guard(mutex_);
    if (const auto it = regions_.find(key); it != regions_.end()) {
        ++it->second.users;
        handle = it->second.handle;
        return 0;
    }
    if (context.inherited) return EIO;
    const abi::AddRegionRequest request{piece.fd_length, piece.writable ? 1u : 0u, 0};
    abi::HandleReply reply{};
    const int err = context.link.request({abi::Op::add_region, std::as_bytes(std::span(&request, 1)), {}, piece.fd},
                                         std::as_writable_bytes(std::span(&reply, 1)));
    if (err != 0) return err;
    regions_[key] = {reply.handle, 1};
    handle = reply.handle;
    return 0;
}

/// Passes the piece's file to rocid and fills in the segment. If rocid refuses the file, for example a regular file on disk,
/// returns an errno and leaves the segment unchanged.
int RegionTable::share(Context& context, const memory::Piece& piece, RegisteredMemory& out, abi::MrSegment& segment) {
    RegionKey key{};
    uint32_t handle = 0;
    if (const int err = use(context, piece, key, handle); err != 0) return err;
    out.regions.push_back(key);
    segment.region = handle;
    segment.offset = piece.fd_offset;
    return 0;
}

void RegionTable::drop(Context& context, const RegionKey& key) {
    std::lock_guard guard(mutex_);
    const auto it = regions_.find(key);
    if (it == regions_.end() || --it->second.users != 0) return;
    context.destroy(abi::Op::remove_region, it->second.handle);
    regions_.erase(it);
}

namespace {

/// Reads a byte of each page, so that the kernel allocates the page.
void touch(const memory::Piece& piece) {
    constexpr uint64_t kPage = 4096;
    for (uint64_t at = piece.address / kPage * kPage; at < piece.address + piece.length; at += kPage)
        (void)*reinterpret_cast<const volatile char*>(at);
}

/// Allocates the pages of a piece in a file that supports seals, for example a memfd. Does nothing for other pieces. Returns 0,
/// or ENOMEM if there are not enough pages.
int allocate(const memory::Piece& piece) {
    if (piece.fd < 0 || fcntl(piece.fd, F_GET_SEALS) < 0) return 0;
    const int err = allocate_pages(piece.fd, piece.fd_offset, piece.length);
    if (err == ENOMEM || err == ENOSPC) {
        log("no memory for %zu of the bytes that are to be registered", size_t(piece.length));
        return ENOMEM;
    }
    if (err != 0) touch(piece);  // the descriptor is read-only, or the file is sealed against writing
    return 0;
}

}  // namespace

int RegionTable::acquire(Context& context, void* addr, size_t length, bool need_write, RegisteredMemory& out) {
    out = {};
    if (length == 0) return 0;
    std::vector<memory::Piece> pieces;
    if (const int err = memory::acquire(addr, length, need_write, pieces, out.token); err != 0) return err;
    out.acquired = true;
    for (const memory::Piece& piece : pieces) {
        abi::MrSegment segment{abi::kNoHandle, 0, piece.address, piece.length};
        if (piece.fd >= 0) {
            int err = populates_ ? allocate(piece) : 0;
            if (err == 0) err = share(context, piece, out, segment);
            if (err == EIO || err == ENOMEM) {
                release(context, out);
                return err;
            }
            if (err != 0)
                log("rocid does not map the file of %zu bytes at %#zx: it will copy them by address (slow)", size_t(piece.length),
                    size_t(piece.address));
        }
        append(out.segments, segment);
    }
    if (out.segments.size() > abi::kMaxMrSegments) {
        log("a registration of %zu bytes has %zu pieces, more than fit into a message: rocid will copy it by address "
            "(slow)",
            length, out.segments.size());
        out.segments.assign(1, {abi::kNoHandle, 0, uint64_t(reinterpret_cast<uintptr_t>(addr)), length});
    }
    return 0;
}

void RegionTable::release(Context& context, RegisteredMemory& memory) {
    if (!context.inherited)
        for (const RegionKey& key : memory.regions) drop(context, key);
    if (memory.acquired) memory::release(memory.token);
    memory = {};
}

}  // namespace roci::client
