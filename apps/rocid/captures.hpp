// Live captures (`roci pcap`): rings at the taps of the ports, and a writer a capture that sends pcapng down a pipe to the
// client.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/command.hpp"
#include "host/conductor.hpp"
#include "pmd_glue/tap_writer.hpp"

namespace roci::rocid {

/// A tap and what it belongs to.
struct TapPoint {
    pmd::TapPort* tap;
    uint32_t device, engine;
};

class Captures {
public:
    /// `engines` executes fences: after one no lcore looks at a ring that was taken off its tap.
    Captures(std::vector<TapPoint> taps, std::vector<std::string> devices, engine::CommandPort& engines);
    /// Ends all that still run; waits some seconds at most for readers.
    ~Captures();

    int start(uint32_t session, const host::CaptureSpec& spec, std::string& why);
    host::CaptureCounts stop(uint32_t session);

private:
    struct Capture {
        uint32_t session;
        bool ended = false;
        std::vector<std::unique_ptr<pmd::TapRing>> rings;
        std::vector<pmd::TapPort*> taps;  ///< by ring
        std::shared_ptr<std::atomic<bool>> ending;
        std::unique_ptr<pmd::TapWriter> writer;  ///< last: it reads the rings until it is gone
    };
    void attach(Capture& capture, const host::CaptureSpec& spec);
    void end(Capture& capture);
    void fence();

    const std::vector<TapPoint> taps_;
    const std::vector<std::string> devices_;
    engine::CommandPort& engines_;
    std::list<Capture> captures_;  ///< those that ended stay until their writer has finished
};

}  // namespace roci::rocid
