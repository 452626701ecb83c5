// One queue pair of a DPDK ethdev as an engine's port.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/port.hpp"
#include "sleeper.hpp"

struct rte_mempool;

namespace roci::pmd {

/// Frames of one engine: mbufs with room for the longest RoCE frame. Used by that engine's lcore only.
class MbufPool {
public:
    /// Throws StartError. `room`: bytes of a frame; 0: the longest.
    MbufPool(const std::string& name, uint32_t count, int socket, uint32_t room = 0);
    ~MbufPool();
    MbufPool(const MbufPool&) = delete;

    rte_mempool* get() const { return pool_; }
    /// Bytes that a frame may have.
    uint32_t room() const { return room_; }
    /// Frames that are out: with the engine, in a ring, or cached by the lcore.
    uint32_t in_use() const;
    /// Bytes that a pool of `count` takes, generously.
    static uint64_t bytes(uint32_t count, uint32_t room = 0);

private:
    const uint32_t room_;
    rte_mempool* pool_ = nullptr;
};

/// Which checksums of IPv4 headers are the port's business: those of frames that it receives, those of frames that it sends.
struct ChecksumOffload {
    bool received = false, sent = false;
    bool operator==(const ChecksumOffload&) const = default;
};

class DpdkPort final : public io::Port, public Waker {
public:
    static constexpr unsigned kMaxBurst = 256;

    /// A driver that accepts nothing for this long has no peer.
    static constexpr uint64_t kPatienceMs = 1000;

    /// `up`: state of the port's link, maintained by its watcher; nullptr: always up. Frames for a link that is down, and frames
    /// that the driver does not accept, are dropped as on any wire. If they were kept, their queue pairs would never reach their
    /// retry limits. `checksums`: the result of start_port().
    DpdkPort(uint16_t port, uint16_t queue, MbufPool& pool, const std::atomic<bool>* up = nullptr, ChecksumOffload checksums = {})
        : port_(port), queue_(queue), checks_headers_(checksums.received), pool_(pool), up_(up) {}

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override;
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override;
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override;

    /// Receive interrupts on and off, for a port that was started with them; see rx_interrupt().
    void before_sleep() override;
    void after_sleep(Slept how) override;
    /// True after an interrupt arrived, false again after kMisses lost ones without any between them: some drivers promise
    /// interrupts that never come (e1000's of an 82574).
    bool wakes() const override { return wakes_.load(std::memory_order_relaxed); }
    /// For Sleeper::watch().
    std::atomic<bool>& interrupted() { return interrupted_; }

    uint64_t lost_while_down() const { return lost_while_down_.load(std::memory_order_relaxed); }
    /// Frames that the driver would not take for kPatienceMs.
    uint64_t lost_not_taken() const { return lost_not_taken_.load(std::memory_order_relaxed); }
    /// Frames dropped because they are larger than any frame of ours.
    uint64_t too_large() const { return too_large_.load(std::memory_order_relaxed); }

private:
    static constexpr uint8_t kMisses = 4;

    unsigned not_taken(io::TxFrame* frames, unsigned count);
    void judge_sleep(bool frames);
    const uint16_t port_, queue_;
    const bool checks_headers_;
    MbufPool& pool_;
    const std::atomic<bool>* const up_;
    std::atomic<uint64_t> lost_while_down_{0}, lost_not_taken_{0}, too_large_{0};
    uint64_t blocked_since_ = 0;  ///< time stamp counter; 0: the driver takes frames
    Slept slept_ = Slept::not_at_all;
    uint8_t misses_ = 0;      ///< lost interrupts since the last one that arrived
    bool suspected_ = false;  ///< the last timed-out sleep left a frame without an interrupt
    std::atomic<bool> interrupted_{false}, wakes_{false};
};

/// Descriptor that becomes readable when queue `queue` of a started port has frames and DpdkPort::before_sleep() was called; -1:
/// the port has no interrupts.
int rx_interrupt(uint16_t port, uint16_t queue);

struct PortSetup {
    uint16_t queues = 1;
    uint16_t descriptors = 1024;          ///< a queue; the driver may take another number
    bool interrupts = false;              ///< request receive interrupts, if the port has them
    std::span<const uint32_t> mtus = {};  ///< IP packet sizes, the best first; empty: the port's MTU is left alone
    std::string hint = {};                ///< appended to an error: what the port needs
    bool checksums = false;               ///< use all offloads of ChecksumOffload that the port supports
    bool link_interrupts = true;          ///< use the driver's last known link state; else query the link each time
};
struct Started {
    uint32_t mtu = 0;  ///< the one that was set; 0: none
    ChecksumOffload can, does;
};
/// Configures the queue pairs of an ethdev, queue i with pools[i], and starts it. Throws StartError.
Started start_port(uint16_t port, MbufPool* const* pools, const PortSetup& setup);
void stop_port(uint16_t port);

}  // namespace roci::pmd
