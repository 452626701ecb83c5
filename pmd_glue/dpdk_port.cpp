#include "dpdk_port.hpp"

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "eal.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

constexpr uint32_t kCache = 512;
constexpr const char* kPoolRing = "ring_sp_sc";
constexpr uint32_t kRoom = (wire::kMaxFrame + 63 + 127) / 128 * 128;

/// Converts the result of the port's checksum check. A virtual device may report "none", which means that the frame needs no
/// checksum. RoCEv2 requires a checksum, so the function returns `unknown` for "none", and the parser verifies the checksum.
wire::HeaderChecksum said_of(uint64_t flags) {
    const uint64_t said = flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    if (said == RTE_MBUF_F_RX_IP_CKSUM_GOOD) return wire::HeaderChecksum::right;
    return said == RTE_MBUF_F_RX_IP_CKSUM_BAD ? wire::HeaderChecksum::wrong : wire::HeaderChecksum::unknown;
}

void leave_checksum(rte_mbuf& m, uint8_t ip_header) {
    m.ol_flags = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
    m.tx_offload = 0;
    m.l2_len = ip_header & 0x7f;
    m.l3_len = wire::kIpv4Length;
}

/// Adds to a counter that only this thread writes.
void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

/// Returns true if the mbuf can be returned to its pool without changes. Such an mbuf has one segment in its own buffer and one
/// reference.
bool is_plain(const rte_mbuf& m) { return rte_mbuf_refcnt_read(&m) == 1 && m.nb_segs == 1 && RTE_MBUF_DIRECT(&m); }

/// Frees mbufs. Returns plain mbufs of `pool` to the pool in bulk, because rte_pktmbuf_free_bulk() would read a second cache line
/// per mbuf.
template <class Frame>
void free_mbufs(const MbufPool& pool, const Frame* frames, unsigned count) {
    void* plain[DpdkPort::kMaxBurst];
    for (unsigned done = 0; done < count;) {
        const unsigned end = std::min(count, done + DpdkPort::kMaxBurst);
        unsigned n = 0;
        for (; done < end; ++done) {
            auto* m = static_cast<rte_mbuf*>(frames[done].cookie);
            if (m->pool == pool.get() && is_plain(*m)) [[likely]]
                plain[n++] = m;
            else
                rte_pktmbuf_free(m);
        }
        if (n != 0) rte_mempool_put_bulk(pool.get(), plain, n);
    }
}

[[noreturn]] void refuse(const PortSetup& setup, const char* step, int error) {
    throw StartError("DPDK's driver does not start it (" + std::string(step) + "): " + rte_strerror(error < 0 ? -error : error) +
                     (setup.hint.empty() ? "" : "; " + setup.hint) + kMore);
}

/// Verifies that DPDK has loaded librte_mempool_ring, the plugin that stores the free mbufs of a pool in a ring. Without this
/// check, DPDK would report a lack of memory.
void require_ring_plugin() {
    for (unsigned i = 0; i < rte_mempool_ops_table.num_ops; ++i)
        if (std::strcmp(rte_mempool_ops_table.ops[i].name, kPoolRing) == 0) return;
    throw StartError("DPDK's plugin librte_mempool_ring is missing: apt-get install librte-mempool-ring23, or libdpdk-dev");
}

}  // namespace

MbufPool::MbufPool(const std::string& name, uint32_t count, int socket, uint32_t room)
    : frames_(count), room_(room != 0 ? room : kRoom) {
    // Only one lcore allocates and frees mbufs. So the pool uses the ring for a single producer and a single consumer. The
    // mempool cache of kCache mbufs is in front of the ring, so the lcore reuses mbufs that are still in the processor's caches.
    require_ring_plugin();
    pool_ =
        rte_pktmbuf_pool_create_by_ops(name.c_str(), count, kCache, 0, uint16_t(RTE_PKTMBUF_HEADROOM + room_), socket, kPoolRing);
    if (pool_ == nullptr)
        throw StartError("no memory for " + std::to_string(count) + " frames (" + rte_strerror(rte_errno) +
                         "): lower memory.mbufs, reserve more hugepages, or set memory.hugepages = \"never\"");
}

MbufPool::~MbufPool() { rte_mempool_free(pool_); }

uint32_t MbufPool::in_use() const { return rte_mempool_in_use_count(pool_); }

uint64_t MbufPool::bytes(uint32_t count, uint32_t room) {
    return uint64_t(count) * (RTE_PKTMBUF_HEADROOM + (room != 0 ? room : kRoom) + sizeof(rte_mbuf) + 192) + (2 << 20);
}

