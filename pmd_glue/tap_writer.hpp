// The thread that writes frames from tap rings to sinks.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tap_sinks.hpp"

namespace roci::pmd {

class TapWriter {
public:
    /// Starts the thread. The rings must exist until the writer is destroyed. `interface_of[i]` is the index of the interface of
    /// ring i.
    TapWriter(std::vector<TapRing*> rings, std::vector<uint32_t> interface_of, std::vector<std::unique_ptr<TapSink>> sinks);
    /// Calls finish() and waits for the end of the thread.
    ~TapWriter();

    /// Requests the end of the thread and returns at once. The thread writes the remaining frames and the totals, and then closes
    /// the sinks.
    void finish() { stop_ = true; }
    /// Returns true if the thread has ended, either because of finish() or because all sinks failed.
    bool finished() const { return finished_; }

private:
    void run();
    bool drain();
    bool flush();

    std::vector<TapRing*> rings_;
    std::vector<uint32_t> interface_of_;
    std::vector<std::unique_ptr<TapSink>> sinks_;
    std::atomic<bool> stop_{false}, finished_{false};
    std::thread thread_;
};

}  // namespace roci::pmd
