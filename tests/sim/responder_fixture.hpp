// A fixture with a responder. Its requester is a puppet, whose packets the test writes.
#pragma once

#include "fixture.hpp"

namespace roci::sim {

struct Responder : PuppetTest {
    using PuppetTest::PuppetTest;
    uint32_t first = 0x100;
    void recv(uint64_t id, uint64_t offset, uint32_t length) { ASSERT_TRUE(a.client.post_recv(qp, id, {a.sge(offset, length)})); }
    wire::TransportHeaders at(uint32_t psn, bool ack_request = true) {
        wire::TransportHeaders h;
        h.psn = Psn(psn);
        h.ack_request = ack_request;
        return h;
    }
    wire::TransportHeaders write_at(uint32_t psn, uint64_t va, uint32_t rkey, uint32_t length, bool ack_request = true) {
        wire::TransportHeaders h = at(psn, ack_request);
        h.va = va;
        h.rkey = Key{rkey};
        h.dma_length = length;
        return h;
    }
    void send_only(uint32_t psn, uint32_t bytes, uint64_t tag, bool ack_request = true) {
        puppet.send(Operation::send_only, at(psn, ack_request), bytes_of(bytes, tag));
    }
    /// Returns the AETH syndrome if exactly one packet arrives and is an ACK or a NAK. Otherwise returns -1.
    int answer() {
        last = puppet.listen(50'000);
        return last.size() == 1 && last[0].op() == Operation::ack ? last[0].packet.syndrome : -1;
    }
    static bool is_ack(int syndrome) { return syndrome >= 0 && syndrome < 0x20; }
    std::vector<Puppet::Got> last;
};

}  // namespace roci::sim
