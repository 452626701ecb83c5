#include "captures.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pmd_glue/clock.hpp"
#include "pmd_glue/live_stream.hpp"

namespace roci::rocid {
namespace {

constexpr size_t kMaxCaptures = pmd::TapPort::kMaxRings - 1;  // one ring is for the configured capture
constexpr int kPipeBytes = 1 << 20;                           // the kernel's default limit for unprivileged users

/// Creates the pipe of a capture. Returns 0, or a positive errno with `why` set.
int make_pipe(int (&ends)[2], std::string& why) {
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        const int error = errno;
        why = std::string("no pipe for a capture: ") + std::strerror(error);
        return error;
    }
    fcntl(ends[0], F_SETFL, 0);  // the client's end is blocking
    fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
    return 0;
}

}  // namespace

Captures::Captures(std::vector<TapPoint> taps, std::vector<std::string> devices, engine::CommandPort& engines)
    : taps_(std::move(taps)), devices_(std::move(devices)), engines_(engines) {}

Captures::~Captures() {
    for (Capture& c : captures_) end(c);
}

void Captures::fence() { engines_.fence_all(); }

void Captures::attach(Capture& capture, const host::CaptureSpec& spec) {
    for (const TapPoint& point : taps_) {
        if (spec.device != abi::kNoHandle && spec.device != point.device) continue;
        capture.rings.push_back(
            std::make_unique<pmd::TapRing>(devices_[point.device], point.engine, pmd::TapFilter{spec.qpn}, spec.snap_length));
        capture.taps.push_back(point.tap);
        point.tap->attach(*capture.rings.back());  // never fails: a tap can have more than kMaxCaptures rings
    }
}

int Captures::start(uint32_t session, const host::CaptureSpec& spec, std::string& why) {
    captures_.remove_if([](const Capture& c) { return c.ended && c.writer->finished(); });
    // An ended capture counts towards the limit until its writer thread has finished, because its rings and its thread exist
    // until then.
    if (captures_.size() >= kMaxCaptures) {
        why = "the limit of captures is reached; end one";
        return -EBUSY;
    }
    int ends[2];
    if (const int error = make_pipe(ends, why); error != 0) return -error;
    const auto ending = std::make_shared<std::atomic<bool>>(false);
    pmd::File stream = pmd::open_live_stream(ends[1], ending);
    if (stream == nullptr) {
        close(ends[0]);
        close(ends[1]);
        why = "no memory for a capture";
        return -ENOMEM;
    }
    Capture& c = captures_.emplace_back();
    c.session = session;
    c.ending = ending;
    attach(c, spec);
    std::vector<pmd::TapRing*> rings;
    std::vector<uint32_t> interface_of;
    for (const auto& ring : c.rings) {
        rings.push_back(ring.get());
        const auto name = std::find(devices_.begin(), devices_.end(), ring->interface_name());
        interface_of.push_back(uint32_t(name - devices_.begin()));
    }
    std::vector<std::unique_ptr<pmd::TapSink>> sinks;
    sinks.push_back(pmd::pcapng_to(std::move(stream), devices_, pmd::Clock::to_realtime()));
    c.writer = std::make_unique<pmd::TapWriter>(std::move(rings), std::move(interface_of), std::move(sinks));
    return ends[0];
}

void Captures::end(Capture& c) {
    if (c.ended) return;
    for (size_t i = 0; i < c.rings.size(); ++i) c.taps[i]->detach(*c.rings[i]);
    fence();
    *c.ending = true;
    c.writer->finish();
    c.ended = true;
}

host::CaptureCounts Captures::stop(uint32_t session) {
    host::CaptureCounts counts;
    for (Capture& c : captures_) {
        if (c.session != session || c.ended) continue;
        end(c);
        for (const auto& ring : c.rings) {
            counts.captured += ring->captured();
            counts.missed += ring->missed();
        }
    }
    return counts;
}

}  // namespace roci::rocid
