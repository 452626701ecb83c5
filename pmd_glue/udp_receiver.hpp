// Receives datagrams from UDP sockets and converts the datagrams to frames. The receiver rebuilds the Ethernet, IP and UDP
// headers of each frame. One system call receives several datagrams. Each datagram may contain many frames of one length
// (UDP_GRO).
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "frame_slots.hpp"
#include "io/port.hpp"
#include "udp_peers.hpp"
#include "udp_socket.hpp"
#include "wire/icrc_identification.hpp"

namespace roci::pmd {

struct UdpReceiveCounters {
    std::atomic<uint64_t> calls{0};         ///< system calls that returned at least one datagram
    std::atomic<uint64_t> split{0};         ///< frames that were copied, because the kernel did not store them in separate slots
    std::atomic<uint64_t> too_large{0};     ///< frames of wrong length, frames beyond a full `pending_`, and truncated datagrams
    std::atomic<uint64_t> unconfirmed{0};   ///< frames refused because the computed IPv4 identification was implausible
    std::atomic<uint64_t> port_changed{0};  ///< frames refused because a NAT changed the source port, which the ICRC covers
};

class UdpReceiver {
public:
    UdpReceiver(const UdpSockets& sockets, const MacAddress& mac);
    unsigned burst(io::RxFrame* frames, unsigned max);
    void free(io::RxFrame* frames, unsigned count) {
        for (unsigned i = 0; i < count; ++i) slots_.give_back(static_cast<uint8_t*>(frames[i].cookie));
    }
    const UdpReceiveCounters& counters() const { return counters_; }

private:
    static constexpr unsigned kMessages = 8, kSegments = 64, kSlots = 2048;
    static constexpr uint32_t kOverflow = 1 << 16;
    static constexpr size_t kControl = 256;
    /// Offset of the BTH in a slot. The BTH begins at a cache line. The other headers fit before this offset.
    static constexpr uint32_t kBth = 64;
    static constexpr uint32_t kPayload = FrameSlots::kBytes - kBth;

    /// The buffers for one datagram: slots for the expected frames, and a buffer for the remaining bytes.
    struct Message {
        std::array<iovec, kSegments + 1> pieces;
        std::array<uint8_t*, kSegments> slots{};
        unsigned prepared = 0;  ///< number of entries of `pieces` that are slots
        uint32_t piece = 0;     ///< number of bytes that the kernel stores per slot
        bool ready = false;     ///< the mmsghdr and the buffers are ready for the next recvmmsg()
        sockaddr_storage from;
        alignas(cmsghdr) std::array<uint8_t, kControl> control;
        std::unique_ptr<uint8_t[]> overflow = std::make_unique<uint8_t[]>(kOverflow);
    };
    /// Values from the source address and the control data that the kernel returns with a datagram.
    struct Header {
        bool ipv4 = false;
        Gid source, dest;
        uint16_t source_port = 0;
        uint8_t traffic_class = 0, hop_limit = 64;
        uint32_t segment = 0;  ///< bytes per frame; 0: the datagram is a single frame
    };

    /// A received frame that burst() has not returned yet.
    struct Pending {
        uint8_t* slot;
        const Header* header;
        uint32_t length;
        uint32_t index;  ///< index of the frame in its datagram
    };

    void prepare(Message& m, mmsghdr& header);
    bool receive(const UdpSockets::Socket& socket);
    Header read_header(const msghdr& m) const;
    void take(Message& m, const Header& h, uint32_t bytes);
    static void copy_out(const Message& m, uint32_t offset, uint32_t length, uint8_t* to);
    uint8_t* piece_of(Message& m, uint32_t offset, uint32_t length, unsigned index, bool direct);
    void deliver(const Pending& p, io::RxFrame& f);
    uint8_t* put_headers(uint8_t* slot, const Header& h, uint32_t length, uint16_t id);
    bool check(uint8_t* l3, const Header& h, uint32_t length, uint16_t id, UdpPeers::Peer& peer);
    bool natted(uint8_t* l3, const Header& h, uint32_t covered, uint32_t sent);
    void expect(const Header& h, uint32_t bytes);

    const UdpSockets& sockets_;
    const MacAddress mac_;
    FrameSlots slots_{kSlots};
    UdpPeers peers_;
    wire::IcrcShiftCache shifts_;
    std::vector<std::unique_ptr<Message>> messages_;
    std::array<mmsghdr, kMessages> headers_{};
    std::array<Header, kMessages> received_;
    std::vector<Pending> pending_;
    size_t next_ = 0;
    size_t turn_ = 0;  ///< index of the socket that the next burst() reads first
    uint32_t expected_piece_ = kPayload;
    unsigned expected_count_ = 1;
    bool quiet_ = false;  ///< the last call received nothing
    UdpReceiveCounters counters_;
};

}  // namespace roci::pmd
