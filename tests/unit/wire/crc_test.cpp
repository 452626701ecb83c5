// Tests of the CRC-32 kernels. Long division checks their constants, and zlib checks their results. Further tests check the
// choice of a kernel.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "wire/crc/constants.hpp"
#include "wire/crc/kernel.hpp"
#include "wire/icrc.hpp"

namespace roci::wire::crc {
namespace {

// ---- constants --------------------------------------------------------------------------------------------------------

/// A polynomial over GF(2): element i is the coefficient of x^i.
using Polynomial = std::vector<bool>;

/// CRC-32 as IEEE 802.3 (3.2.9) writes it: the powers of x with coefficient 1.
const Polynomial kP = [] {
    Polynomial p(33);
    for (const size_t power : {32, 26, 23, 22, 16, 12, 11, 10, 8, 7, 5, 4, 2, 1, 0}) p[power] = true;
    return p;
}();

Polynomial x_to_the(size_t n) {
    Polynomial p(n + 1);
    p[n] = true;
    return p;
}

struct Division {
    Polynomial quotient, rest;
};
Division divide(Polynomial a) {
    Division d{Polynomial(a.size()), {}};
    for (size_t i = a.size(); i-- >= kP.size() - 1 && i + 1 >= kP.size();) {
        if (!a[i]) continue;
        d.quotient[i - 32] = true;
        for (size_t k = 0; k < kP.size(); ++k) a[i - 32 + k] = a[i - 32 + k] != kP[k];
    }
    a.resize(32);
    d.rest = a;
    return d;
}

/// Returns the polynomial as a word in which bit (top - i) is the coefficient of x^i.
uint64_t reflected(const Polynomial& p, size_t top) {
    uint64_t word = 0;
    for (size_t i = 0; i <= top && i < p.size(); ++i)
        if (p[i]) word |= uint64_t{1} << (top - i);
    return word;
}

uint64_t rest_of_power(size_t n, size_t top) { return reflected(divide(x_to_the(n)).rest, top); }

TEST(CrcConstants, ThePolynomialIsThatOfIeee8023) {
    EXPECT_EQ(kPolynomial, uint32_t(reflected(kP, 31)));
    EXPECT_EQ(kBarrett.high, reflected(kP, 32));
}

TEST(CrcConstants, PowersAreRestsOfLongDivision) {
    for (const size_t n : {0, 1, 31, 32, 33, 63, 64, 95, 96, 127, 128, 1000, 4096, 12345})
        EXPECT_EQ(power(n), rest_of_power(n, 31)) << n;
}

TEST(CrcConstants, CarriesAreRestsOfLongDivision) {
    for (uint32_t blocks = 1; blocks <= 80; ++blocks) {
        EXPECT_EQ(carry(blocks).low, rest_of_power(128 * blocks + 32, 32)) << blocks;
        EXPECT_EQ(carry(blocks).high, rest_of_power(128 * blocks - 32, 32)) << blocks;
    }
    EXPECT_EQ(carry(1).low, 0x1751997d0u);  // the factors that Gopal et al. have published for folding by one and by four blocks
    EXPECT_EQ(carry(1).high, 0x0ccaa009eu);
    EXPECT_EQ(carry(4).low, 0x154442bd4u);
    EXPECT_EQ(carry(4).high, 0x1c6e41596u);
}

TEST(CrcConstants, FinishingFactorsAreRestsOfLongDivision) {
    for (uint32_t i = 0; i < kFinishBlocks; ++i) {
        const uint32_t blocks = kFinishBlocks - 1 - i;
        EXPECT_EQ(kFinish[i].low, rest_of_power(128 * blocks + 95, 63)) << blocks;
        EXPECT_EQ(kFinish[i].high, rest_of_power(128 * blocks + 31, 63)) << blocks;
    }
}

TEST(CrcConstants, BarrettsQuotientIsThatOfLongDivision) {
    EXPECT_EQ(kBarrett.low, reflected(divide(x_to_the(95)).quotient, 63));
}

// ---- kernels ----------------------------------------------------------------------------------------------------------

std::vector<uint8_t> noise(size_t n) {
    std::vector<uint8_t> bytes(n);
    std::mt19937 random(7);
    for (uint8_t& b : bytes) b = uint8_t(random());
    return bytes;
}

std::vector<const Kernel*> supported() {
    std::vector<const Kernel*> out;
    for (const Kernel* k : kernels())
        if (k->supported()) out.push_back(k);
    return out;
}

/// If this processor cannot run one of the kernels, the test is skipped and names that kernel.
TEST(CrcKernel, AreThoseOfThisProcessor) {
    std::string missing;
    for (const Kernel* k : kernels())
        if (!k->supported()) missing += " " + std::string(k->name);
    if (!missing.empty()) GTEST_SKIP() << "this processor cannot run:" << missing;
}

TEST(CrcKernel, EqualsZlibAtEveryLengthAndAlignment) {
    constexpr size_t kLongest = 4800;
    constexpr uint32_t kState = 0x2468ace1;
    const std::vector<uint8_t> bytes = noise(kLongest + 64);
    for (size_t alignment = 0; alignment < 64; ++alignment) {
        const uint8_t* p = bytes.data() + alignment;
        uint32_t expected = ~kState;
        for (size_t n = 0; n <= kLongest; expected = uint32_t(crc32(expected, p + n, 1)), ++n) {
            // All lengths below 1,200 cover every code path of every kernel at each alignment. Longer messages are tested only at
            // some alignments.
            if (n > 1200 && n % 16 != alignment % 16) continue;
            for (const Kernel* k : supported())
                ASSERT_EQ(~k->crc(kState, p, n, kNoMask), expected) << k->name << " " << n << " " << alignment;
        }
    }
}

TEST(CrcKernel, LaysTheMaskOverTheFirstBytes) {
    const std::vector<uint8_t> bytes = noise(1500);
    Mask mask;
    std::mt19937 random(3);
    for (uint8_t& b : mask.bits) b = uint8_t(random() & random());
    for (size_t n = 0; n < 1400; ++n) {
        std::vector<uint8_t> masked(bytes.begin() + 5, bytes.begin() + 5 + std::ptrdiff_t(n));
        for (size_t i = 0; i < std::min(n, Mask::kLength); ++i) masked[i] |= mask.bits[i];
        const uint32_t expected = uint32_t(crc32(0, masked.data(), unsigned(n)));
        for (const Kernel* k : supported()) ASSERT_EQ(~k->crc(~0u, bytes.data() + 5, n, mask), expected) << k->name << " " << n;
    }
}

TEST(CrcKernel, ChainsAtAnySplit) {
    const std::vector<uint8_t> bytes = noise(1100);
    const uint32_t expected = uint32_t(crc32(0, bytes.data(), unsigned(bytes.size())));
    for (const Kernel* k : supported())
        for (size_t split = 0; split <= bytes.size(); ++split) {
            const uint32_t state = k->crc(~0u, bytes.data(), split, kNoMask);
            ASSERT_EQ(~k->crc(state, bytes.data() + split, bytes.size() - split, kNoMask), expected) << k->name << " " << split;
        }
}

/// A readable page lies between two pages that cannot be read. The message begins or ends exactly at a border of the readable
/// page.
TEST(CrcKernel, ReadsNothingBeyondTheMessage) {
    const auto page = size_t(sysconf(_SC_PAGESIZE));
    auto* all = static_cast<uint8_t*>(mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(all, MAP_FAILED);
    std::ranges::copy(noise(3 * page), all);
    ASSERT_EQ(mprotect(all, page, PROT_NONE) | mprotect(all + 2 * page, page, PROT_NONE), 0);
    const uint8_t *begin = all + page, *end = all + 2 * page;
    for (size_t n = 0; n <= page; n += n < 700 ? 1 : 41)
        for (const Kernel* k : supported()) {
            ASSERT_EQ(~k->crc(~0u, begin, n, kNoMask), uint32_t(crc32(0, begin, unsigned(n)))) << k->name << " " << n;
            ASSERT_EQ(~k->crc(~0u, end - n, n, kNoMask), uint32_t(crc32(0, end - n, unsigned(n)))) << k->name << " " << n;
        }
    munmap(all, 3 * page);
}

/// Checks messages on the heap, where the address sanitizer watches each byte.
TEST(CrcKernel, ReadsNothingBeyondAnAllocation) {
    for (size_t n = 0; n <= 640; ++n) {
        const auto exact = std::make_unique<uint8_t[]>(n);
        for (const Kernel* k : supported())
            ASSERT_EQ(~k->crc(~0u, exact.get(), n, kNoMask), uint32_t(crc32(0, exact.get(), unsigned(n)))) << k->name << " " << n;
    }
}

/// A kernel copies bytes behind the headers. For every length of the headers and every alignment of the copied bytes, the
/// kernel must return the CRC of the whole message. It must write no other byte.
TEST(CrcKernel, CopiesBehindTheHead) {
    constexpr size_t kMost = 4096, kGuard = 64;
    const std::vector<uint8_t> bytes = noise(kMost + kMostHead + 64);
    Mask mask;
    for (size_t i = 0; i < Mask::kLength; i += 5) mask.bits[i] = 0xff;
    std::vector<uint8_t> made(kMostHead + kMost + kGuard);
    for (uint32_t head = kLeastHead; head <= kMostHead; ++head)
        for (size_t n : {size_t{kCopyStep}, size_t{2} * kCopyStep, size_t{1024}, kMost}) {
            const uint8_t* from = bytes.data() + head % 64;
            std::vector<uint8_t> message(bytes.end() - head, bytes.end());
            message.insert(message.end(), from, from + n);
            std::vector<uint8_t> masked = message;
            for (size_t i = 0; i < std::min(masked.size(), Mask::kLength); ++i) masked[i] |= mask.bits[i];
            // The mask covers headers only, like the mask of a frame.
            Mask of_head = mask;
            for (size_t i = head; i < Mask::kLength; ++i) of_head.bits[i] = 0, masked[i] = message[i];
            const uint32_t expected = uint32_t(crc32(0, masked.data(), unsigned(masked.size())));
            for (const Kernel* k : supported()) {
                std::ranges::fill(made, uint8_t{0xee});
                std::copy_n(message.begin(), head, made.begin());
                ASSERT_EQ(~k->copying(~0u, made.data(), head, of_head, from, n), expected) << k->name << " " << head << " " << n;
                ASSERT_TRUE(std::equal(message.begin(), message.end(), made.begin())) << k->name << " " << head << " " << n;
                ASSERT_TRUE(
                    std::all_of(made.begin() + std::ptrdiff_t(head + n), made.end(), [](uint8_t b) { return b == 0xee; }));
            }
        }
}

// ---- the choice -------------------------------------------------------------------------------------------------------

bool always() { return true; }
bool never() { return false; }
uint32_t wrong_when_long(uint32_t state, const uint8_t* p, size_t n, const Mask& mask) {
    return kTable.crc(state, p, n, mask) ^ uint32_t(n > 4300);
}
uint32_t wrong_under_a_mask(uint32_t state, const uint8_t* p, size_t n, const Mask&) { return kTable.crc(state, p, n, kNoMask); }
uint32_t copies_one_byte_less(uint32_t state, uint8_t* head, uint32_t length, const Mask& mask, const uint8_t* from, size_t n) {
    const uint32_t crc = copying_by_table(state, head, length, mask, from, n);
    head[length + n - 1] = 0;
    return crc;
}
uint32_t not_to_be_run(uint32_t, const uint8_t*, size_t, const Mask&) { std::abort(); }

constexpr Kernel kFirst{"first", crc_by_table, copying_by_table, always},
    kSecond{"second", crc_by_table, copying_by_table, always}, kWrong{"wrong", wrong_when_long, copying_by_table, always},
    kHalfCopy{"half copy", crc_by_table, copies_one_byte_less, always},
    kMaskless{"maskless", wrong_under_a_mask, copying_by_table, always},
    kForeign{"foreign", not_to_be_run, copying_by_table, never};

uint64_t equal(const Kernel&) { return 1; }

TEST(CrcChoice, TakesTheFirstThatTheProcessorHas) {
    const Kernel* from[] = {&kForeign, &kFirst, &kTable};
    const Choice c = choose(from, "", equal);
    EXPECT_EQ(c.kernel, &kFirst);
    EXPECT_EQ(c.failed, nullptr);
    EXPECT_EQ(c.slow, nullptr);
    EXPECT_FALSE(c.unknown_name);
}

TEST(CrcChoice, TakesALaterOneOnlyIfItIsMuchFaster) {
    const Kernel* from[] = {&kForeign, &kFirst, &kSecond, &kTable};
    const auto a_little = [](const Kernel& k) { return uint64_t{&k == &kFirst ? 100u : &k == &kSecond ? 75u : 90u}; };
    EXPECT_EQ(choose(from, "", a_little).kernel, &kFirst);
    EXPECT_EQ(choose(from, "", a_little).slow, nullptr);
    const auto falling = [](const Kernel& k) { return uint64_t{&k == &kFirst ? 100u : &k == &kSecond ? 74u : 50u}; };
    EXPECT_EQ(choose(from, "", falling).kernel, &kTable);
    EXPECT_EQ(choose(from, "", falling).slow, &kFirst);
    EXPECT_EQ(choose(from, "first", falling).kernel, &kFirst) << "the user wants it";
}

TEST(CrcChoice, NeverTakesAFastOneThatIsWrong) {
    const Kernel* from[] = {&kFirst, &kWrong};
    EXPECT_EQ(choose(from, "", [](const Kernel& k) { return uint64_t{&k == &kFirst ? 100u : 1u}; }).kernel, &kFirst);
}

TEST(CrcChoice, TakesTheLeastOfSeveralTimes) {
    const Kernel* from[] = {&kFirst, &kTable};
    static int calls;
    calls = 0;
    const auto once_slow = [](const Kernel& k) { return uint64_t{&k == &kFirst && calls++ == 0 ? 1000u : 100u}; };
    EXPECT_EQ(choose(from, "", once_slow).kernel, &kFirst);
    EXPECT_GT(calls, 1);
}

TEST(CrcChoice, LeavesOutWhatFailsItsSelfTestAndSaysSo) {
    for (const Kernel* bad : {&kWrong, &kMaskless, &kHalfCopy}) {
        const Kernel* from[] = {bad, &kTable};
        const Choice c = choose(from, "", equal);
        EXPECT_EQ(c.kernel, &kTable);
        EXPECT_EQ(c.failed, bad);
    }
}

TEST(CrcChoice, TakesWhatIsWanted) {
    const Kernel* from[] = {&kFirst, &kTable};
    EXPECT_EQ(choose(from, "table").kernel, &kTable);
    EXPECT_FALSE(choose(from, "table").unknown_name);
}

TEST(CrcChoice, SaysIfTheWantedOneCannotRun) {
    const Kernel* from[] = {&kForeign, &kWrong, &kFirst, &kTable};
    for (const char* wanted : {"foreign", "wrong", "no such"}) {
        const Choice c = choose(from, wanted, equal);
        EXPECT_TRUE(c.unknown_name) << wanted;
        EXPECT_EQ(c.kernel, &kFirst) << wanted;
    }
}

TEST(CrcChoice, OfNothingThatWorksIsNothing) {
    const Kernel* from[] = {&kForeign, &kWrong};
    EXPECT_EQ(choose(from, "", equal).kernel, nullptr);
}

TEST(CrcChoice, EveryKernelOfThisProcessorPassesItsSelfTest) {
    for (const Kernel* k : supported()) EXPECT_TRUE(self_test(*k)) << k->name;
}

/// The whole suite runs once per kernel, which ROCI_CRC selects (meson.build).
TEST(CrcChoice, IsTheOneThatTheEnvironmentWants) {
    ASSERT_NE(chosen().kernel, nullptr);
    EXPECT_EQ(crc, chosen().kernel->crc);
    const char* wanted = std::getenv("ROCI_CRC");
    if (wanted == nullptr) return;
    for (const Kernel* k : supported())
        if (k->name == wanted) {
            EXPECT_EQ(chosen().kernel, k);
            return;
        }
    GTEST_SKIP() << "this processor cannot run " << wanted;
}

}  // namespace
}  // namespace roci::wire::crc
