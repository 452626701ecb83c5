// What the engine allocates for a connected RC QP, counted by the allocator: its state, the READs and atomics that it may have to
// answer twice, a receive under way. Its rings, and the engine's copy of the send ring, are as long as the program wants: they
// are not in the figure.
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

qp::Spec spec_of(abi::RqShared& ring) {
    qp::Spec s;
    s.type = qp::Type::rc;
    s.rq = {.shared = &ring, .slots = nullptr, .depth = 1, .stride = kStride, .max_sge = 1};
    return s;
}

void measure() {
    qp::Context ctx;
    abi::RqShared ring{};
    qp::Pool pool(HeapChunks::instance());
    std::vector<qp::Pool::Handle> qps;
    qps.reserve(kQps);
    qp::Change change;
    change.mask = qp::kAttrMaxDestRdAtomic;
    change.attr.max_dest_rd_atomic = kReads;
    const size_t before = mallinfo2().uordblks;
    for (uint32_t i = 0; i < kQps; ++i) {
        qps.push_back(pool.create(spec_of(ring)));
        qp::apply_change(ctx, *qps.back(), change);
    }
    report("transport.bytes_a_qp", double(mallinfo2().uordblks - before) / kQps, "B");
}

}  // namespace
}  // namespace roci::bench

int main() { roci::bench::measure(); }
