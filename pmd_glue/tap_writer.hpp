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

    /// Asks for the end: what is still in the rings is written, then the totals, then the sinks are closed. Does not wait.
    void finish() { stop_ = true; }
    /// The thread has nothing more to do: it was asked to finish, or no sink takes anything any more.
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
