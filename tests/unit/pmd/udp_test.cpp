// Tests of RoCEv2 frames over plain UDP sockets, between loopback addresses and to multicast groups on a veth
// interface.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "pmd_glue/eal.hpp"
#include "pmd_glue/hairpin_port.hpp"
#include "pmd_glue/udp_port.hpp"
#include "wire/icrc.hpp"
#include "wire/icrc_identification.hpp"

namespace roci::pmd {
namespace {

constexpr MacAddress kMac{{0x02, 0, 0, 0, 0, 1}};
constexpr uint8_t kHere[4] = {127, 79, 1, 1}, kThere[4] = {127, 79, 1, 2};
constexpr uint32_t kBth = wire::kEthLength + wire::kIpv4Length + wire::kUdpLength;

constexpr uint8_t kSendOnly = 0x04, kReadResponse = 0x10, kAck = 0x11;  // opcodes of RC

struct Ends {
    const uint8_t* from = kThere;
    const uint8_t* to = kHere;
};

/// Writes a frame. The payload begins with `number`. Returns the length of the frame.
uint32_t build(uint8_t* f, uint32_t number, uint32_t payload, uint16_t source_port = wire::kRoceUdpPort,
               uint8_t opcode = kSendOnly, Ends ends = {}) {
    const uint32_t udp = wire::kUdpLength + wire::kBthLength + payload + wire::kIcrcLength;
    const uint32_t length = wire::kEthLength + wire::kIpv4Length + udp;
    std::memset(f, 0, length);
    store_be<uint16_t>(f + 12, wire::kEtherIpv4);
    uint8_t* l3 = f + wire::kEthLength;
    l3[0] = 0x45;
    store_be<uint16_t>(l3 + 2, uint16_t(wire::kIpv4Length + udp));
    store_be<uint16_t>(l3 + 6, wire::kDontFragmentWord);
    l3[8] = 64;
    l3[9] = wire::kProtocolUdp;
    std::memcpy(l3 + 12, ends.from, 4);
    std::memcpy(l3 + 16, ends.to, 4);
    store_be<uint16_t>(l3 + 20, source_port);
    store_be<uint16_t>(l3 + 22, wire::kRoceUdpPort);
    store_be<uint16_t>(l3 + 24, uint16_t(udp));
    f[kBth] = opcode;
    for (uint32_t i = 0; i < payload; ++i) f[kBth + wire::kBthLength + i] = uint8_t(number + i);
    store_be<uint32_t>(f + kBth + wire::kBthLength, number);
    const uint32_t covered = wire::kIpv4Length + udp - wire::kIcrcLength;
    const uint32_t icrc = wire::icrc(l3, covered, false, wire::kIpv4Length);
    std::memcpy(l3 + covered, &icrc, sizeof icrc);
    return length;
}

std::unique_ptr<UdpSockets> open_sockets(const uint8_t* address) {
    UdpSetup setup;
    setup.addresses = {Gid::from_ipv4(address)};
    try {
        return std::make_unique<UdpSockets>(setup);
    } catch (const StartError&) {
        return nullptr;  // another rocid on this machine may have bound the port on every address
    }
}

// If a program sets a size, the kernel adds its own overhead and reports twice this size (socket(7)).
TEST(UdpSockets, TheSizeOfABufferIsTheSizeThatWasGranted) {
    UdpSetup setup;
    setup.addresses = {Gid::from_ipv4(kHere)};
    setup.buffer_bytes = 65536;
    try {
        const UdpSockets sockets(setup);
        EXPECT_EQ(sockets.receive_buffer(), setup.buffer_bytes);
        EXPECT_EQ(sockets.send_buffer(), setup.buffer_bytes);
    } catch (const StartError& e) {
        GTEST_SKIP() << e.what();
    }
}

class Udp : public testing::Test {
protected:
    void SetUp() override {
        here_ = open_sockets(kHere);
        if (here_ == nullptr) GTEST_SKIP() << "UDP port 4791 is in use";
        receiver_ = std::make_unique<UdpReceiver>(*here_, kMac);
    }
    struct Got {
        uint32_t number;
        bool right;
    };
    /// Receives frames in bursts of at most `burst`. Returns after `count` frames, or after a minute.
    std::vector<Got> receive(size_t count, unsigned burst = 8) {
        std::vector<Got> all;
        io::RxFrame f[64];
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (all.size() < count && std::chrono::steady_clock::now() < end) {
            const unsigned n = receiver_->burst(f, burst);
            if (n == 0) usleep(1000);
            for (unsigned i = 0; i < n; ++i)
                all.push_back({load_be<uint32_t>(f[i].data + kBth + wire::kBthLength), f[i].icrc == wire::HeaderChecksum::right});
            receiver_->free(f, n);
        }
        return all;
    }
    /// Polls many times while no frame arrives, so that the receiver treats the port as silent.
    void poll_in_vain() {
        io::RxFrame f[8];
        for (int i = 0; i < 200; ++i) EXPECT_EQ(receiver_->burst(f, 8), 0u);
    }
    /// Sends the UDP payload of a frame from a new socket that is bound to `port`.
    static void send_from(uint16_t port, const uint8_t* frame, uint32_t length) {
        const int fd = socket(AF_INET, SOCK_DGRAM, 0), discover = IP_PMTUDISC_DO;
        setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
        sockaddr_in own{}, to{};
        own.sin_family = to.sin_family = AF_INET;
        own.sin_port = htons(port);
        to.sin_port = htons(wire::kRoceUdpPort);
        std::memcpy(&own.sin_addr, kThere, 4);
        std::memcpy(&to.sin_addr, kHere, 4);
        ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
        ASSERT_EQ(sendto(fd, frame + kBth, length - kBth, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
                  ssize_t(length - kBth));
        close(fd);
    }
    std::unique_ptr<UdpSockets> here_;
    std::unique_ptr<UdpReceiver> receiver_;
};

TEST_F(Udp, AWholeBurstIsOneSystemCallAndArrivesInOrderInBurstsOfAnySize) {
    const auto there = open_sockets(kThere);
    ASSERT_NE(there, nullptr);
    UdpPort port(*there, kMac, 256, nullptr);
    constexpr unsigned kCount = 62;
    ASSERT_EQ(port.best_burst(), 64u);
    io::TxFrame f[kCount];
    for (uint32_t round = 0; round < 3; ++round) {
        ASSERT_EQ(port.tx_alloc(f, kCount), kCount);
        for (uint32_t i = 0; i < kCount; ++i) f[i].length = build(f[i].data, round * kCount + i, 1024);
        ASSERT_EQ(port.tx_burst(f, kCount), kCount);
    }
    EXPECT_EQ(port.sent().calls, 3u);
    const std::vector<Got> got = receive(3 * kCount, 7);
    ASSERT_EQ(got.size(), 3 * kCount);
    for (uint32_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].number, i);
        EXPECT_TRUE(got[i].right) << "frame " << i;
    }
}

/// Tests of how a burst is divided into datagrams. The tests read the datagrams from the receiver's socket.
class UdpDatagrams : public Udp {
protected:
    void SetUp() override {
        Udp::SetUp();
        if (IsSkipped()) return;
        there_ = open_sockets(kThere);
        ASSERT_NE(there_, nullptr);
        port_ = std::make_unique<UdpPort>(*there_, kMac, 256, nullptr);
    }
    struct Frame {
        uint32_t payload;
        uint8_t opcode = kSendOnly;
    };
    static constexpr uint32_t kAround = wire::kBthLength + wire::kIcrcLength;
    void send(const std::vector<Frame>& frames) {
        std::vector<io::TxFrame> f(frames.size());
        const auto count = unsigned(frames.size());
        ASSERT_EQ(port_->tx_alloc(f.data(), count), count);
        for (uint32_t i = 0; i < count; ++i)
            f[i].length = build(f[i].data, i, frames[i].payload, wire::kRoceUdpPort, frames[i].opcode);
        ASSERT_EQ(port_->tx_burst(f.data(), count), count);
    }
    /// Sends frames and returns the sizes of the datagrams that arrive.
    std::vector<size_t> datagrams(const std::vector<Frame>& frames) {
        size_t left = 0;
        for (const Frame& f : frames) left += f.payload + kAround;
        send(frames);
        std::vector<size_t> sizes;
        std::vector<uint8_t> buffer(1 << 16);
        pollfd p{.fd = here_->all()[0].fd, .events = POLLIN, .revents = 0};
        while (left != 0 && poll(&p, 1, 60'000) == 1) {
            const ssize_t n = recv(p.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (n <= 0) break;
            sizes.push_back(size_t(n));
            left -= std::min(left, size_t(n));
        }
        return sizes;
    }
    using Sizes = std::vector<size_t>;
    std::unique_ptr<UdpSockets> there_;
    std::unique_ptr<UdpPort> port_;
};

// A peer that gets the answer before the ACK completes its receive before its send. Then the events of two CQs on one channel
// have the wrong order for programs such as ib_send_lat -e.
TEST_F(UdpDatagrams, AnAckStaysInFrontOfTheRequestsBehindIt) {
    EXPECT_EQ(datagrams({{4, kAck}, {64}}), (Sizes{20, 80}));
    EXPECT_EQ(datagrams({{4, kAck}, {64}, {64}, {64}}), (Sizes{20, 3 * 80}));
    EXPECT_EQ(datagrams({{4, kAck}, {4, kAck}}), Sizes{2 * 20});
    send({{4, kAck}, {64}});
    const std::vector<Got> got = receive(2);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(got[0].number, 0u);
    EXPECT_EQ(got[1].number, 1u);
    EXPECT_TRUE(got[0].right);
    EXPECT_TRUE(got[1].right);
}

// Responses and ACKs must be sent in PSN order (IBA 9.7.5.1.2).
TEST_F(UdpDatagrams, AnAckPassesNoResponse) { EXPECT_EQ(datagrams({{4, kAck}, {68, kReadResponse}}), (Sizes{20, 84})); }

// An ICMP echo reply without data is as long as a UDP header, so the frame has no byte after that header.
TEST_F(UdpDatagrams, AFrameThatIsNoUdpJoinsNoDatagram) {
    io::TxFrame f[2];
    ASSERT_EQ(port_->tx_alloc(f, 2), 2u);
    for (uint32_t i = 0; i < 2; ++i) f[i].length = build(f[i].data, i, 64);
    constexpr uint8_t kIcmp = 1;
    f[1].data[wire::kEthLength + 9] = kIcmp;
    f[1].length = wire::kEthLength + wire::kIpv4Length + wire::kUdpLength;
    EXPECT_EQ(port_->tx_burst(f, 2), 2u) << "the second frame is dropped";
    EXPECT_EQ(receive(1).size(), 1u);
}

// A datagram carries at most 62 frames of 1,040 bytes. The first packet of a WRITE is longer than the others.
TEST_F(UdpDatagrams, AMessageNeedsAsFewDatagramsAsPossible) {
    const auto message = [](size_t others) {
        std::vector<Frame> frames(1 + others, Frame{1024});
        frames[0].payload += 16;
        return frames;
    };
    EXPECT_EQ(datagrams(message(1)), Sizes{1056 + 1040});
    EXPECT_EQ(datagrams(message(62)), (Sizes{1056, 62 * 1040}));
    EXPECT_EQ(datagrams(message(63)), (Sizes{1056 + 1040, 62 * 1040}));
}

TEST_F(Udp, AfterSilenceFramesArriveAgain) {
    uint8_t f[256];
    for (uint32_t i = 0; i < 4; ++i) {
        poll_in_vain();
        send_from(wire::kRoceUdpPort, f, build(f, i, 64));
        const std::vector<Got> got = receive(1);
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].number, i);
        EXPECT_TRUE(got[0].right);
    }
}

TEST_F(Udp, TheSourcePortMayBeAnyButNotAnother) {
    constexpr uint16_t kPort = 20'791;
    uint8_t f[256];
    send_from(kPort, f, build(f, 1, 64, kPort));
    auto got = receive(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_TRUE(got[0].right);
    EXPECT_EQ(receiver_->counters().port_changed, 0u);
    send_from(kPort, f, build(f, 2, 64));  // the source port has changed, as behind a NAT
    got = receive(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_FALSE(got[0].right);
    EXPECT_EQ(receiver_->counters().port_changed, 1u);
}

TEST_F(Udp, ACorruptFrameIsWrongAndNoNatIsBlamed) {
    uint8_t f[256];
    const uint32_t length = build(f, 1, 64);
    send_from(wire::kRoceUdpPort, f, length);  // the receiver then has an entry for this peer
    f[kBth + wire::kBthLength + 9] ^= 1;
    send_from(wire::kRoceUdpPort, f, length);
    const std::vector<Got> got = receive(2);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_TRUE(got[0].right);
    EXPECT_FALSE(got[1].right);
    EXPECT_EQ(receiver_->counters().port_changed, 0u);
}

constexpr const char* kInterface = "m0";
constexpr const char* kMakeInterface =
    "ip link add m0 type veth peer name m1 && ip link set m0 up && ip link set m1 up && "
    "ip addr add 10.79.0.1/24 dev m0 && ip addr add fd79::1/64 dev m0 nodad";

/// Sends one datagram to port 4791 of a multicast group on kInterface. The kernel delivers the datagram to this host.
void send_to_group(const Gid& group) {
    const unsigned index = if_nametoindex(kInterface);
    const int on = 1, fd = socket(group.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
    ssize_t sent;
    if (group.is_ipv4()) {
        ip_mreqn by{};
        by.imr_ifindex = int(index);
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &on, sizeof on);
        sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(wire::kRoceUdpPort), .sin_addr = {}, .sin_zero = {}};
        std::memcpy(&to.sin_addr, &group.bytes[12], 4);
        sent = sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    } else {
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index);
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &on, sizeof on);
        sockaddr_in6 to{};
        to.sin6_family = AF_INET6;
        to.sin6_port = htons(wire::kRoceUdpPort);
        to.sin6_scope_id = index;
        std::memcpy(&to.sin6_addr, group.bytes.data(), group.bytes.size());
        sent = sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
    EXPECT_EQ(sent, 1) << std::strerror(errno);
    close(fd);
}

/// Returns true if a datagram arrives within `wait_ms`. Reads this datagram, so that it is not counted again.
bool arrives(const UdpSockets& sockets, int wait_ms) {
    char bytes[16];
    for (;; --wait_ms) {
        for (const UdpSockets::Socket& s : sockets.all())
            if (recv(s.fd, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) return true;
        if (wait_ms <= 0) return false;
        usleep(1000);
    }
}

/// A network namespace with the veth interface kInterface. The calling thread stays in the namespace until the
/// destructor.
class OwnNetwork {
public:
    OwnNetwork() : before_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
        entered_ = before_ >= 0 && unshare(CLONE_NEWNET) == 0;
        ready_ = entered_ && std::system(kMakeInterface) == 0;
    }
    ~OwnNetwork() {
        if (entered_) {
            EXPECT_EQ(setns(before_, CLONE_NEWNET), 0);
        }
        if (before_ >= 0) close(before_);
    }
    bool ready() const { return ready_; }

private:
    int before_;
    bool entered_ = false, ready_ = false;
};

// Only one engine may receive a datagram of a group, because this engine passes copies to the other engines.
TEST(UdpGroups, OnlySocketsThatJoinedReceiveAGroup) {
    const OwnNetwork network;
    if (!network.ready()) GTEST_SKIP() << "no permission for a network namespace with IPv6";
    UdpSetup setup;
    setup.interface_index = int(if_nametoindex(kInterface));
    setup.engines = 2;
    const UdpSockets joined(setup), other(setup);
    Gid four, six;
    four.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 79, 0, 9};
    six.bytes = {0xff, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x79, 9};
    for (const Gid& group : {four, six}) {
        ASSERT_EQ(joined.follow_group(group, true), 0);
        EXPECT_EQ(joined.follow_group(group, true), EADDRINUSE);
        send_to_group(group);
        EXPECT_TRUE(arrives(joined, 60'000));
        EXPECT_FALSE(arrives(other, 0)) << "the kernel delivers a datagram to all sockets at once";
        EXPECT_EQ(joined.follow_group(group, false), 0);
        EXPECT_EQ(joined.follow_group(group, false), EADDRNOTAVAIL);
    }
}

// The kernel sends the frames as segments of one datagram, so the port changes their ICRCs. A copy that comes back has not
// passed the kernel, so it must have the ICRC for the identification of its own header.
TEST(UdpGroups, ACopyForThisDeviceHasTheRightIcrcAndComesOnce) {
    const OwnNetwork network;
    if (!network.ready()) GTEST_SKIP() << "no permission for a network namespace with IPv6";
    constexpr uint8_t kOwn[4] = {10, 79, 0, 1}, kGroup[4] = {239, 79, 0, 9};
    constexpr unsigned kCount = 4;
    UdpSetup setup;
    setup.interface_index = int(if_nametoindex(kInterface));
    const UdpSockets sockets(setup);
    ASSERT_EQ(sockets.follow_group(Gid::from_ipv4(kGroup), true), 0);
    UdpPort udp(sockets, kMac, 64, nullptr);
    HairpinPort port(udp, std::nullopt);
    io::TxFrame f[kCount];
    ASSERT_EQ(port.tx_alloc(f, kCount), kCount);
    std::vector<std::vector<uint8_t>> frames;
    for (uint32_t i = 0; i < kCount; ++i) {
        f[i].length = build(f[i].data, i, 256, wire::kRoceUdpPort, kSendOnly, {kOwn, kGroup});
        std::memcpy(f[i].data, "\x01\x00\x5e\x4f\x00\x09", 6);
        frames.emplace_back(f[i].data, f[i].data + f[i].length);
    }
    ASSERT_EQ(port.tx_burst(f, kCount), kCount);
    EXPECT_EQ(udp.sent().calls, 1u);
    EXPECT_EQ(udp.sent().unreachable, 0u);
    io::RxFrame got[2 * kCount];
    ASSERT_EQ(port.rx_burst(got, 2 * kCount), kCount);
    for (uint32_t i = 0; i < kCount; ++i)
        EXPECT_EQ(std::vector<uint8_t>(got[i].data, got[i].data + got[i].length), frames[i]) << "frame " << i;
    port.rx_free(got, kCount);
    EXPECT_EQ(port.rx_burst(got, 2 * kCount), 0u);
    ASSERT_EQ(port.tx_alloc(f, kCount), kCount);
    port.tx_free(f, kCount);
}

}  // namespace
}  // namespace roci::pmd