unsigned DpdkPort::rx_burst(io::RxFrame* frames, unsigned max) {
    rte_mbuf* mbufs[kMaxBurst];
    const uint16_t got = rte_eth_rx_burst(port_, queue_, mbufs, uint16_t(std::min(max, kMaxBurst)));
    if (slept_ != Slept::not_at_all) [[unlikely]]
        judge_sleep(got != 0);
    unsigned n = 0;
    for (uint16_t i = 0; i < got; ++i) {
        rte_mbuf* m = mbufs[i];
        // A NIC whose buffers are powers of two delivers a long frame in two segments (e1000: the first has 4,096 bytes).
        if (m->nb_segs != 1 && rte_pktmbuf_linearize(m) != 0) [[unlikely]] {
            add(too_large_, 1);
            rte_pktmbuf_free(m);
            continue;
        }
        // Inserts a VLAN tag that the port has stripped, so that frames of all ports have the same format.
        if ((m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 && rte_vlan_insert(&m) != 0) [[unlikely]] {
            rte_pktmbuf_free(m);
            continue;
        }
        const auto ip = checks_headers_ ? said_of(m->ol_flags) : wire::HeaderChecksum::unknown;
        frames[n++] = {rte_pktmbuf_mtod(m, const uint8_t*), m->data_len, m, ip, icrc_};
    }
    return n;
}

void DpdkPort::rx_free(io::RxFrame* frames, unsigned count) { free_mbufs(pool_, frames, count); }
void DpdkPort::tx_free(io::TxFrame* frames, unsigned count) { free_mbufs(pool_, frames, count); }

unsigned DpdkPort::tx_alloc(io::TxFrame* frames, unsigned count) {
    void* mbufs[kMaxBurst];
    unsigned n = std::min(count, kMaxBurst);
    // rte_mempool_get_bulk() returns all requested mbufs or none. If it returns none, the next call requests half as many mbufs.
    // Mbufs in a pool have one reference and one segment. tx_burst() sets all other fields that drivers read.
    while (n != 0 && rte_mempool_get_bulk(pool_.get(), mbufs, n) != 0) n /= 2;
    for (unsigned i = 0; i < n; ++i) {
        auto* m = static_cast<rte_mbuf*>(mbufs[i]);
        m->ol_flags = 0;
        m->data_off = RTE_PKTMBUF_HEADROOM;
        frames[i] = {rte_pktmbuf_mtod(m, uint8_t*), pool_.room(), 0, m};
    }
    return n;
}

unsigned DpdkPort::tx_burst(io::TxFrame* frames, unsigned count) {
    if (up_ != nullptr && !up_->load(std::memory_order_relaxed)) [[unlikely]] {
        tx_free(frames, count);
        add(lost_while_down_, count);
        return count;
    }
    rte_mbuf* mbufs[kMaxBurst];
    unsigned sent = 0;
    while (sent < count) {
        const unsigned burst = std::min(count - sent, kMaxBurst);
        for (unsigned i = 0; i < burst; ++i) {
            const io::TxFrame& f = frames[sent + i];
            mbufs[i] = static_cast<rte_mbuf*>(f.cookie);
            mbufs[i]->data_off = uint16_t(f.data - static_cast<const uint8_t*>(mbufs[i]->buf_addr));
            mbufs[i]->data_len = uint16_t(f.length);
            mbufs[i]->pkt_len = f.length;
            assert(!f.left.icrc || icrc_ == wire::HeaderChecksum::absent);  // no frame leaves this process without an ICRC
            if (f.left.checksum_offset != 0) leave_checksum(*mbufs[i], f.left.checksum_offset);
        }
        const unsigned n = rte_eth_tx_burst(port_, queue_, mbufs, uint16_t(burst));
        sent += n;
        if (n < burst) break;
    }
    if (sent == 0 && count != 0) [[unlikely]]
        return not_taken(frames, count);
    blocked_since_ = 0;
    return sent;
}

unsigned DpdkPort::not_taken(io::TxFrame* frames, unsigned count) {
    const uint64_t now = rte_get_tsc_cycles();
    if (blocked_since_ == 0) blocked_since_ = now;
    if (now - blocked_since_ < rte_get_tsc_hz() / 1000 * kPatienceMs) return 0;
    tx_free(frames, count);
    add(lost_not_taken_, count);
    return count;
}

void DpdkPort::before_sleep() { rte_eth_dev_rx_intr_enable(port_, queue_); }
void DpdkPort::after_sleep(Slept how) {
    slept_ = how;
    if (how == Slept::not_at_all) rte_eth_dev_rx_intr_disable(port_, queue_);
}

/// Called after the first poll that follows a sleep. Interrupts were enabled until this poll, so each frame that the poll found
/// should have raised an interrupt. A frame without an interrupt does not prove that the interrupt was lost, because a late
/// interrupt would end the next sleep. But if the next sleep also ends by its time limit, the interrupt was lost.
void DpdkPort::judge_sleep(bool frames) {
    const bool overslept = slept_ == Slept::until_time_was_up;
    slept_ = Slept::not_at_all;
    rte_eth_dev_rx_intr_disable(port_, queue_);
    if (interrupted_.exchange(false, std::memory_order_relaxed)) {
        misses_ = 0;
        suspected_ = false;
        wakes_.store(true, std::memory_order_relaxed);
        return;
    }
    if (!overslept) return;
    if (suspected_ && ++misses_ == kMisses) {
        misses_ = 0;
        wakes_.store(false, std::memory_order_relaxed);
    }
    suspected_ = frames;
}

int rx_interrupt(uint16_t port, uint16_t queue) {
    const QuietDpdk quiet;  // a driver without interrupts is not an error
    const int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
    if (fd < 0 || rte_eth_dev_rx_intr_enable(port, queue) != 0) return -1;
    rte_eth_dev_rx_intr_disable(port, queue);
    return fd;
}

namespace {

/// Returns the configuration of an ethdev. If the ethdev supports RSS, the configuration distributes flows over the queues by
/// addresses and UDP ports. The distribution only improves speed, because an engine passes frames for the QPs of another engine
/// to that engine.
rte_eth_conf configuration(const rte_eth_dev_info& info, uint16_t queues) {
    rte_eth_conf conf{};
    if (queues > 1 && info.flow_type_rss_offloads != 0) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP) & info.flow_type_rss_offloads;
    }
    return conf;
}

