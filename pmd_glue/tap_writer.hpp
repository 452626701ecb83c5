// The thread that empties tap rings into files: pcapng for Wireshark, or one line of text a frame.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tap_port.hpp"

namespace roci::pmd {

/// Where frames of the taps go. Called by the writer thread only.
class TapSink {
public:
    virtual ~TapSink() = default;
    virtual void frame(uint32_t interface, const TapRing::Slot& slot) = 0;
    virtual void flush() = 0;
    /// Before the file is closed: totals of one tap.
    virtual void totals(uint32_t interface, uint64_t captured, uint64_t missed) = 0;
};

/// Opens a pcapng file with one interface a name (pcapng specification, clauses 4.1 to 4.3). `to_realtime`: added to the taps'
/// time to give nanoseconds since 1970. nullptr: cannot be opened (reason in `why`).
std::unique_ptr<TapSink> open_pcapng(const std::string& path, const std::vector<std::string>& interfaces, int64_t to_realtime,
                                     std::string& why);
/// Opens a text file; `describe` gives the text of a frame.
using Describe = std::function<std::string(const uint8_t* frame, uint32_t length)>;
std::unique_ptr<TapSink> open_trace(const std::string& path, const std::vector<std::string>& interfaces, Describe describe,
                                    std::string& why);

class TapWriter {
public:
    /// Rings are kept, not owned; all must outlive the writer. `interface_of[i]`: the interface of ring i.
    TapWriter(std::vector<TapRing*> rings, std::vector<uint32_t> interface_of, std::vector<std::unique_ptr<TapSink>> sinks);
    /// Writes what is still in the rings, then the totals.
    ~TapWriter();

private:
    void run();
    bool drain();

    std::vector<TapRing*> rings_;
    std::vector<uint32_t> interface_of_;
    std::vector<std::unique_ptr<TapSink>> sinks_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace roci::pmd
