// Limits the bytes and packets per second that the QPs of a user send, on all engines together. Engines charge each turn (one
// call of a QP's requester or responder) to the user. A user who has sent more than permitted gets no turn until the same packets
// could have been sent at the permitted rate. Only users with such a limit have a UserRate.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/types.hpp"

namespace roci::qp {

/// Engines call charge(). Any thread may call the other functions.
class UserRate {
public:
    /// The limits are per second; 0: no limit.
    UserRate(uint64_t bytes, uint64_t packets) : bytes_{bytes}, packets_{packets} {}

    /// Counts what a turn has sent. Returns the time before which the user must not send. If this time is not after `now`, the
    /// user may continue to send.
    Nanos charge(Nanos now, uint64_t packets, uint64_t bytes) {
        bytes_.charge(now, bytes);
        packets_.charge(now, packets);
        return due();
    }
    /// Returns the time before which the user must not send.
    Nanos due() const { return std::max(bytes_.due(), packets_.due()); }
    /// Returns true if the user's allowance for a burst is full, as for a new user. The object may then be deleted, because
    /// only its measurements are lost.
    bool idle(Nanos now) const { return due() + kBurst <= now; }
    void count_wait() { waits_.fetch_add(1, std::memory_order_relaxed); }
    /// Returns how often an engine has parked the user because a limit was exceeded.
    uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }
    /// Return what the user has sent per second, measured over about a second. Return 0 if the user has no such limit, or if
    /// there was no measurement within the last two seconds.
    uint64_t bytes_per_second(Nanos now) const { return bytes_.per_second(now); }
    uint64_t packets_per_second(Nanos now) const { return packets_.per_second(now); }

private:
    /// kBurst limits a burst: a user may send at once what the limit permits in this time, ns.
    static constexpr Nanos kBurst = 1'000'000, kSecond = 1'000'000'000;
    /// Times are in sixteenths of a nanosecond, because a short packet takes few nanoseconds at a high rate.
    static constexpr unsigned kShift = 4;

    struct Bucket {
        const uint64_t limit;
        std::atomic<uint64_t> paid_until{0};  ///< sixteenths of a nanosecond
        std::atomic<uint64_t> sent{0}, measured{0};
        std::atomic<Nanos> measured_at{0};

        void charge(Nanos now, uint64_t amount) {
            if (limit == 0) return;
            const uint64_t cost = (amount * (kSecond << kShift) + limit - 1) / limit;
            const uint64_t least = (now - std::min(now, kBurst)) << kShift;
            uint64_t old = paid_until.load(std::memory_order_relaxed);
            while (!paid_until.compare_exchange_weak(old, std::max(old, least) + cost, std::memory_order_relaxed)) {
            }
            measure(now, amount);
        }
        void measure(Nanos now, uint64_t amount) {
            sent.fetch_add(amount, std::memory_order_relaxed);
            Nanos from = measured_at.load(std::memory_order_relaxed);
            if (now < from + kSecond || !measured_at.compare_exchange_strong(from, now, std::memory_order_relaxed)) return;
            const uint64_t all = sent.exchange(0, std::memory_order_relaxed);
            measured.store(uint64_t(double(all) * double(kSecond) / double(now - from)), std::memory_order_relaxed);
        }
        Nanos due() const {
            const uint64_t until = paid_until.load(std::memory_order_relaxed);
            return (until >> kShift) + ((until & ((1u << kShift) - 1)) != 0 ? 1 : 0);
        }
        uint64_t per_second(Nanos now) const {
            const Nanos at = measured_at.load(std::memory_order_relaxed);
            return now < at + 2 * kSecond ? measured.load(std::memory_order_relaxed) : 0;
        }
    };
    Bucket bytes_, packets_;
    std::atomic<uint64_t> waits_{0};
};

}  // namespace roci::qp
