// A client that connects by rdma_cm, as librdmacm does.
#pragma once

#include <functional>

#include "abi/cm_control.hpp"
#include "rig.hpp"

namespace roci::fuzz {

class Connector {
public:
    static constexpr uint16_t kPort = 7174;
    static constexpr uint32_t kTcp = 0x106, kUdp = 0x111;  ///< port spaces

    /// `pass` lets some time pass in the world of the client.
    Connector(Client& client, std::function<void()> pass);

    Client& client() { return client_; }
    uint32_t channel() const { return channel_; }
    uint32_t create_id(uint32_t space = kTcp);
    int call(abi::Op op, uint32_t id) { return client_.try_call(op, abi::HandleRequest{id, 0}); }
    /// Creates an id that listens at `address` and kPort.
    uint32_t listen(const Gid& address, uint32_t space = kTcp);
    /// Creates an id with a route from `own` to `peer` and kPort.
    uint32_t resolve(const Gid& own, const sim::Peer& peer, uint32_t space = kTcp);
    /// Sends a REQ or SIDR_REQ, or accepts such a request.
    int connect(abi::Op op, uint32_t id, uint32_t qpn);
    /// Returns the next event. Lets time pass until there is one.
    abi::CmEventReply event();

private:
    Client& client_;
    std::function<void()> pass_;
    uint32_t channel_ = 0;
};

/// Connects `caller` to the listener of `server`. Returns both ids.
std::pair<uint32_t, uint32_t> connect(Connector& caller, Connector& server, const sim::Qp& caller_qp, const sim::Qp& server_qp,
                                      uint32_t gid_index = 0);

}  // namespace roci::fuzz
