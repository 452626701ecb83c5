// Messages with arbitrary tag matching headers to a tag matching SRQ, and operations on its tag list. The message of a bystander
// must arrive, and nothing may be left.
#include <infiniband/verbs.h>

#include <array>

#include "base/bytes.hpp"
#include "records.hpp"
#include "rig.hpp"
#include "targets.hpp"

namespace roci::fuzz::tm {
namespace {

constexpr uint8_t kNoTag = 0, kRendezvous = 1, kFin = 2, kEager = 3;  // opcodes of the header
constexpr uint64_t kBuffer = 4096;

enum : size_t { kMatched, kData, kUnexpected, kRead, kInError };

class Receiver {
public:
    explicit Receiver(Rig& rig)
        : rig_(rig),
          from_(rig.host(), 0, kHostile),
          to_(rig.host(), 1, kHostile),
          srq_(to_.client.create_tag_srq(to_.pd, to_.cq, 16, 16, 16)),
          sends_(from_.qp()),
          receives_(to_.qp({.srq = &srq_})) {
        sim::connect(from_.client, sends_, to_.client, receives_, {.rnr_retry = 0});
    }
    void apply(const Record& r, Reach& reach) {
        using Step = void (Receiver::*)(Fields);
        static constexpr Step kSteps[] = {&Receiver::message, &Receiver::tag, &Receiver::buffer, &Receiver::run};
        (this->*kSteps[r.kind % std::size(kSteps)])(Fields(r.body));
        poll(reach);
    }
    void end(Reach& reach) {
        rig_.world().run_for(100'000);
        poll(reach);
        reach(kInError, to_.client.query(receives_).attr.qp_state == IBV_QPS_ERR);
        rig_.exchange();
        require(from_.client.guards_intact() && to_.client.guards_intact(), "nobody wrote beside registered memory");
    }
    uint32_t rkey() const { return from_.mr.rkey; }
    uint32_t lkey() const { return to_.mr.lkey; }

private:
    /// Sends a message. The body of the record is the start of the payload, and `more` bytes of memory follow.
    void message(Fields f) {
        const uint32_t more = f.u16() % 8192;
        const size_t n = std::min<size_t>(f.rest().size(), 4096);
        std::memcpy(from_.mr.data(), f.rest().data(), n);
        (void)from_.client.post_send(sends_, from_.send(1, 0, uint32_t(n) + more));
        rig_.world().run_for(2'000);
    }
    void tag(Fields f) {
        auto op = f.take<abi::TagOp>();
        (void)to_.client.post_tag(srq_, op);
        rig_.world().run_for(400);
    }
    void buffer(Fields f) { (void)to_.client.post_srq_recv(srq_, 3, {to_.sge(32768, 1 + f.u16() % 8192)}); }
    void run(Fields f) { rig_.world().run_for(200 * (1 + f.u8())); }
    void poll(Reach& reach) {
        from_.poll();
        for (auto e = to_.client.poll(to_.cq); e; e = to_.client.poll(to_.cq)) {
            const bool good = e->status == abi::WcStatus::success;
            reach(kMatched, good && (e->wc_flags & abi::kWcTmMatch) != 0);
            reach(kData, good && (e->wc_flags & abi::kWcTmDataValid) != 0);
            reach(kUnexpected, good && e->queue == abi::kCqeSrq);
            reach(kRead, good && e->opcode == abi::WcOpcode::tm_recv && e->byte_len == kLong);
        }
    }

public:
    static constexpr uint32_t kLong = 777;  ///< length of the rendezvous messages of the seeds

private:
    Rig& rig_;
    Party from_, to_;
    Srq& srq_;
    Qp &sends_, &receives_;
};

// ---- seeds ----------------------------------------------------------------------------------------------------------

enum Kind : uint8_t { kMessage, kTagOp, kBufferKind, kRun };

Body header(uint8_t opcode, uint64_t tag) {
    std::array<uint8_t, 16> h{};
    h[0] = opcode;
    store_be<uint64_t>(&h[8], tag);
    return Body().put(h);
}
void add_message(Bytes& out, const Body& payload, uint16_t more) { append(out, kMessage, Body().put(more).put(Input(payload))); }
void add_tag(Bytes& out, uint32_t lkey, abi::TagOpcode opcode, uint64_t tag) {
    abi::TagOp op{};
    op.opcode = opcode;
    op.flags = abi::kTagSignaled;
    op.recv_wr_id = 5;
    op.tag = tag;
    op.mask = ~uint64_t{0};
    op.num_sge = opcode == abi::TagOpcode::add ? 1 : 0;
    op.sges[0] = {Party::kAddress, kBuffer, lkey};
    append(out, kTagOp, Body().put(op));
}
/// A rendezvous request: the header, then the address, the R_Key and the length of the data in big endian.
Body request(uint32_t rkey, uint32_t length) {
    std::array<uint8_t, 16> r{};
    store_be<uint64_t>(&r[0], Party::kAddress + 8192);
    store_be<uint32_t>(&r[8], rkey);
    store_be<uint32_t>(&r[12], length);
    return header(kRendezvous, 5).put(r).put(uint64_t{0});
}

}  // namespace

void run(Input in, Reach& reach) {
    Rig rig(1, 2);
    {
        Receiver receiver(rig);
        RecordReader reader(in);
        for (Record r; reader.next(r);) receiver.apply(r, reach);
        receiver.end(reach);
    }
    rig.require_only_bystander();
    rig.end();
}

std::vector<Bytes> seeds() {
    Rig rig(1, 2);
    const Receiver receiver(rig);
    std::vector<Bytes> all;
    const auto add = [&](const Body& payload, uint16_t more) {
        for (const bool expected : {true, false}) {
            Bytes& out = all.emplace_back();
            append(out, kBufferKind, Body().put(uint16_t(8000)));
            if (expected) add_tag(out, receiver.lkey(), abi::TagOpcode::add, 5);
            add_message(out, payload, more);
            append(out, kRun, Body().put(uint8_t(255)));
        }
    };
    for (const uint8_t opcode : {kNoTag, kFin, kEager})
        for (const int more : {0, 500, 3000, 5000}) add(header(opcode, 5), uint16_t(more));
    add(request(receiver.rkey(), Receiver::kLong), 0);
    add(request(receiver.rkey() + 1, Receiver::kLong), 0);
    add(Body().put(uint8_t(kEager)), 0);
    Bytes& list = all.emplace_back();
    for (const uint64_t tag : {5, 6, 5}) add_tag(list, receiver.lkey(), abi::TagOpcode::add, tag);
    add_tag(list, receiver.lkey(), abi::TagOpcode::sync, 0);
    add_tag(list, receiver.lkey(), abi::TagOpcode::del, 0);
    for (int i = 0; i < 3; ++i) add_message(list, header(kEager, 5), 100);
    return all;
}

std::vector<Outcome> outcomes() {
    return numbered({"matched", "data in a tagged buffer", "unexpected", "data read", "queue pair in error"});
}

}  // namespace roci::fuzz::tm
