// The counter page is a memfd that contains the counters of rocid's engines. Any process can request the memfd from rocid
// (Op::counters) and map it read-only. The page also contains the names of the counters, so a reader needs no table of names.
// Each value has 64 bits, and one thread writes it. Updates of different values are not ordered. Readers use relaxed loads.
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
    uint32_t bytes;  ///< size of the whole page
    uint32_t engines, devices;
    uint32_t engine_counters, device_counters;  ///< number of counters per engine, and per device and engine
    uint32_t names;   ///< offset in bytes of the first CounterName; the order is devices, engine's counters, device's counters
    uint32_t values;  ///< offset in bytes of the values of engine 0
    uint32_t engine_stride;                 ///< bytes per engine
    uint32_t device_offset, device_stride;  ///< bytes from an engine's values to device 0; bytes per device
    uint32_t pid;                           ///< process ID of rocid
    uint32_t cycles_per_ms;                 ///< cycles of the CPUs' time stamp counter per millisecond; 0 if unknown
};

struct CounterName {
    char text[60];
    uint32_t level;  ///< 1: a level, which can also fall; 0: a count, which only rises
};

}  // namespace roci::abi
