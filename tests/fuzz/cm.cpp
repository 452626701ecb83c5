// Sends frames with arbitrary MADs to QP 1 of a host. Its conductor (rocid's control thread) has a listener and a connection.
// Afterwards the listener must still accept a connection, and a message of a bystander (rig.hpp) must arrive. No object of the
// connections may be left.
#include <infiniband/verbs.h>

#include <cstring>
#include <optional>

#include "cm/mad.hpp"
#include "connector.hpp"
#include "host/rdma_cm/service.hpp"
#include "pcap_file.hpp"
#include "records.hpp"
#include "samples.hpp"
#include "targets.hpp"

namespace roci::fuzz::cm {
namespace {

namespace real = roci::cm;
using abi::Op;
using host::rdma_cm::CmEventType;

/// Kinds of records. A MAD comes from the peer of the connection, or from an address without a host.
enum Kind : uint8_t { kFromPeer, kFromStranger, kWholeFrame, kPass, kKinds };
enum : size_t { kAnswers = size_t(CmEventType::user) + 1, kParsed };

class Connection {
public:
    explicit Connection(Rig& rig)
        : rig_(rig),
          server_(rig.host(0), 0, kHostile),
          caller_(rig.host(1), 0, kHostile),
          server_qp_(server_.qp()),
          caller_qp_(caller_.qp()),
          listening_(server_.client, pass()),
          calling_(caller_.client, pass()) {
        for (const uint32_t index : {0u, kOtherGid}) listening_.listen(gid(0, index));
        ids_ = fuzz::connect(calling_, listening_, caller_qp_, server_qp_);
    }
    /// The input takes the place of the peer: the MADs that the peer sends itself are lost.
    void silence_peer() {
        rig_.world().net().set_script([this](const sim::Sent& s) {
            const bool mad = s.from == rig_.host(1).endpoint(0) && s.parsed && s.packet.dest_qp == io::kGsiQpn;
            return sim::Verdict{mad ? sim::Verdict::drop : sim::Verdict::pass};
        });
    }

