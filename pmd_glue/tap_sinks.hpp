// Writers of tapped frames: a pcapng file for Wireshark, or one line of text per frame.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tap_port.hpp"

namespace roci::pmd {

/// Only one writer thread calls a sink.
class TapSink {
public:
    virtual ~TapSink() = default;
    virtual void frame(uint32_t interface, const TapRing::Slot& slot) = 0;
    /// Writes buffered data. Returns false if nothing more can be written.
    virtual bool flush() = 0;
    /// Writes the totals of one tap. Called before the file is closed.
    virtual void totals(uint32_t interface, uint64_t captured, uint64_t missed) = 0;
};

struct CloseFile {
    void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// Opens a pcapng file with one interface per name (pcapng specification, clauses 4.1 to 4.3). `to_realtime` is the offset from
/// the taps' time to nanoseconds since 1970. If the file cannot be opened, returns nullptr and sets `why` to the reason.
std::unique_ptr<TapSink> open_pcapng(const std::string& path, const std::vector<std::string>& interfaces, int64_t to_realtime,
                                     std::string& why);
/// Like open_pcapng(), for a stream that is open already.
std::unique_ptr<TapSink> pcapng_to(File file, const std::vector<std::string>& interfaces, int64_t to_realtime);
/// Opens a text file. `describe` returns the text of a frame.
using Describe = std::function<std::string(const uint8_t* frame, uint32_t length)>;
std::unique_ptr<TapSink> open_trace(const std::string& path, const std::vector<std::string>& interfaces, Describe describe,
                                    std::string& why);

}  // namespace roci::pmd
