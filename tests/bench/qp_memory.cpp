// Measures the memory that the engine allocates per RC QP. The figure includes the state of the QP, which is a block of the slab,
// and the heap memory for replays of READs and atomics and for the current receive. The figure excludes the rings and the
// engine's records of outstanding work requests, because the program chooses their sizes.
#include <malloc.h>

#include <memory>
#include <vector>

#include "qp/attributes.hpp"
#include "qp/context.hpp"
#include "qp/roles.hpp"
#include "report.hpp"

namespace roci::bench {
namespace {

constexpr uint32_t kQps = 1000, kReads = 4, kStride = 64;

/// The memory of the slab. Like rocid's chunks, this memory does not come from the heap. So mallinfo2() does not count it.
class Chunk final : public ChunkSource {
public:
    size_t unit() const override { return sizeof memory_; }
    void* take(size_t bytes) override { return bytes <= sizeof memory_ ? memory_ : nullptr; }
    void give_back(void*, size_t) noexcept override {}

private:
    alignas(64) static inline std::byte memory_[2 << 20];
};

qp::Spec spec_for(abi::RqShared& ring) {
    qp::Spec s;
    s.type = qp::Type::rc;
    s.rq = {.shared = &ring, .depth = 1, .stride = kStride, .max_sge = 1};
    return s;
}

void measure() {
    qp::Context ctx;
    abi::RqShared ring{};
    Chunk chunk;
    qp::Pool pool(chunk);
    std::vector<qp::Pool::Handle> qps;
    qps.reserve(kQps);
    qp::Change change;
    change.mask = qp::kAttrMaxDestRdAtomic;
    change.attr.max_dest_rd_atomic = kReads;
    const size_t before = mallinfo2().uordblks;
    for (uint32_t i = 0; i < kQps; ++i) {
        qps.push_back(pool.create(spec_for(ring), {}));
        qp::apply_change(ctx, *qps.back(), change, qp::State::reset);
    }
    report("transport.bytes_a_qp", double(mallinfo2().uordblks - before + pool.bytes()) / kQps, "B");
}

}  // namespace
}  // namespace roci::bench

int main() { roci::bench::measure(); }
