// The counter page: a memfd that rocid's engines count in, mapped read-only by anybody who asks for it (Op::counters). It
// describes itself: names first, then the values of each engine, so that a reader needs no table of its own. Values are 64 bits
// wide, written by one thread, in no order between each other; a reader loads them relaxed.
//
//   CounterPageHeader | device names | names of an engine's counters | names of a device's counters
//   | engine 0: its counters, device 0, device 1, … | engine 1: …
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::abi {

inline constexpr uint64_t kCounterPageMagic = 0x31736e756f636f72;  // "rocouns1"

struct CounterPageHeader {
    uint64_t magic;
    uint32_t bytes;  ///< of the whole page
    uint32_t engines, devices;
    uint32_t engine_counters, device_counters;  ///< how many
    uint32_t names;                             ///< offset of the first CounterName: devices, engine's, device's
    uint32_t values;                            ///< offset of engine 0
    uint32_t engine_stride;                     ///< from engine to engine
    uint32_t device_offset, device_stride;      ///< of device 0 within an engine; from device to device
    uint32_t pid;                               ///< of rocid
    uint32_t cycles_per_ms;                     ///< of the CPUs' time stamp counter; 0: not known
};

struct CounterName {
    char text[60];
    uint32_t level;  ///< 1: a number that also falls, 0: a count
};

}  // namespace roci::abi
