// Live captures (`roci pcap`). A tap is a wrapper of a port that copies frames. Each capture has a ring per tap, and a writer
// thread that writes the frames as pcapng to a pipe. The client reads the pipe.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/command_port.hpp"
#include "host/conductor.hpp"
#include "pmd_glue/tap_writer.hpp"

namespace roci::rocid {

/// A tap with its device and engine.
struct TapPoint {
    pmd::TapPort* tap;
    uint32_t device, engine;
};

class Captures {
public:
    /// `engines` executes fences. After a fence no lcore accesses a ring that was removed from a tap.
    Captures(std::vector<TapPoint> taps, std::vector<std::string> devices, engine::CommandPort& engines);
    /// Ends all running captures. Waits at most some seconds for the readers of the pipes.
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
        std::unique_ptr<pmd::TapWriter> writer;  ///< last member, because the writer reads the rings until its end
    };
    void attach(Capture& capture, const host::CaptureSpec& spec);
    void end(Capture& capture);
    void fence();

    const std::vector<TapPoint> taps_;
    const std::vector<std::string> devices_;
    engine::CommandPort& engines_;
    std::list<Capture> captures_;  ///< ended captures remain until their writer has finished
};

}  // namespace roci::rocid
