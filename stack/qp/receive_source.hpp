// Where the messages of a QP go: to the receives of its queue or SRQ in order, or, for a QP of a tag matching SRQ, to the buffers
// that their tags match. Responder, completion and slow memory use the functions at the end, so that the two are told apart here
// alone.
#pragma once

#include "qp/roles.hpp"

namespace roci::qp {

/// A part of a packet's payload and its place in the message's buffers.
struct Part {
    uint64_t offset = 0;
    const uint8_t* payload = nullptr;
    uint32_t length = 0;
};

/// receive_queue.cpp
struct OrderedReceives {
    static TakeRecv take(Context& ctx, Qp& qp, const wire::Packet& p) { return take_recv(ctx, qp, &p); }
    static bool locate(const Qp&, const wire::Packet&, Part&) { return true; }
    static bool finish_handed(Context&, Qp&, const wire::Packet&, bool) { return false; }
    static void describe(const Qp&, abi::Cqe&) {}
    static void waits(Qp&, bool) {}
};
/// tag_matching.cpp
struct TaggedReceives {
    static TakeRecv take(Context& ctx, Qp& qp, const wire::Packet& p);
    static bool locate(const Qp& qp, const wire::Packet& p, Part& part);
    static bool finish_handed(Context& ctx, Qp& qp, const wire::Packet& p, bool good);
    static void describe(const Qp& qp, abi::Cqe& e);
    static void waits(Qp& qp, bool begins);
};

/// Calls `use` with where the QP's messages go.
template <class Use>
inline decltype(auto) with_receives(const Qp& qp, Use&& use) {
    if (!matches_tags(qp)) [[likely]]
        return use(OrderedReceives{});
    return use(TaggedReceives{});
}

/// Called at the start of a SEND: takes its buffer.
inline TakeRecv take_message(Context& ctx, Qp& qp, const wire::Packet& p) {
    return with_receives(qp, [&](auto receives) { return receives.take(ctx, qp, p); });
}
/// Corrects where the packet's payload goes. False: there is no payload to place (a rendezvous request).
inline bool locate(const Qp& qp, const wire::Packet& p, Part& part) {
    return with_receives(qp, [&](auto receives) { return receives.locate(qp, p, part); });
}
/// The headers of a rendezvous request that waited for slow memory are in place, or cannot be. False: the packet is none.
inline bool finish_handed(Context& ctx, Qp& qp, const wire::Packet& p, bool good) {
    return with_receives(qp, [&](auto receives) { return receives.finish_handed(ctx, qp, p, good); });
}
/// Adds to the completion of a receive what its kind of receives has to tell.
inline void describe(const Qp& qp, abi::Cqe& e) {
    with_receives(qp, [&](auto receives) { receives.describe(qp, e); });
}
/// A message begins or ends to wait for slow memory.
inline void message_waits(Qp& qp, bool begins) {
    with_receives(qp, [&](auto receives) { receives.waits(qp, begins); });
}

}  // namespace roci::qp
