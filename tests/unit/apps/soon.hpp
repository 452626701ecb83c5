// Waits for an effect of another thread.
#pragma once

#include <chrono>
#include <thread>

namespace roci::rocid {

/// Waits until the condition is true. Returns false if it is not true within ten seconds.
template <class Condition>
bool soon(Condition c) {
    for (int i = 0; i < 10'000; ++i) {
        if (c()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

}  // namespace roci::rocid
