// One engine's port on a DPDK ethdev. The port uses one receive queue and one transmit queue of the ethdev.
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

/// The frame buffers (mbufs) of one engine. Only that engine's lcore uses the pool.
class MbufPool {
public:
    /// `room` is the frame size in bytes; 0 selects the longest RoCE frame. Throws StartError.
    MbufPool(const std::string& name, uint32_t count, int socket, uint32_t room = 0);
    ~MbufPool();
    MbufPool(const MbufPool&) = delete;

    rte_mempool* get() const { return pool_; }
    /// Returns the number of frames of the pool.
    uint32_t frames() const { return frames_; }
    /// Returns the largest frame size in bytes.
    uint32_t room() const { return room_; }
    /// Returns the number of mbufs that are in use: the engine holds them, or a ring contains them. Mbufs in the lcore's mempool
    /// cache are free.
    uint32_t in_use() const;
    /// Returns an upper bound in bytes of the memory for a pool of `count` mbufs.
    static uint64_t bytes(uint32_t count, uint32_t room = 0);

private:
    const uint32_t frames_, room_;
    rte_mempool* pool_ = nullptr;
};

/// The checksums that the engine does not compute or check. `received`: the port checks the IPv4 header checksum of received
/// frames. `sent`: the port computes the IPv4 header checksum of sent frames. `no_icrc`: the frames contain no ICRC, because they
/// never leave the memory of this process.
struct ChecksumOffload {
    bool received = false, sent = false, no_icrc = false;
    bool operator==(const ChecksumOffload&) const = default;
};

class DpdkPort final : public io::Port, public Waker {
public:
    static constexpr unsigned kMaxBurst = 256;

    /// Time in ms. If the driver accepts no frame for this time, the port assumes that the driver has no peer and drops frames.
    static constexpr uint64_t kPatienceMs = 1000;

    /// `up` is the state of the port's link, which another thread updates. nullptr means that the link is always up. The port
    /// drops frames while the link is down, and frames that the driver does not accept for kPatienceMs. If the port kept such
    /// frames, the senders' queue pairs would never reach their retry limits. `checksums` is Started::does of start_port().
    /// The engine may keep `lends` received frames.
    DpdkPort(uint16_t port, uint16_t queue, MbufPool& pool, const std::atomic<bool>* up = nullptr, ChecksumOffload checksums = {},
             uint32_t lends = 0)
        : port_(port),
          queue_(queue),
          checks_headers_(checksums.received),
          icrc_(checksums.no_icrc ? wire::HeaderChecksum::absent : wire::HeaderChecksum::unknown),
          lends_(lends),
          pool_(pool),
          up_(up) {}

    unsigned rx_burst(io::RxFrame* frames, unsigned max) override;
    void rx_free(io::RxFrame* frames, unsigned count) override;
    unsigned tx_alloc(io::TxFrame* frames, unsigned count) override;
    unsigned tx_burst(io::TxFrame* frames, unsigned count) override;
    void tx_free(io::TxFrame* frames, unsigned count) override;

    uint32_t lends() const override { return lends_; }

    /// Enables receive interrupts. The port must have been started with PortSetup::interrupts; see rx_interrupt().
    void before_sleep() override;
    void after_sleep(Slept how) override;
    /// Returns false until an interrupt has arrived, and again after kMisses successive interrupts were lost. Some drivers report
    /// support of interrupts, but no interrupt arrives (for example e1000 with an 82574).
    bool wakes() const override { return wakes_.load(std::memory_order_relaxed); }
    /// Returns the flag that Sleeper::watch() needs as `heard`.
    std::atomic<bool>& interrupted() { return interrupted_; }

    uint64_t lost_while_down() const { return lost_while_down_.load(std::memory_order_relaxed); }
    /// Returns the number of frames dropped because the driver did not accept them for kPatienceMs.
    uint64_t lost_not_taken() const { return lost_not_taken_.load(std::memory_order_relaxed); }
    /// Returns the number of frames dropped because they are longer than the longest RoCE frame.
    uint64_t too_large() const { return too_large_.load(std::memory_order_relaxed); }

private:
    static constexpr uint8_t kMisses = 4;

    unsigned not_taken(io::TxFrame* frames, unsigned count);
    void judge_sleep(bool frames);
    const uint16_t port_, queue_;
    const bool checks_headers_;
    const wire::HeaderChecksum icrc_;
    const uint32_t lends_;
    MbufPool& pool_;
    const std::atomic<bool>* const up_;
    std::atomic<uint64_t> lost_while_down_{0}, lost_not_taken_{0}, too_large_{0};
    uint64_t blocked_since_ = 0;  ///< TSC when the driver began to refuse frames; 0: the driver accepts frames
    Slept slept_ = Slept::not_at_all;
    uint8_t misses_ = 0;      ///< number of lost interrupts since the last interrupt
    bool suspected_ = false;  ///< the last sleep timed out although a frame had arrived, so an interrupt may be lost
    std::atomic<bool> interrupted_{false}, wakes_{false};
};

/// Returns the descriptor of the receive interrupt of a queue of a started port. After DpdkPort::before_sleep(), the descriptor
/// becomes readable when the queue has frames. Returns -1 if the port has no interrupts.
int rx_interrupt(uint16_t port, uint16_t queue);

struct PortSetup {
    uint16_t queues = 1;
    uint16_t descriptors = 1024;          ///< per queue; the driver may choose another number
    bool interrupts = false;              ///< request receive interrupts if the port supports interrupts
    std::span<const uint32_t> mtus = {};  ///< candidates for the MTU, the best one first; empty: keep the port's MTU
    std::string hint = {};                ///< requirements of the port, appended to error texts
    bool checksums = false;               ///< use all offloads of ChecksumOffload that the port supports
    bool link_interrupts = true;          ///< request link interrupts if the port supports them; false: link_up() queries the NIC
};
struct Started {
    uint32_t mtu = 0;  ///< the MTU that start_port() has set; 0: the MTU was not set
    ChecksumOffload can, does;
};
/// Configures and starts an ethdev. Queue i gets its mbufs from pools[i]. Throws StartError.
Started start_port(uint16_t port, MbufPool* const* pools, const PortSetup& setup);
void stop_port(uint16_t port);

}  // namespace roci::pmd