    void apply(const Record& r, Reach& reach) {
        switch (Kind(r.kind % kKinds)) {
            case kFromPeer:
            case kFromStranger:
                receive(r.body, r.kind % kKinds == kFromStranger, reach);
                break;
            case kWholeFrame:
                rig_.world().net().inject(rig_.host().endpoint(0), {r.body.begin(), r.body.end()});
                break;
            default:
                rig_.world().run_for(1'000'000 * uint64_t(Fields(r.body).u16()));
        }
        rig_.world().run_for(5'000);
        serve(reach);
    }
    /// Requires that the listener accepts another connection. The new connection uses other addresses than the first one,
    /// because the input may have used the numbers that the peer would use next.
    void end(Reach& reach) {
        rig_.world().net().set_script({});
        for (int i = 0; i < 3; ++i) {
            rig_.world().run_for(5'000'000);
            serve(reach);
        }
        Client& c = calling_.client();
        for (abi::CmEventReply e{}; c.try_call(Op::cm_get_event, abi::HandleRequest{calling_.channel(), 0}, e) == 0;) {
        }
        connect_again(kOtherGid);
        rig_.exchange();
    }
    void connect_again(uint32_t gid_index = 0) {
        ids_ = fuzz::connect(calling_, listening_, caller_.qp(), server_.qp(), gid_index);
    }
    Connector& calling() { return calling_; }
    std::pair<uint32_t, uint32_t> ids() const { return ids_; }

private:
    std::function<void()> pass() {
        return [this] { rig_.world().run_for(10'000); };
    }
    static constexpr uint32_t kOtherGid = 1;
    const Gid& gid(uint32_t host, uint32_t index = 0) { return rig_.host(host).device(0).gids[index]; }

    void receive(Input mad, bool stranger, Reach& reach) {
        wire::PathSpec path;
        path.source_mac = rig_.host(1).device(0).mac;
        path.dest_mac = rig_.host(0).device(0).mac;
        path.source_gid = gid(1);
        path.dest_gid = gid(0);
        if (stranger) path.source_gid.bytes[15] = 99;
        wire::TransportHeaders h;
        h.opcode = wire::make_opcode(wire::Service::ud, wire::Operation::send_only);
        h.dest_qp = h.src_qp = io::kGsiQpn;
        h.qkey = io::kGsiQkey;
        h.pkey = 0xffff;
        const auto length = uint32_t(std::min<size_t>(mad.size(), 4096));
        rig_.world().net().inject(rig_.host().endpoint(0), test::build_frame(path, h, mad.data(), length));
        real::Header header;
        reach(kParsed, real::parse_header(mad, header));
    }
    /// Handles the events of the listening program. Accepts every second request and rejects the others.
    void serve(Reach& reach) {
        Client& c = listening_.client();
        for (abi::CmEventReply e{}; c.try_call(Op::cm_get_event, abi::HandleRequest{listening_.channel(), 0}, e) == 0;) {
            reach(e.event);
            if (CmEventType(e.event) != CmEventType::connect_request) continue;
            if (++requests_ % 2 != 0) {
                reach(kAnswers, listening_.connect(Op::cm_accept, e.id, server_qp_.qpn) == 0);
                continue;
            }
            abi::CmRejectRequest reject{};
            reject.id = e.id;
            (void)c.try_call(Op::cm_reject, reject);
            (void)listening_.call(Op::cm_destroy_id, e.id);
        }
    }

    Rig& rig_;
    Party server_, caller_;
    Qp &server_qp_, &caller_qp_;
    Connector listening_, calling_;
    std::pair<uint32_t, uint32_t> ids_;
    uint64_t requests_ = 0;
};

}  // namespace

void run(Input in, Reach& reach) {
    Rig rig(2, 1);
    {
        Connection connection(rig);
        connection.silence_peer();
        RecordReader reader(in);
        for (Record r; reader.next(r);) connection.apply(r, reach);
        connection.end(reach);
    }
    rig.require_only_bystander();
    rig.end();
}

/// The MADs that a caller sends when it connects again and disconnects, and the MADs of a capture.
std::vector<Bytes> seeds() {
    Rig rig(2, 1);
    Connection connection(rig);
    std::vector<Bytes> all(1);
    rig.world().net().set_watch([&](const sim::Sent& s) {
        if (!s.parsed || s.from != rig.host(1).endpoint(0) || s.packet.dest_qp != io::kGsiQpn) return;
        append(all[0], kFromPeer, {s.packet.payload, s.packet.payload_length});
        append(all.emplace_back(), kFromPeer, {s.packet.payload, s.packet.payload_length});
        append(all.emplace_back(), kFromStranger, {s.packet.payload, s.packet.payload_length});
        append(all.emplace_back(), kWholeFrame, s.bytes);
    });
    const uint32_t first = connection.ids().first;
    connection.connect_again();
    for (const uint32_t id : {connection.ids().first, first}) {
        (void)connection.calling().call(Op::cm_disconnect, id);
        rig.world().run_for(100'000);
    }
    rig.world().net().set_watch({});
    for (const Bytes& frame : test::read_pcap(ROCI_TEST_DATA "/cm.pcap")) {
        wire::Packet p;
        if (wire::parse(frame.data(), uint32_t(frame.size()), p) == wire::Verdict::ok)
            append(all.emplace_back(), kFromPeer, {p.payload, p.payload_length});
    }
    Bytes& waits = all.emplace_back(all[1]);
    append(waits, kPass, Body().put(uint16_t(20'000)));
    return all;
}

std::vector<Outcome> outcomes() {
    const auto event = [](CmEventType type) { return size_t(type); };
    return {{event(CmEventType::connect_request), "event: connect request"},
            {event(CmEventType::established), "event: established"},
            {event(CmEventType::disconnected), "event: disconnected"},
            {kAnswers, "request accepted"},
            {kParsed, "MAD of connection management"}};
}

}  // namespace roci::fuzz::cm
