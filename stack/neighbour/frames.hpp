// Parses and builds the frames of ARP (RFC 826), neighbour discovery (RFC 4861) and echo (RFC 792, RFC 4443). rocid handles these
// frames on a port with Resolver::own. parse() returns Kind::nothing for a malformed frame.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.hpp"

namespace roci::neighbour {

/// Length of the longest frame that parse() accepts. rocid answers echo requests up to the length of the longest RoCE frame.
inline constexpr uint32_t kMaxFrame = 4240;

enum class Kind : uint8_t {
    nothing,
    solicitation,   ///< requests the MAC address of `target` (ARP request, neighbour solicitation)
    advertisement,  ///< states that `target` has the MAC address `link` (ARP reply, neighbour advertisement)
    echo,           ///< an echo request from `sender` to `target`
};

struct Message {
    Kind kind = Kind::nothing;
    MacAddress from;  ///< Ethernet source
    MacAddress link;  ///< MAC address in the message; zero if the message contains no MAC address
    Gid sender;       ///< IP address of the sender; zero in duplicate address detection
    Gid target;       ///< the solicited or advertised address
    bool unsolicited = false, override_link = true;
    uint32_t l3 = 0;      ///< for an echo, the offset of the IP header
    uint32_t length = 0;  ///< for an echo, the length of the frame without Ethernet padding
};

Message parse(const uint8_t* frame, uint32_t length);

/// A frame to be sent.
struct Frame {
    uint32_t port = 0;
    uint32_t length = 0;
    std::array<uint8_t, kMaxFrame> bytes;
};

struct Ends {
    MacAddress mac;
    Gid address;
};
/// Builds a solicitation for `target` to the MAC address `to`. If `to` is zero, the destination is the broadcast address (IPv4)
/// or the solicited-node multicast group (IPv6).
void make_solicitation(Frame& out, const Ends& own, const Gid& target, const MacAddress& to);
/// Builds the answer to the solicitation `asked`. The answer contains the MAC address `own`.
void make_answer(Frame& out, const MacAddress& own, const Message& asked);
/// Builds an unsolicited advertisement to all hosts on the link. For IPv4, the advertisement is a gratuitous ARP request.
void make_announcement(Frame& out, const Ends& own);
/// Builds the reply to an echo request. `frame` is the frame that was parsed into `asked`.
void make_echo_reply(Frame& out, const MacAddress& own, const Message& asked, const uint8_t* frame);

/// Inserts a VLAN tag into a frame. `tag` contains the priority and the VLAN ID (802.1Q). Returns false if the frame would be
/// longer than kMaxFrame with the tag.
bool insert_tag(Frame& frame, uint16_t tag);

/// Returns the MAC address of a multicast group (RFC 1112 6.4, RFC 2464 7).
MacAddress multicast_mac(const Gid& group);
bool is_multicast(const Gid& gid);
bool is_link_local(const Gid& gid);

}  // namespace roci::neighbour
