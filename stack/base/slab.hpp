// Allocates blocks of one size from large chunks. A block consists of whole cache lines and has no header. The block that was
// freed last is allocated first, because this block is probably still in a cache. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ROCI_HEAP_BLOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROCI_HEAP_BLOCKS 1
#endif
#endif

namespace roci {

/// Provides memory to slabs. Thread-safe.
class ChunkSource {
public:
    virtual ~ChunkSource() = default;
    /// Returns the preferred size of a chunk in bytes. Slabs take multiples of this size.
    virtual size_t unit() const = 0;
    /// Returns memory that is aligned to a cache line, or nullptr if memory is exhausted.
    virtual void* take(size_t bytes) = 0;
    virtual void give_back(void* chunk, size_t bytes) noexcept = 0;
};

/// Allocates chunks from the heap, for the simulator and tests.
class HeapChunks final : public ChunkSource {
public:
    size_t unit() const override { return 16 << 10; }
    void* take(size_t bytes) override { return std::aligned_alloc(64, bytes); }
    void give_back(void* chunk, size_t) noexcept override { std::free(chunk); }
    static ChunkSource& instance() {
        static HeapChunks heap;
        return heap;
    }
};

class alignas(64) Slab {
public:
    static constexpr size_t kLine = 64;
#ifdef ROCI_HEAP_BLOCKS
    /// With the address sanitizer, each block is a heap allocation, so that the sanitizer detects the use of a freed block.
    static constexpr bool kHeapBlocks = true;
#else
    static constexpr bool kHeapBlocks = false;
#endif

    Slab(ChunkSource& source, size_t bytes) : source_(source), block_((bytes + kLine - 1) / kLine * kLine) {}
    ~Slab() { release(); }
    Slab(const Slab&) = delete;
    Slab& operator=(const Slab&) = delete;

    /// Returns a block with undefined content, or nullptr if memory is exhausted. Does not return nullptr while fewer blocks are
    /// in use than reserved, except with kHeapBlocks.
    void* take() {
        if constexpr (kHeapBlocks) return counted(std::aligned_alloc(kLine, block_));
        if (Free* const f = free_) {
            free_ = f->next;
            return counted(f);
        }
        if (fresh_ == fresh_end_ && !use_next_chunk() && !grow(1)) return nullptr;
        return counted(std::exchange(fresh_, fresh_ + block_));
    }
    void give_back(void* block) noexcept {
        --taken_;
        if constexpr (kHeapBlocks) return std::free(block);
        free_ = new (block) Free{free_};
    }
    /// Allocates memory for `blocks` more blocks, so that take() need not allocate. Returns false if memory is exhausted. With
    /// kHeapBlocks, allocates no memory.
    [[nodiscard]] bool reserve(size_t blocks) {
        reserved_ += blocks;
        if (kHeapBlocks || reserved_ <= capacity_ || grow(reserved_ - capacity_)) return true;
        reserved_ -= blocks;
        return false;
    }
    /// Ends a reservation of reserve(). If no block is reserved or in use afterwards, returns all memory of the slab to its
    /// source.
    void unreserve(size_t blocks) {
        reserved_ -= blocks;
        if (reserved_ == 0 && taken_ == 0) release();
    }

    size_t taken() const { return taken_; }
    size_t taken_bytes() const { return taken_ * block_; }

private:
    struct Free {
        Free* next;
    };
    struct Chunk {
        void* memory;
        size_t bytes;
    };

    void release() {
        for (const Chunk& c : chunks_) source_.give_back(c.memory, c.bytes);
        chunks_.clear();
        free_ = nullptr;
        fresh_ = fresh_end_ = nullptr;
        begun_ = capacity_ = 0;
    }
    void* counted(void* block) {
        taken_ += block != nullptr;
        return block;
    }
    bool grow(size_t blocks) {
        const size_t unit = source_.unit();
        const size_t bytes = (blocks * block_ + unit - 1) / unit * unit;
        void* memory = source_.take(bytes);
        if (memory == nullptr) return false;
        chunks_.push_back({memory, bytes});
        capacity_ += bytes / block_;
        if (fresh_ == fresh_end_) use_next_chunk();
        return true;
    }
    /// Starts to allocate from the next chunk. The blocks of a new chunk are not put on the free list, because linking them would
    /// write to all pages of the chunk.
    bool use_next_chunk() {
        if (begun_ == chunks_.size()) return false;
        const Chunk& c = chunks_[begun_++];
        fresh_ = static_cast<std::byte*>(c.memory);
        fresh_end_ = fresh_ + c.bytes / block_ * block_;
        return true;
    }

    ChunkSource& source_;
    const size_t block_;
    Free* free_ = nullptr;
    std::byte *fresh_ = nullptr, *fresh_end_ = nullptr;  ///< the part of the current chunk that was never allocated
    size_t begun_ = 0;                                   ///< index of the next chunk to use
    size_t capacity_ = 0, reserved_ = 0, taken_ = 0;
    std::vector<Chunk> chunks_;
};

/// A slab of objects of type T. Each object is owned by its Handle, which returns the object's block to the slab.
template <class T>
class Pool {
public:
    struct Free {
        Slab* slab = nullptr;
        void operator()(T* object) const {
            object->~T();
            slab->give_back(object);
        }
    };
    using Handle = std::unique_ptr<T, Free>;

    explicit Pool(ChunkSource& source) : slab_(source, sizeof(T)) { static_assert(alignof(T) <= Slab::kLine); }
    /// Throws std::bad_alloc if memory is exhausted.
    Handle make() {
        void* block = slab_.take();
        if (block == nullptr) throw std::bad_alloc();
        return Handle(new (block) T, {&slab_});
    }

private:
    Slab slab_;
};

}  // namespace roci
