// Memory for slabs from the kernel, which is asked for huge pages: thousands of QPs lie on a few of them instead of on thousands
// of small ones.
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
