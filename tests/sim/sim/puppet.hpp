// A peer without a transport. The test writes every packet that the puppet sends, and reads every packet that the
// puppet receives. So a test can check an engine exactly, and can send frames that a correct peer never sends.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "sim/client.hpp"
#include "sim/network.hpp"
#include "wire/build.hpp"

namespace roci::sim {

class World;

class Puppet {
public:
    /// Joins the network as 10.9.0.1 with QPN 0x77.
    explicit Puppet(World& world);

    static constexpr uint32_t kQpn = 0x77;
    Peer peer() const { return {kQpn, gid_, mac_}; }
    /// Sets the destination of send().
    void talk_to(const Peer& peer);

    /// Sends a packet of RC operation `op` with the headers `h`. Sets the destination QP in the headers.
    void send(wire::Operation op, wire::TransportHeaders h, const std::vector<uint8_t>& payload = {});
    void send_ack(uint32_t psn, uint32_t msn, uint8_t syndrome = 31);  ///< 31: an ACK without a credit count
    /// Sends arbitrary bytes.
    void send_raw(const std::vector<uint8_t>& frame);
    std::vector<uint8_t> build(uint8_t opcode, wire::TransportHeaders h, const std::vector<uint8_t>& payload = {}) const;

    struct Got {
        Nanos when;
        std::vector<uint8_t> bytes;
        wire::Packet packet;
        uint32_t psn() const { return packet.psn.value(); }
        wire::Operation op() const { return wire::operation_of(packet.opcode); }
        std::vector<uint8_t> payload() const { return {packet.payload, packet.payload + packet.payload_length}; }
    };
    /// Runs the world for `time`. Returns the packets that arrived in this time, in order.
    std::vector<Got> listen(Nanos time = 100'000);
    /// If this is false, the puppet drops loss reports and inquiries, like a peer that does not implement their
    /// opcode.
    bool knows_reports = false;
    /// Runs the world until a packet arrives. Returns nullopt if none arrives within `at_most`.
    std::optional<Got> next(Nanos at_most = 1'000'000'000);

private:
    void collect();
    World& world_;
    uint32_t endpoint_;
    MacAddress mac_;
    Gid gid_;
    Peer to_;
    wire::PathTemplate path_{};
    std::deque<Got> got_;
};

/// Moves the QP to RTS with a puppet as its peer.
void connect(Client& client, Qp& qp, Puppet& puppet, const PathOptions& o = {});

}  // namespace roci::sim
