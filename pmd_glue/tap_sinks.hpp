// Sinks write captured frames, either as a pcapng file for Wireshark or as one line of text per frame.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tap_port.hpp"

namespace roci::pmd {

/// The interface of a sink. Only one writer thread calls a sink.
class TapSink {
public:
    virtual ~TapSink() = default;
    virtual void frame(uint32_t interface, const TapRing::Slot& slot) = 0;
    /// Writes buffered data. Returns false if the file has an error, so that further writes would fail.
    virtual bool flush() = 0;
    /// Writes the numbers of captured and missed frames of one ring. Called before the file is closed.
    virtual void totals(uint32_t interface, uint64_t captured, uint64_t missed) = 0;
};

struct CloseFile {
    void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// Opens a pcapng file with one interface per name (pcapng specification, clauses 4.1 to 4.3). `to_realtime` is the difference
/// between nanoseconds since 1970 and the time in the slots. If the file cannot be opened, returns nullptr and sets `why` to the
/// reason.
std::unique_ptr<TapSink> open_pcapng(const std::string& path, const std::vector<std::string>& interfaces, int64_t to_realtime,
                                     std::string& why);
/// Like open_pcapng(), but writes to a stream that is open already.
std::unique_ptr<TapSink> pcapng_to(File file, const std::vector<std::string>& interfaces, int64_t to_realtime);
/// Opens a text file. `describe` returns the text of a frame.
using Describe = std::function<std::string(const uint8_t* frame, uint32_t length)>;
std::unique_ptr<TapSink> open_trace(const std::string& path, const std::vector<std::string>& interfaces, Describe describe,
                                    std::string& why);

}  // namespace roci::pmd
