// CRC-32 kernel with 128-bit vectors. Uses the carry-less multiplication PCLMULQDQ without AVX.
#include "wire/crc/kernel.hpp"

#if defined(__x86_64__)

#define ROCI_CRC_TARGET [[gnu::target("sse4.1,pclmul")]]
#include "wire/crc/block_x86.hpp"

namespace roci::wire::crc {
namespace {

using Vector = __m128i;
constexpr uint32_t kVectorBytes = 16, kAccumulators = 8;

ROCI_CRC_TARGET inline Vector load(const void* p) { return load_block(p); }
ROCI_CRC_TARGET inline void store(uint8_t* p, Vector v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
ROCI_CRC_TARGET inline Vector load_end(const uint8_t* p, uint32_t n) { return load_block_end(p, n); }
ROCI_CRC_TARGET inline Vector load_factors(const Factors* f) { return load(f); }
ROCI_CRC_TARGET inline Vector spread(const Factors& f) { return load(&f); }
ROCI_CRC_TARGET inline Vector either(Vector a, Vector b) { return _mm_or_si128(a, b); }
ROCI_CRC_TARGET inline Vector add(Vector a, Vector b) { return _mm_xor_si128(a, b); }
ROCI_CRC_TARGET inline Vector times(Vector a, Vector f) {
    return add(_mm_clmulepi64_si128(a, f, 0x00), _mm_clmulepi64_si128(a, f, 0x11));
}
ROCI_CRC_TARGET inline Vector times_add(Vector a, Vector f, Vector c) {
    return add(_mm_clmulepi64_si128(a, f, 0x00), add(_mm_clmulepi64_si128(a, f, 0x11), c));
}
ROCI_CRC_TARGET inline Vector place_state(uint32_t state, const uint8_t* control) {
    return _mm_shuffle_epi8(_mm_set1_epi32(int(state)), load(control));
}
ROCI_CRC_TARGET inline uint32_t remainder(Vector v) { return reduce(v); }

}  // namespace
}  // namespace roci::wire::crc

#include "wire/crc/fold.hpp"

namespace roci::wire::crc {
namespace {
bool supported() { return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul"); }
}  // namespace

constinit const Kernel kPclmul{"pclmul", crc_folded, crc_folded_copying, supported};

}  // namespace roci::wire::crc

#endif
