// The algorithm of all kernels with carry-less multiplication. Each kernel defines Vector, kVectorBytes, kAccumulators,
// ROCI_CRC_TARGET and the operations on vectors, and then includes this file.
//
// The first vector of a message may be incomplete. Zeros before the message extend the message to a whole number of vectors.
// Leading zeros do not change the CRC. So the last vector ends where the message ends, and the distance of each block from the
// end is a multiple of the block size. If the payload begins and ends at cache line boundaries, no vector of the payload crosses
// such a boundary.
//
// For a short message, the kernel multiplies each vector by the factors of the vector's position. For a long message, the kernel
// uses kAccumulators chains. Each chain moves its sum by kAccumulators vectors towards the end and adds the next vector (Gopal et
// al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"). The final sum has degree 95 at most. Barrett's method
// reduces the final sum to 32 bits.
//
// There is no include guard, because each translation unit contains one kernel.

#include "wire/crc/constants.hpp"
#include "wire/crc/kernel.hpp"

#if defined(__clang__)
#define ROCI_CRC_UNROLL _Pragma("unroll")
#else
#define ROCI_CRC_UNROLL _Pragma("GCC unroll 8")
#endif

namespace roci::wire::crc {
namespace {

constexpr uint32_t kVectorBlocks = kVectorBytes / kBlock;
constexpr uint32_t kMaskedVectors = Mask::kLength / kVectorBytes + 1;
constexpr uint32_t kShortVectors = kFinishBlocks / kVectorBlocks;
constexpr uint32_t kMostBefore = kMaskedVectors + kAccumulators - 1;  ///< largest number of vectors before the chains begin
static_assert(kShortVectors + 1 >= kMaskedVectors + kAccumulators);

/// Controls of the byte shuffle that places the four bytes of the CRC state at any position within a vector.
struct alignas(64) StatePlace {
    uint8_t control[192];
};
constexpr StatePlace kStatePlace = [] {
    StatePlace t{};
    for (uint8_t& c : t.control) c = 0x80;
    for (uint8_t i = 0; i < 4; ++i) t.control[64 + i] = i;
    return t;
}();

/// Returns the factors of the last `vectors` vectors of a message.
ROCI_CRC_TARGET inline const Factors* factors_of_last(uint32_t vectors) {
    return kFinish.data() + kFinishBlocks - vectors * kVectorBlocks;
}

/// Reads the vectors of a message in order. Combines the first vectors with the mask and the state.
struct Reader {
    const uint8_t* p;       ///< the next whole vector
    const uint8_t* masked;  ///< the mask for the vector at `p`
    const uint8_t* end_of_mask;
    uint32_t state, split;  ///< if the first vector has only `split` bytes (1 to 3), the state extends into the second vector
    Vector vector;

