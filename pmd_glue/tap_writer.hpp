// The thread that empties tap rings into sinks.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tap_sinks.hpp"

namespace roci::pmd {

class TapWriter {
public:
    /// Rings are kept, not owned; all must outlive the writer. `interface_of[i]`: the interface of ring i.
    TapWriter(std::vector<TapRing*> rings, std::vector<uint32_t> interface_of, std::vector<std::unique_ptr<TapSink>> sinks);
    /// finish(), and waits for it.
    ~TapWriter();

    /// Starts the end, without waiting: the thread writes what is left in the rings, then the totals, then closes the sinks.
    void finish() { stop_ = true; }
    /// True if the thread has ended: after finish(), or because every sink failed.
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
