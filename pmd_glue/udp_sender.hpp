// Sends the engine's frames through UDP sockets. The kernel builds the Ethernet, IP and UDP headers, so the sender passes only
// the bytes after the UDP header to the kernel. Successive frames of one flow form one datagram, which the kernel splits into
// segments (UDP_SEGMENT). One system call sends several datagrams.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "io/port.hpp"
#include "udp_socket.hpp"
#include "wire/icrc_identification.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {

/// Counters of system calls and, by cause, of frames that were not sent. Only one thread writes the counters.
struct UdpSendCounters {
    std::atomic<uint64_t> too_long{0};     ///< frames that are longer than the path MTU permits
    std::atomic<uint64_t> unreachable{0};  ///< frames with another error, such as no route or a firewall rule
    std::atomic<uint64_t> no_address{0};   ///< frames whose source address does not belong to this port, and frames without UDP
    std::atomic<uint64_t> calls{0};        ///< system calls that sent frames
    std::atomic<int> last_error{0};        ///< errno of the last frame that was not sent
};

class UdpSender {
public:
    explicit UdpSender(const UdpSockets& sockets) : sockets_(sockets) {}
    /// Sends frames in order. Returns the number of frames from the first frame on that were sent, or dropped and counted. The
    /// caller must repeat the call with the remaining frames until the result is 0. The result is usually 0 because the socket
    /// buffer is full.
    unsigned send(io::TxFrame* frames, unsigned count);
    const UdpSendCounters& counters() const { return counters_; }
    /// Largest number of segments per datagram that Linux before 6.9 accepts.
    static constexpr unsigned kSegments = 64;

private:
    static constexpr unsigned kMessages = 16, kFrames = 256;
    /// Largest UDP payload of an IP packet, in bytes. The length field of the IP header has 16 bits. For IPv4, the length
    /// includes the IP header.
    static constexpr uint32_t kIpv4Bytes = 0xffff - wire::kIpv4Length - wire::kUdpLength, kIpv6Bytes = 0xffff - wire::kUdpLength;
    static constexpr size_t kControl = 160;

    /// Frames that are sent as one datagram.
    struct Group {
        unsigned first = 0, count = 0;
        uint32_t bytes = 0;  ///< bytes per segment
        bool ipv4 = false;
        bool closed = false;  ///< the last frame is shorter than the others, so no frame may be added
        const UdpSockets::Socket* socket = nullptr;
    };
    struct alignas(16) Message {
        sockaddr_storage to;
        alignas(cmsghdr) std::array<uint8_t, kControl> control;
    };

    bool open_group(const io::TxFrame& frame, unsigned index, Group& g);
    static unsigned most_segments(const Group& g);
    static bool closes(const io::TxFrame* frames, unsigned next, unsigned count, bool ipv4);
    bool joins(const Group& g, const io::TxFrame* frames, unsigned next, unsigned count) const;
    void address(const Group& g, const io::TxFrame& frame, unsigned message);
    void number_segments(const Group& g, io::TxFrame* frames);
    unsigned submit(io::TxFrame* frames, unsigned groups, unsigned end);
    void dropped(const Group& g, int error);

    const UdpSockets& sockets_;
    bool segments_ = true;  ///< false after the kernel has refused UDP_SEGMENT
    UdpSendCounters counters_;
    wire::IcrcShiftCache shifts_;
    std::array<Group, kMessages> groups_;
    std::array<mmsghdr, kMessages> headers_{};
    std::array<Message, kMessages> messages_;
    std::array<iovec, kFrames> pieces_;
};

}  // namespace roci::pmd
