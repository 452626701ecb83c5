// State that the conductor (rocid's control thread) and all engines of one rocid share. This state is the memory of the hot
// path, the tables that the conductor writes and every engine reads, and the rings between engines and conductor. io/tables.hpp
// describes when an entry may be freed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "abi/version.hpp"
#include "base/slab.hpp"
#include "io/gsi.hpp"
#include "io/handover.hpp"
#include "io/tables.hpp"
#include "mem/memory_region.hpp"

namespace roci::qp {

struct Qp;
struct Srq;

struct Shared {
    Shared(uint32_t max_qps, uint32_t max_keys, uint32_t max_ahs, uint32_t ports, ChunkSource& memory = HeapChunks::instance())
        : chunks(memory), keys(max_keys), qps(max_qps), ahs(max_ahs), srqs(max_qps), addresses(ports) {}
    ChunkSource& chunks;  ///< memory for objects of the hot path
    mem::KeyTable keys;
    io::PointerTable<Qp> qps;                 ///< by QPN; entries 0 and 1 stay empty. All devices share the number space
    io::PointerTable<io::AddressHandle> ahs;  ///< by the number of the address handle in the ABI
    io::PointerTable<Srq> srqs;               ///< XRC SRQs by SRQ number
    io::PointerTable<io::PortAddresses> addresses;
    std::atomic<const io::MulticastTable*> multicast{nullptr};
    std::unique_ptr<io::HandoverMatrix> handover;                         ///< set if there are several engines
    std::array<std::unique_ptr<io::GsiRing>, abi::kMaxEngines> gsi;       ///< by engine; from engine to conductor
    std::array<std::unique_ptr<io::FrameRing>, abi::kMaxEngines> frames;  ///< by engine; from engine to conductor
};

}  // namespace roci::qp