ChecksumOffload checksums_of(const rte_eth_dev_info& info) {
    return {(info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM) != 0,
            (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0};
}

/// Sets the MTU to the first candidate that the port accepts. Returns this MTU, or 0 if the port accepts no candidate.
uint32_t set_mtu(uint16_t port, std::span<const uint32_t> candidates) {
    for (const uint32_t mtu : candidates)
        if (rte_eth_dev_set_mtu(port, uint16_t(mtu)) == 0) return mtu;
    return 0;
}

}  // namespace

Started start_port(uint16_t port, MbufPool* const* pools, const PortSetup& setup) {
    const QuietDpdk quiet;  // rocid reports the error itself
    rte_eth_dev_info info{};
    if (const int no = rte_eth_dev_info_get(port, &info); no != 0) refuse(setup, "driver", no);
    Started out{.mtu = 0, .can = checksums_of(info), .does = {}};
    if (setup.checksums) out.does = out.can;
    rte_eth_conf conf = configuration(info, setup.queues);
    if (out.does.received) conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
    if (out.does.sent) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
    conf.intr_conf.rxq = setup.interrupts;
    conf.intr_conf.lsc = setup.link_interrupts && info.dev_flags != nullptr && (*info.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
    int e = rte_eth_dev_configure(port, setup.queues, setup.queues, &conf);
    if (e != 0 && setup.interrupts) {
        conf.intr_conf.rxq = 0;
        e = rte_eth_dev_configure(port, setup.queues, setup.queues, &conf);
    }
    if (e != 0) refuse(setup, "queues", e);
    out.mtu = set_mtu(port, setup.mtus);
    uint16_t rx = setup.descriptors, tx = setup.descriptors;
    rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);  // adjusts the numbers to the limits of the driver
    const unsigned socket = unsigned(rte_eth_dev_socket_id(port) < 0 ? 0 : rte_eth_dev_socket_id(port));
    for (uint16_t q = 0; q < setup.queues; ++q) {
        if (e = rte_eth_rx_queue_setup(port, q, rx, socket, nullptr, pools[q]->get()); e != 0) refuse(setup, "rx queue", e);
        if (e = rte_eth_tx_queue_setup(port, q, tx, socket, nullptr); e != 0) refuse(setup, "tx queue", e);
    }
    if (e = rte_eth_dev_start(port); e != 0) refuse(setup, "start", e);
    // The engine itself filters multicast groups. Ignores the error of a port that has no multicast filter.
    rte_eth_allmulticast_enable(port);
    return out;
}

void stop_port(uint16_t port) {
    rte_eth_dev_stop(port);
    rte_eth_dev_close(port);
}

}  // namespace roci::pmd
