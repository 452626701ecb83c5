// The random generator of the simulator (SplitMix64). The same seed gives the same world.
#pragma once

#include <cstdint>

namespace roci::sim {

class Rng {
public:
    /// Mixes the seed to get the initial state. Otherwise a state could be a multiple of the step, and adjacent seeds
    /// would give the same sequence, shifted by one number.
    explicit Rng(uint64_t seed) : state_(mix(seed + 0x1234567)) {}
    uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }
    /// Returns a number from 0 to n - 1. Returns 0 if n is 0.
    uint64_t below(uint64_t n) { return n == 0 ? 0 : next() % n; }
    /// Returns a number from `low` to `high`, both included.
    uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    bool chance(double p) { return p > 0 && double(next() >> 11) * 0x1.0p-53 < p; }
    /// Returns one of the arguments.
    template <class T, class... Rest>
    T pick(T first, Rest... rest) {
        const T all[] = {first, T(rest)...};
        return all[below(1 + sizeof...(rest))];
    }
    /// Returns a separate generator. Numbers drawn from it do not shift the sequence of this generator.
    Rng fork() { return Rng(next()); }

private:
    static uint64_t mix(uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    uint64_t state_;
};

}  // namespace roci::sim
