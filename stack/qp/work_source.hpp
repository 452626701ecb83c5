// Selects the source of a QP's send work. A QP of a tag matching SRQ sends the READs and FINs of its matched rendezvous. Any
// other QP executes the client's send queue. The callers use the functions at the end of this file, which select the source.
#pragma once

#include <concepts>

#include "abi/reasons.hpp"
#include "qp/state.hpp"

namespace roci::qp {

struct Context;

template <class S>
concept WorkSource = requires(Context& ctx, Qp& qp, const SendRecord& r) {
    { S::posted(qp) } -> std::same_as<bool>;
    { S::fetch(qp, 1u) } -> std::same_as<bool>;
    { S::arm_doorbell(qp) } -> std::same_as<bool>;
    { S::report(ctx, qp, r, abi::WcStatus{}, abi::Reason{}) } -> std::same_as<void>;
};

/// The client's send queue (fetch.cpp). completion.cpp writes its completions.
struct ClientQueue {
    static bool posted(const Qp& qp) { return qp.spec.sq.depth != 0 && qp.spec.sq.posted(qp.requester.queue.fetched()); }
    static bool fetch(Qp& qp, uint32_t most);
    static bool arm_doorbell(Qp& qp);
    static void report(Context& ctx, Qp& qp, const SendRecord& r, abi::WcStatus status, abi::Reason reason);
};
/// The READ and the FIN of each rendezvous (rendezvous.cpp). The client has no access to the send queue.
struct MatchedRendezvous {
    static bool posted(const Qp& qp);
    static bool fetch(Qp& qp, uint32_t most);
    static bool arm_doorbell(Qp&) { return false; }  // no doorbell is needed, because received messages activate the QP
    static void report(Context& ctx, Qp& qp, const SendRecord& r, abi::WcStatus status, abi::Reason reason);
};
static_assert(WorkSource<ClientQueue> && WorkSource<MatchedRendezvous>);

/// Calls `use` with the source of the QP's send work.
template <class Use>
[[gnu::always_inline]] inline decltype(auto) with_source(const Qp& qp, Use&& use) {
    if (qp.tags == nullptr) [[likely]]
        return use(ClientQueue{});
    return use(MatchedRendezvous{});
}

/// Copies and validates posted work requests while the send queue's depth and PSNs permit. Fetches at most `most` requests from
/// a client's queue, so that only requests that are sent soon are fetched. Returns true if any request was fetched.
inline bool fetch(Qp& qp, uint32_t most) {
    return with_source(qp, [&](auto source) { return source.fetch(qp, most); });
}
/// Returns true if there is work that was not fetched yet.
[[gnu::always_inline]] inline bool posted(const Qp& qp) {
    return with_source(qp, [&](auto source) { return source.posted(qp); });
}
/// Called when all posted work is fetched. After this call, the client rings the doorbell for each post (see SqShared in
/// abi/rings.hpp). Returns true if the client may have posted meanwhile. The caller must then execute a full fence and call
/// recheck_doorbell().
inline bool arm_doorbell(Qp& qp) {
    return with_source(qp, [&](auto source) { return source.arm_doorbell(qp); });
}
bool recheck_doorbell(Qp& qp);
/// Reports to the source that work request `r` is complete.
inline void report(Context& ctx, Qp& qp, const SendRecord& r, abi::WcStatus status, abi::Reason reason) {
    with_source(qp, [&](auto source) { source.report(ctx, qp, r, status, reason); });
}

/// Validates the copied WQE and fills in the record.
void admit(Qp& qp, SendRecord& r);

}  // namespace roci::qp
