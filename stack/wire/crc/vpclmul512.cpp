// CRC-32 kernel with 512-bit vectors. Uses the carry-less multiplication VPCLMULQDQ with AVX-512.
#include "wire/crc/kernel.hpp"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // a false warning in the compiler's own intrinsics (GCC bug 105593)
#endif

#define ROCI_CRC_TARGET [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,vpclmulqdq,pclmul")]]
#include "wire/crc/block_x86.hpp"

namespace roci::wire::crc {
namespace {

using Vector = __m512i;
constexpr uint32_t kVectorBytes = 64, kAccumulators = 4;

ROCI_CRC_TARGET inline Vector load(const void* p) { return _mm512_loadu_si512(p); }
ROCI_CRC_TARGET inline void store(uint8_t* p, Vector v) { _mm512_storeu_si512(p, v); }
ROCI_CRC_TARGET inline Vector load_end(const uint8_t* p, uint32_t n) {
    const uint32_t zeros = kVectorBytes - n;
    return _mm512_maskz_loadu_epi8(~uint64_t{0} << zeros, p - zeros);
}
ROCI_CRC_TARGET inline Vector load_factors(const Factors* f) { return load(f); }
ROCI_CRC_TARGET inline Vector spread(const Factors& f) { return _mm512_broadcast_i64x2(load_block(&f)); }
ROCI_CRC_TARGET inline Vector either(Vector a, Vector b) { return _mm512_or_si512(a, b); }
ROCI_CRC_TARGET inline Vector add(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
ROCI_CRC_TARGET inline Vector times(Vector a, Vector f) {
    return _mm512_xor_si512(_mm512_clmulepi64_epi128(a, f, 0x00), _mm512_clmulepi64_epi128(a, f, 0x11));
}
ROCI_CRC_TARGET inline Vector times_add(Vector a, Vector f, Vector c) {
    constexpr int kXor3 = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, f, 0x00), _mm512_clmulepi64_epi128(a, f, 0x11), c, kXor3);
}
ROCI_CRC_TARGET inline Vector place_state(uint32_t state, const uint8_t* control) {
    return _mm512_shuffle_epi8(_mm512_set1_epi32(int(state)), load(control));
}
ROCI_CRC_TARGET inline uint32_t remainder(Vector v) {
    const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return reduce(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

}  // namespace
}  // namespace roci::wire::crc

#include "wire/crc/fold.hpp"

namespace roci::wire::crc {
namespace {
bool supported() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
}
}  // namespace

constinit const Kernel kVpclmul512{"vpclmul512", crc_folded, crc_folded_copying, supported};

}  // namespace roci::wire::crc

#endif
