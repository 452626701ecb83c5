// Compares every CRC kernel of the processor with a bitwise CRC-32. This program uses no library, so it also runs on emulated
// processors.
//   crc_check EXPECTED: the kernels that must be available, separated by commas. The first one must be the chosen one, or the one
//   that is slower than the chosen one.
#include <cstdio>
#include <cstring>
#include <string>

#include "wire/crc/kernel.hpp"

namespace {

using namespace roci::wire::crc;

constexpr size_t kLongest = 1300;
uint8_t bytes[kLongest + 64];

bool right(const Kernel& kernel) {
    for (size_t alignment = 0; alignment < 64; alignment += 7) {
        const uint8_t* p = bytes + alignment;
        uint32_t expected = 0x13579bdf;
        for (size_t n = 0; n <= kLongest; ++n) {
            if (kernel.crc(0x13579bdf, p, n, kNoMask) != expected) {
                std::printf("%s is wrong at %zu bytes, alignment %zu\n", kernel.name.data(), n, alignment);
                return false;
            }
            expected ^= p[n];
            for (int bit = 0; bit < 8; ++bit) expected = expected >> 1 ^ ((expected & 1) != 0 ? 0xedb88320 : 0);
        }
    }
    return self_test(kernel);
}

}  // namespace

int main(int argc, char** argv) {
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = uint8_t(i * i * 31 + i / 7);
    std::string names;
    bool good = true;
    for (const Kernel* k : kernels()) {
        if (!k->supported()) continue;
        names += (names.empty() ? "" : ",") + std::string(k->name);
        good = right(*k) && good;
    }
    const Kernel* preferred = chosen().slow != nullptr ? chosen().slow : chosen().kernel;
    good = good && preferred != nullptr && chosen().failed == nullptr && names.substr(0, names.find(',')) == preferred->name;
    std::printf("%s: %s\n", names.c_str(), good ? "right" : "WRONG");
    return good && argc == 2 && names == argv[1] ? 0 : 1;
}
