// Memory for slabs on transparent huge pages, so that the data of thousands of QPs lie on a few pages.
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
