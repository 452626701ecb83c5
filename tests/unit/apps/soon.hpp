// A helper for tests that wait for an effect of another thread.
#pragma once

#include <chrono>
#include <thread>

namespace roci::rocid {

/// Waits until the condition is true. Returns false if the condition is still false after ten seconds.
template <class Condition>
bool soon(Condition c) {
    for (int i = 0; i < 10'000; ++i) {
        if (c()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

}  // namespace roci::rocid
