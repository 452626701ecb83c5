// The device page is a memfd in which rocid publishes the port attributes and the GID table of each device. Client libraries map
// the memfd read-only, so a query of port attributes or GIDs needs no control call. The reply to Op::open_device carries the
// descriptor of the memfd.
//
//   DevicePageHeader | DeviceRecord of device 0 | DeviceRecord of device 1 | …
//
// Only one thread of rocid, the control thread (conductor), writes a record. `version` is odd while the conductor writes the
// record. A reader loads `version` before and after it copies the words. If the first value is odd or the second value differs,
// the reader copies again. The conductor stores the words with release order, and the reader loads them with acquire order. So if
// the reader has loaded a new word, its second load of `version` returns the new version.
//
// rocid writes a change into the page before it sends the event about the change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "control.hpp"

namespace roci::abi {

inline constexpr uint64_t kDevicePageMagic = 0x3176656469636f72;  // "rocidev1"

struct DevicePageHeader {
    uint64_t magic;
    uint32_t bytes;    ///< size of the whole page
    uint32_t devices;  ///< number of records
    uint32_t first;    ///< offset in bytes of the record of device 0
    uint32_t stride;   ///< bytes from a record to the next
    uint32_t owner;    ///< offset in bytes of the owner word
    uint32_t reserved;
};

/// The owner word is the word of a robust futex that the conductor's thread holds (get_robust_list(2)). The low 30 bits of the
/// word are 0 before rocid serves and after rocid has ended. The kernel clears these bits even if rocid is killed.
inline constexpr uint32_t kOwnerMask = 0x3fffffff;

struct DeviceSnapshot {
    PortAttr port;
    QueryGidTableReply gids;
};

struct DeviceRecord {
    static constexpr size_t kWords = sizeof(DeviceSnapshot) / sizeof(uint64_t);
    uint64_t version;  ///< 0: not written yet; odd: being written
    uint64_t word[kWords];

    /// Stores a new snapshot. Only one thread may call this function.
    void write(const DeviceSnapshot& now) {
        uint64_t from[kWords];
        std::memcpy(from, &now, sizeof now);
        const std::atomic_ref v(version);
        const uint64_t before = v.load(std::memory_order_relaxed);
        v.store(before + 1, std::memory_order_relaxed);
        for (size_t i = 0; i < kWords; ++i) std::atomic_ref(word[i]).store(from[i], std::memory_order_release);
        v.store(before + 2, std::memory_order_release);
    }
    /// Copies a part of the snapshot to `out`. `offset` is the offset of the part in DeviceSnapshot, in bytes. Returns false if
    /// none of kTries tries gives a stable copy, for example because rocid ended during a write.
    template <class Part>
    bool read(size_t offset, Part& out) const {
        for (int i = 0; i < kTries; ++i)
            if (try_read(offset, out)) return true;
        return false;
    }
    template <class Part>
    bool try_read(size_t offset, Part& out) const {
        constexpr size_t kPartWords = sizeof(Part) / sizeof(uint64_t);
        static_assert(sizeof(Part) % sizeof(uint64_t) == 0);
        auto& self = const_cast<DeviceRecord&>(*this);  // std::atomic_ref of C++20 takes no constant objects
        const std::atomic_ref v(self.version);
        uint64_t copy[kPartWords];
        const uint64_t before = v.load(std::memory_order_acquire);
        if (before == 0 || before % 2 != 0) return false;
        for (size_t w = 0; w < kPartWords; ++w)
            copy[w] = std::atomic_ref(self.word[offset / sizeof(uint64_t) + w]).load(std::memory_order_acquire);
        if (v.load(std::memory_order_relaxed) != before) return false;
        std::memcpy(&out, copy, sizeof out);
        return true;
    }
    static constexpr int kTries = 64;
};
static_assert(sizeof(DeviceSnapshot) % sizeof(uint64_t) == 0 && sizeof(PortAttr) % sizeof(uint64_t) == 0);

}  // namespace roci::abi
