// Memory for slabs on transparent huge pages. With huge pages, the data of thousands of QPs needs only a few TLB entries.
#pragma once

#include "base/slab.hpp"

namespace roci::pmd {

class HugeChunks final : public ChunkSource {
public:
    size_t unit() const override { return 2 << 20; }
    void* take(size_t bytes) override;
    void give_back(void* chunk, size_t bytes) noexcept override;
};

}  // namespace roci::pmd
