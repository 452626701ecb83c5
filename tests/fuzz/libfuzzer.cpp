// The entry points of libFuzzer (clang, -Dlibfuzzer=true). The environment variable ROCI_FUZZ_TARGET names the target.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mutator.hpp"

// Defined by libFuzzer.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace roci::fuzz {
namespace {

const Target& target() {
    static const Target& chosen = [&]() -> const Target& {
        const char* name = std::getenv("ROCI_FUZZ_TARGET");
        const Target* t = find_target(name != nullptr ? name : "");
        if (t == nullptr) {
            std::fprintf(stderr, "set ROCI_FUZZ_TARGET to the name of a target\n");
            std::exit(2);
        }
        return *t;
    }();
    return chosen;
}

const Mutator& mutator() {
    static const Mutator chosen(target(), target().seeds());
    return chosen;
}

}  // namespace
}  // namespace roci::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static roci::fuzz::Reach reach;
    roci::fuzz::target().run({data, size}, reach);
    return 0;
}

/// Half of the mutations are those of libFuzzer. The others keep the form of the target's inputs.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
    roci::fuzz::Rng rng(seed);
    roci::fuzz::Bytes input(data, data + size);
    if (rng.chance(0.5)) {
        input.resize(max_size);
        input.resize(LLVMFuzzerMutate(input.data(), size, max_size));
    } else {
        roci::fuzz::mutator().mutate(input, rng);
    }
    if (roci::fuzz::target().repair != nullptr) roci::fuzz::target().repair(input, rng);
    const size_t length = std::min(input.size(), max_size);
    std::memcpy(data, input.data(), length);
    return length;
}
