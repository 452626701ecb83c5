// Selects the receive buffers for the messages of a QP. A QP of a tag matching SRQ uses the buffers that match the messages'
// tags. Any other QP uses the receive WQEs of its RQ or SRQ in order. responder.cpp, completion.cpp and slow_memory.cpp call
// the functions at the end of this file, which select the kind of receive buffers.
#pragma once

#include "qp/roles.hpp"

namespace roci::qp {

/// A part of a packet's payload, and the position of this part in the buffers of the message.
struct Part {
    uint64_t offset = 0;
    const uint8_t* payload = nullptr;
    uint32_t length = 0;
};

/// Receive WQEs of an RQ or SRQ, in order (receive_queue.cpp).
struct OrderedReceives {
    static TakeRecv take(Context& ctx, Qp& qp, const wire::Packet& p) { return take_recv(ctx, qp, &p); }
    static bool locate(const Qp&, const wire::Packet&, Part&) { return true; }
    static bool finish_handed(Context&, Qp&, const wire::Packet&, bool) { return false; }
    static void describe(const Qp&, abi::Cqe&) {}
    static void waits(Qp&, bool) {}
};
/// Tagged buffers of a tag matching SRQ (tag_matching.cpp).
struct TaggedReceives {
    static TakeRecv take(Context& ctx, Qp& qp, const wire::Packet& p);
    static bool locate(const Qp& qp, const wire::Packet& p, Part& part);
    static bool finish_handed(Context& ctx, Qp& qp, const wire::Packet& p, bool good);
    static void describe(const Qp& qp, abi::Cqe& e);
    static void waits(Qp& qp, bool begins);
};

/// Calls `use` with a TaggedReceives if the QP's SRQ matches tags, otherwise with an OrderedReceives.
template <class Use>
inline decltype(auto) with_receives(const Qp& qp, Use&& use) {
    if (!matches_tags(qp)) [[likely]]
        return use(OrderedReceives{});
    return use(TaggedReceives{});
}

/// Takes the receive buffer for a message. Called for the first packet of a SEND.
inline TakeRecv take_message(Context& ctx, Qp& qp, const wire::Packet& p) {
    return with_receives(qp, [&](auto receives) { return receives.take(ctx, qp, p); });
}
/// If the message has matched a tagged buffer, removes the tag matching header from `part` and corrects the position in the
/// buffer. Returns false if no payload is stored, because the message is a rendezvous request.
inline bool locate(const Qp& qp, const wire::Packet& p, Part& part) {
    return with_receives(qp, [&](auto receives) { return receives.locate(qp, p, part); });
}
/// Completes a rendezvous request whose headers were being written to slow memory (mem/slow_memory.hpp). `good` is false if the
/// write failed. Returns false if the packet is not such a request.
inline bool finish_handed(Context& ctx, Qp& qp, const wire::Packet& p, bool good) {
    return with_receives(qp, [&](auto receives) { return receives.finish_handed(ctx, qp, p, good); });
}
/// Adds the fields of tag matching to a completion.
inline void describe(const Qp& qp, abi::Cqe& e) {
    with_receives(qp, [&](auto receives) { receives.describe(qp, e); });
}
/// Records that a message begins to wait for slow memory, or no longer waits.
inline void message_waits(Qp& qp, bool begins) {
    with_receives(qp, [&](auto receives) { receives.waits(qp, begins); });
}

}  // namespace roci::qp
