// CRC-32 kernel with 256-bit vectors, for processors without AVX-512. Uses the carry-less multiplication VPCLMULQDQ with AVX2.
#include "wire/crc/kernel.hpp"

#if defined(__x86_64__)

#include <algorithm>

#define ROCI_CRC_TARGET [[gnu::target("avx2,vpclmulqdq,pclmul")]]
#include "wire/crc/block_x86.hpp"

namespace roci::wire::crc {
namespace {

using Vector = __m256i;
constexpr uint32_t kVectorBytes = 32, kAccumulators = 8;

ROCI_CRC_TARGET inline Vector load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
ROCI_CRC_TARGET inline void store(uint8_t* p, Vector v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
ROCI_CRC_TARGET inline Vector load_end(const uint8_t* p, uint32_t n) {
    const uint32_t high = std::min(n, kBlock), low = n - high;
    return _mm256_set_m128i(load_block_end(p + low, high), load_block_end(p, low));
}
ROCI_CRC_TARGET inline Vector load_factors(const Factors* f) { return load(f); }
ROCI_CRC_TARGET inline Vector spread(const Factors& f) { return _mm256_broadcastsi128_si256(load_block(&f)); }
ROCI_CRC_TARGET inline Vector either(Vector a, Vector b) { return _mm256_or_si256(a, b); }
ROCI_CRC_TARGET inline Vector add(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
ROCI_CRC_TARGET inline Vector times(Vector a, Vector f) {
    return add(_mm256_clmulepi64_epi128(a, f, 0x00), _mm256_clmulepi64_epi128(a, f, 0x11));
}
ROCI_CRC_TARGET inline Vector times_add(Vector a, Vector f, Vector c) {
    return add(_mm256_clmulepi64_epi128(a, f, 0x00), add(_mm256_clmulepi64_epi128(a, f, 0x11), c));
}
ROCI_CRC_TARGET inline Vector place_state(uint32_t state, const uint8_t* control) {
    return _mm256_shuffle_epi8(_mm256_set1_epi32(int(state)), load(control));
}
ROCI_CRC_TARGET inline uint32_t remainder(Vector v) {
    return reduce(_mm_xor_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

}  // namespace
}  // namespace roci::wire::crc

#include "wire/crc/fold.hpp"

namespace roci::wire::crc {
namespace {
bool supported() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
}
}  // namespace

constinit const Kernel kVpclmul256{"vpclmul256", crc_folded, crc_folded_copying, supported};

}  // namespace roci::wire::crc

#endif
