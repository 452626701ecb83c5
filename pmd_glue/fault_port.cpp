#include "fault_port.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/bytes.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

constexpr uint32_t kMaxBurst = 256;
constexpr uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd, kEtherVlan = 0x8100;
constexpr uint8_t kEcnMask = 3;

uint64_t splitmix(uint64_t& x) {
    uint64_t z = (x += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

std::array<uint64_t, 2> seed_state(uint64_t seed) { return {splitmix(seed), splitmix(seed)}; }

/// Returns the IPv4 checksum after one 16-bit word has changed (RFC 1624, equation 3).
uint16_t patched_checksum(uint16_t checksum, uint16_t before, uint16_t after) {
    uint32_t sum = uint32_t(uint16_t(~checksum)) + uint16_t(~before) + after;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return uint16_t(~sum);
}

/// Adds to a counter that only this thread writes and any thread may read.
void bump(uint64_t& v, uint64_t n = 1) {
    std::atomic_ref a(v);
    a.store(a.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

/// Sets the ECN field to binary 11. Returns false if the frame is too short for the headers or not IP, or if the sender is not
/// ECN-capable (binary 00).
bool set_congestion_experienced(uint8_t* frame, uint32_t length) {
    uint32_t l3 = wire::kEthLength;
    if (length < l3 + wire::kVlanLength + wire::kIpv4Length) return false;
    uint16_t type = load_be<uint16_t>(frame + 12);
    if (type == kEtherVlan) {
        type = load_be<uint16_t>(frame + 16);
        l3 += wire::kVlanLength;
    }
    uint8_t* ip = frame + l3;
    const uint16_t before = load_be<uint16_t>(ip);
    if (type == kEtherIpv4) {
        if ((before & kEcnMask) == 0) return false;
        store_be<uint16_t>(ip, uint16_t(before | kEcnMask));
        store_be<uint16_t>(ip + 10, patched_checksum(load_be<uint16_t>(ip + 10), before, uint16_t(before | kEcnMask)));
        return true;
    }
    // IPv6 begins with 4 bits of version and 8 bits of traffic class, so ECN is in bits 5 and 4 of the first 16-bit word.
    if (type != kEtherIpv6 || (before & (kEcnMask << 4)) == 0) return false;
    store_be<uint16_t>(ip, uint16_t(before | kEcnMask << 4));
    return true;
}

}  // namespace

FaultPort::FaultPort(io::Port& inner, const FaultSpec& spec, const TimeSource& clock)
    : inner_(inner), spec_(spec), clock_(clock), state_(seed_state(spec.seed)) {
    held_.reserve(kMaxHeld);
    out_.reserve(2 * (kMaxHeld + kMaxBurst));
    const double probabilities[kFaults] = {spec.drop, spec.ecn, spec.duplicate, spec.corrupt, spec.reorder};
    for (uint8_t f = 0; f < kFaults; ++f) {
        scales_[f] = 1 / std::log1p(-probabilities[f]);
        gaps_[f] = probabilities[f] > 0 ? draw_gap(Fault(f)) : UINT64_MAX;
    }
}

FaultPort::~FaultPort() {
    for (Held& h : held_) inner_.tx_free(&h.frame, 1);
    inner_.tx_free(out_.data(), unsigned(out_.size()));
}

uint64_t FaultPort::random() {  // xoroshiro128+
    const uint64_t a = state_[0];
    uint64_t b = state_[1];
    const uint64_t result = a + b;
    b ^= a;
    state_[0] = (a << 24 | a >> 40) ^ b ^ (b << 16);
    state_[1] = b << 37 | b >> 27;
    return result;
}

/// Returns a random number in [0, 1).
double FaultPort::fraction() { return double(random() >> 11) * 0x1p-53; }

/// Draws the number of frames before the next frame that has the fault. If each frame has the fault with the same probability,
/// this number has a geometric distribution. One random number per fault, not per frame, keeps the port cheap.
uint64_t FaultPort::draw_gap(Fault fault) {
    constexpr double kMost = 0x1p62;
    return uint64_t(std::min(std::log1p(-fraction()) * scales_[fault], kMost));
}

/// Returns true if the next frame has the fault.
bool FaultPort::hits(Fault fault) {
    if (gaps_[fault] != 0) [[likely]] {
        --gaps_[fault];
        return false;
    }
    gaps_[fault] = draw_gap(fault);
    return true;
}

unsigned FaultPort::rx_burst(io::RxFrame* frames, unsigned max) {
    if (!held_.empty()) release_due(clock_.now());
    if (!out_.empty()) flush();
    return inner_.rx_burst(frames, max);
}

unsigned FaultPort::tx_burst(io::TxFrame* frames, unsigned count) {
    const Nanos now = clock_.now();
    release_due(now);
    flush();
    unsigned taken = 0;
    // If the inner port is full, or if too many frames are held back, the caller keeps the remaining frames, to which no faults
    // were applied.
    while (taken < count && out_.size() < kMaxBurst && held_.size() < kMaxHeld - 1) {
        const auto clean = unsigned(std::min<uint64_t>(*std::min_element(gaps_.begin(), gaps_.end()), count - taken));
        if (clean == 0 || spec_.delay > 0 || !held_.empty() || !out_.empty()) {
            offer(frames[taken++], now);
            continue;
        }
        const unsigned sent = forward(frames + taken, clean);
        taken += sent;
        if (sent < clean) break;
    }
    flush();
    return taken;
}

/// Sends frames that have no fault. Returns the number of frames that the inner port has accepted.
unsigned FaultPort::forward(io::TxFrame* frames, unsigned count) {
    const unsigned sent = inner_.tx_burst(frames, count);
    for (uint64_t& gap : gaps_) gap -= sent;
    passed_ += sent;
    bump(counts_.offered, sent);
    bump(counts_.sent, sent);
    return sent;
}

void FaultPort::offer(io::TxFrame f, Nanos now) {
    bump(counts_.offered);
    if (hits(kDrop)) {
        bump(counts_.dropped);
        inner_.tx_free(&f, 1);
        return;
    }
    if (hits(kEcn)) mark(f);
    if (hits(kDuplicate)) duplicate(f, now);
    if (hits(kCorrupt)) corrupt(f);
    if (spec_.delay == 0 && !hits(kReorder)) return pass(f, now);
    if (spec_.delay > 0) {
        bump(counts_.delayed);
        held_.push_back({f, now + spec_.delay + (hits(kReorder) ? (bump(counts_.reordered), kReorderTimeout) : 0), kNever});
        return;
    }
    bump(counts_.reordered);
    held_.push_back({f, now + kReorderTimeout, passed_ + 1 + random() % kReorderDepth});
}

void FaultPort::corrupt(io::TxFrame& f) {
    if (f.length <= wire::kEthLength) return;
    bump(counts_.corrupted);
    complete(f);  // otherwise the port would later compute the checksum over the flipped bit
    const uint32_t ip = f.data[wire::kEthLength] >> 4 == 4 ? wire::kIpv4Length : wire::kIpv6Length;
    const uint32_t from = wire::kEthLength + (spec_.only_payload ? ip + wire::kUdpLength : 0);
    if (f.length <= from) return;
    const uint64_t bit = random() % ((f.length - from) * 8);
    f.data[from + bit / 8] ^= uint8_t(1u << (bit % 8));
}

void FaultPort::duplicate(const io::TxFrame& f, Nanos now) {
    io::TxFrame copy;
    if (inner_.tx_alloc(&copy, 1) != 1) {
        bump(counts_.duplicate_failed);
        return;
    }
    if (copy.capacity < f.length) {
        bump(counts_.duplicate_failed);
        return inner_.tx_free(&copy, 1);
    }
    std::memcpy(copy.data, f.data, f.length);
    copy.length = f.length;
    copy.left = f.left;
    copy.sender = f.sender;
    bump(counts_.duplicated);
    if (spec_.delay == 0) return pass(copy, now);
    held_.push_back({copy, now + spec_.delay, kNever});
}

void FaultPort::mark(io::TxFrame& f) {
    complete(f);
    if (set_congestion_experienced(f.data, f.length)) bump(counts_.marked);
}

void FaultPort::pass(io::TxFrame f, Nanos now) {
    out_.push_back(f);
    ++passed_;
    release_due(now);
}

void FaultPort::release_due(Nanos now) {
    if (held_.empty()) return;
    const auto is_due = [&](const Held& h) { return h.due <= now || h.after <= passed_; };
    for (const Held& h : held_)
        if (is_due(h)) out_.push_back(h.frame);
    std::erase_if(held_, is_due);
}

void FaultPort::flush() {
    if (out_.empty()) return;
    unsigned sent = 0;
    while (sent < out_.size()) {
        const unsigned burst = std::min<unsigned>(kMaxBurst, unsigned(out_.size()) - sent);
        const unsigned n = inner_.tx_burst(out_.data() + sent, burst);
        sent += n;
        if (n < burst) break;
    }
    bump(counts_.sent, sent);
    out_.erase(out_.begin(), out_.begin() + sent);
}

FaultCounts FaultPort::counts() const {
    FaultCounts copy;
    for (uint64_t FaultCounts::*const field : kFaultFields)
        copy.*field = std::atomic_ref(const_cast<uint64_t&>(counts_.*field)).load(std::memory_order_relaxed);
    return copy;
}

uint64_t FaultPort::next_event() const {
    if (!out_.empty()) return 0;
    uint64_t next = inner_.next_event();
    for (const Held& h : held_) next = std::min(next, h.due);
    return next;
}

}  // namespace roci::pmd
