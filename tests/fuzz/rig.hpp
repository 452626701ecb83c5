// The world of the targets that run engines and a conductor (rocid's control thread): one or two hosts in virtual time with a
// bystander. The bystander is a separate user with a connected pair of QPs. After an input, a message between these QPs must
// still arrive within a limited number of rounds.
#pragma once

#include "sim/world.hpp"
#include "target.hpp"

namespace roci::fuzz {

using sim::Client;
using sim::Cq;
using sim::Mr;
using sim::Qp;
using sim::Srq;
using sim::World;

/// A client with a PD, a CQ and an MR. The addresses of the MR are the same in every run.
struct Party {
    static constexpr uint64_t kAddress = 0x10000000, kBytes = 1 << 16;
    Client client;
    uint32_t pd;
    Cq& cq;
    Mr& mr;
    Party(sim::Host& host, uint32_t device, uint32_t uid)
        : client(host, device, uid),
          pd(client.alloc_pd()),
          cq(client.create_cq(256)),
          mr(client.reg_mr(pd, kBytes, {.iova = kAddress})) {}
    Qp& qp(const sim::QpOptions& o = {}) { return client.create_qp(pd, cq, cq, o); }
    sim::Sge sge(uint64_t offset, uint32_t length) const { return {mr.address() + offset, length, mr.lkey}; }
    sim::SendWr send(uint64_t id, uint64_t offset, uint32_t length) const { return {.id = id, .sges = {sge(offset, length)}}; }
    size_t poll();  ///< returns the number of completions
};

inline constexpr uint32_t kBystander = 1001, kHostile = 1002;

class Rig {
public:
    /// Creates `hosts` hosts with `devices` devices each. The bystander has a QP on the first and on the last device.
    Rig(uint32_t hosts, uint32_t devices);
    /// Ends all sessions. Requires that nothing is left.
    void end();

    World& world() { return world_; }
    sim::Host& host(uint32_t h = 0) { return world_.host(h); }
    /// Sends a message between the QPs of the bystander. Requires that the right bytes arrive within kMostRounds rounds.
    void exchange();
    /// Requires that host 0 has no objects but those of the bystander.
    void require_only_bystander();

private:
    static constexpr uint64_t kMostRounds = 1000;
    static sim::WorldOptions options(uint32_t hosts, uint32_t devices);

    World world_;
    Party left_, right_;
    Qp &left_qp_, &right_qp_;
    host::Conductor::Totals before_;
    uint8_t tag_ = 0;
};

}  // namespace roci::fuzz
