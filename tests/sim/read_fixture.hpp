// A fixture for READs. The responder is a puppet, which sends only the packets that the test writes.
#pragma once

#include "fixture.hpp"

namespace roci::sim {

struct ReadTest : PuppetTest {
    using PuppetTest::PuppetTest;
    void read(uint64_t id, uint32_t bytes, uint64_t offset = 0) {
        a.client.post_send(qp, a.rdma(WrOpcode::rdma_read, id, offset, bytes, 0x10000, 0x1234));
    }
    /// Sends the response packets `first` to `last` of a READ whose request has PSN `base`. The whole response has
    /// `total` packets.
    void respond(uint32_t base, uint32_t total, uint32_t first, uint32_t last, uint64_t tag, uint32_t msn = 1) {
        for (uint32_t i = first; i <= last; ++i) {
            wire::TransportHeaders h;
            h.psn = Psn(base + i);
            h.syndrome = 31;
            h.msn = Msn{msn};
            const Operation op = total == 1       ? Operation::read_response_only
                                 : i == 0         ? Operation::read_response_first
                                 : i + 1 == total ? Operation::read_response_last
                                                  : Operation::read_response_middle;
            std::vector<uint8_t> p(kMtu);
            for (uint32_t k = 0; k < kMtu; ++k) p[k] = pattern_byte(tag, uint64_t{i} * kMtu + k);
            puppet.send(op, h, p);
        }
    }
    /// Answers a repeated request for one packet. Sends packet number `at` of the READ's response.
    void respond_part(uint32_t psn, uint32_t at, uint64_t tag) {
        wire::TransportHeaders h;
        h.psn = Psn(psn);
        h.syndrome = 31;
        std::vector<uint8_t> p(kMtu);
        for (uint32_t k = 0; k < kMtu; ++k) p[k] = pattern_byte(tag, uint64_t{at} * kMtu + k);
        puppet.send(Operation::read_response_only, h, p);
    }
};

}  // namespace roci::sim
