// Waits for what another thread does.
#pragma once

#include <chrono>
#include <thread>

namespace roci::rocid {

/// False: it did not become true within ten seconds.
template <class Condition>
bool soon(Condition c) {
    for (int i = 0; i < 10'000; ++i) {
        if (c()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

}  // namespace roci::rocid