    ROCI_CRC_TARGET inline Reader(uint32_t from, const uint8_t* message, uint32_t first_bytes, const Mask& mask)
        : p(message + first_bytes),
          masked(mask.bits + first_bytes),
          end_of_mask(mask.after),
          state(from),
          split(first_bytes < sizeof state ? first_bytes : 0) {
        vector = either(load_end(message, first_bytes), load(masked - kVectorBytes));
        vector = add(vector, place_state(state, kStatePlace.control + 64 + first_bytes - kVectorBytes));
    }
    ROCI_CRC_TARGET inline void next() {
        vector = load(p);
        if (masked < end_of_mask) vector = either(vector, load(masked));
        if (split != 0) vector = add(vector, place_state(state, kStatePlace.control + 64 + split));
        split = 0;
        p += kVectorBytes;
        masked += kVectorBytes;
    }
};

/// Computes the CRC of a message of at most kShortVectors vectors.
ROCI_CRC_TARGET inline uint32_t crc_short(Reader r, uint32_t vectors) {
    const Factors* factors = factors_of_last(vectors);
    Vector sum = times(r.vector, load_factors(factors));
    while (--vectors != 0) {
        factors += kVectorBlocks;
        r.next();
        sum = times_add(r.vector, load_factors(factors), sum);
    }
    return remainder(sum);
}

/// Returns a vector for the chains. Without kCopied, reads the vector at `p`. With kCopied, reads the vector at `from` and stores
/// the vector at `p`. A client may change the memory at `from` at any time. The empty asm statement prevents the compiler from
/// reading `from` a second time.
template <bool kCopied>
ROCI_CRC_TARGET inline Vector take(const uint8_t* p, const uint8_t* from) {
    if constexpr (!kCopied) return load(p);
    Vector v = load(from);
#if defined(__x86_64__)
    asm volatile("" : "+v"(v));
#else
    asm volatile("" : "+w"(v));
#endif
    store(const_cast<uint8_t*>(p), v);
    return v;
}

/// Computes the CRC of a long message, which consists of `before` vectors and `strides` strides of kAccumulators vectors each.
/// With kCopied, copies the strides from `from` behind the first vectors.
template <bool kCopied>
ROCI_CRC_TARGET inline uint32_t crc_long(Reader r, uint32_t before, size_t strides, const uint8_t* from) {
    const auto& carry = kCarry<kVectorBlocks, kMostBefore>;
    Vector sum = times(r.vector, spread(carry[before]));
    while (--before != 0) {
        r.next();
        sum = times_add(r.vector, spread(carry[before]), sum);
    }
    const uint8_t* p = r.p;
    Vector chains[kAccumulators];
    ROCI_CRC_UNROLL
    for (uint32_t i = 0; i < kAccumulators; ++i) chains[i] = take<kCopied>(p + i * kVectorBytes, from + i * kVectorBytes);
    chains[0] = add(chains[0], sum);
    const Vector stride = spread(carry[kAccumulators]);
    while (--strides != 0) {
        p += kAccumulators * kVectorBytes;
        from += kAccumulators * kVectorBytes;
        ROCI_CRC_UNROLL
        for (uint32_t i = 0; i < kAccumulators; ++i)
            chains[i] = times_add(chains[i], stride, take<kCopied>(p + i * kVectorBytes, from + i * kVectorBytes));
    }
    const Factors* factors = factors_of_last(kAccumulators);
    sum = times(chains[0], load_factors(factors));
    ROCI_CRC_UNROLL
    for (uint32_t i = 1; i < kAccumulators; ++i) sum = times_add(chains[i], load_factors(factors + i * kVectorBlocks), sum);
    return remainder(sum);
}

ROCI_CRC_TARGET uint32_t crc_folded(uint32_t state, const uint8_t* p, size_t n, const Mask& mask) {
    if (n < kBlock) return crc_by_table(state, p, n, mask);
    const Reader reader(state, p, uint32_t((n - 1) % kVectorBytes) + 1, mask);
    const size_t vectors = (n + kVectorBytes - 1) / kVectorBytes;
    if (vectors <= kShortVectors) return crc_short(reader, uint32_t(vectors));
    const size_t behind_mask = vectors - kMaskedVectors;
    return crc_long<false>(reader, uint32_t(kMaskedVectors + behind_mask % kAccumulators), behind_mask / kAccumulators, p);
}

static_assert(kCopyStep % (kAccumulators * kVectorBytes) == 0 && kMostHead <= kMostBefore * kVectorBytes && kLeastHead == kBlock);

ROCI_CRC_TARGET uint32_t crc_folded_copying(uint32_t state, uint8_t* head, uint32_t head_length, const Mask& mask,
                                            const uint8_t* from, size_t n) {
    const Reader reader(state, head, (head_length - 1) % kVectorBytes + 1, mask);
    return crc_long<true>(reader, (head_length + kVectorBytes - 1) / kVectorBytes, n / (kAccumulators * kVectorBytes), from);
}

}  // namespace
}  // namespace roci::wire::crc
