#include "tap_writer.hpp"

#include <algorithm>
#include <chrono>

namespace roci::pmd {

TapWriter::TapWriter(std::vector<TapRing*> rings, std::vector<uint32_t> interface_of, std::vector<std::unique_ptr<TapSink>> sinks)
    : rings_(std::move(rings)), interface_of_(std::move(interface_of)), sinks_(std::move(sinks)), thread_([this] { run(); }) {}

TapWriter::~TapWriter() {
    finish();
    thread_.join();
}

bool TapWriter::drain() {
    bool any = false;
    for (size_t i = 0; i < rings_.size(); ++i)
        for (uint32_t n = 0; n < TapRing::kWholeFrames; ++n) {
            const TapRing::Slot* s = rings_[i]->peek();
            if (s == nullptr) break;
            any = true;
            for (auto& sink : sinks_) sink->frame(interface_of_[i], *s);
            rings_[i]->pop();
        }
    return any;
}

/// Flushes the sinks, and removes the sinks whose flush fails. Returns false if no sink is left.
bool TapWriter::flush() {
    std::erase_if(sinks_, [](auto& s) { return !s->flush(); });
    return !sinks_.empty();
}

void TapWriter::run() {
    constexpr auto kPause = std::chrono::milliseconds(1);  // at a million frames per second, a ring is not full after this time
    for (bool last = false; !last;) {
        last = stop_.load();  // read before drain(), so that the last pass writes every frame
        const bool any = drain();
        if (any && !flush()) break;
        if (any)
            last = false;
        else if (!last)
            std::this_thread::sleep_for(kPause);
    }
    for (size_t i = 0; i < rings_.size(); ++i)
        for (auto& s : sinks_) s->totals(interface_of_[i], rings_[i]->captured(), rings_[i]->missed());
    sinks_.clear();
    finished_ = true;
}

}  // namespace roci::pmd
