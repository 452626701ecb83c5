#include "host/rdma_cm/journal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "host/newest.hpp"
#include "host/rdma_cm/service.hpp"
#include "wire/describe.hpp"

namespace roci::host::rdma_cm {
namespace {

struct EventText {
    bool fails;
    const char* text;
};
constexpr EventText kEvents[] = {
#define X(name, fails, text) {fails, text},
    ROCI_CM_EVENTS(X)
#undef X
};

/// The texts that describe the cause of an event, and the advice to the user.
struct Cause {
    CmHappening what;
    int32_t code;  ///< kAny: the row applies to every code that has no other row
    const char* text;
    const char* advice;
};
constexpr int32_t kAny = -1;
constexpr int32_t of(cm::Reason r) { return int32_t(r); }
constexpr int32_t of(cm::SidrStatus s) { return int32_t(s); }
using enum CmHappening;
constexpr Cause kCauses[] = {
    {unresolved, kAny, "the address of the peer was not found on the network",
     "is the address right, is the peer up, and is it on this network or behind a gateway that answers?"},
    {call_refused, kAny, "a call of the program was refused", "the text behind it names the argument"},
    {turned_away, kAny, "the program rejected the request with rdma_reject", "its own log has the reason"},
    {no_room, kAny, "the listener's backlog was full, or the request was for another kind of QP",
     "fetch requests faster, raise the backlog of rdma_listen, and compare the QP types of both ends"},
    {rejected, of(cm::Reason::no_qp), "the peer has no QP for it", "the peer is out of QPs; look at its limits"},
    {rejected, of(cm::Reason::no_resources), "the peer is out of resources", "look at the peer's limits and its log"},
    {rejected, of(cm::Reason::insufficient_resources), "the peer is out of resources",
     "lower responder_resources and initiator_depth, and look at the peer's limits"},
    {rejected, of(cm::Reason::timeout), "the peer waited in vain for our next message",
     "the network loses messages, or this program was too slow to answer"},
    {rejected, of(cm::Reason::unsupported), "the peer does not know this kind of request", "compare QP types and versions"},
    {rejected, of(cm::Reason::invalid_service_id), "nobody listens on that port at the peer",
     "start the server first; compare address, port and port space with its rdma_bind_addr and rdma_listen"},
    {rejected, of(cm::Reason::invalid_transport), "the peer's listener is for another kind of QP", "compare the QP types"},
    {rejected, of(cm::Reason::stale_connection), "the peer still has a connection of this QP number",
     "it ends by itself; try again with a new QP"},
    {rejected, of(cm::Reason::invalid_gid), "the peer does not have the address that was asked for", "compare the addresses"},
    {rejected, of(cm::Reason::invalid_mtu), "the peer does not take the path MTU", "set both ports to the same MTU"},
    {rejected, of(cm::Reason::consumer), "the peer's program rejected it, or its backlog was full",
     "its log or its private data has the reason; raise its backlog"},
    {rejected, kAny, "the peer rejected it", "the reason's number is that of IBA 12.6.7.2"},
    {unserved, of(cm::SidrStatus::invalid_service_id), "nobody listens on that port at the peer",
     "start the server first; compare address and port"},
    {unserved, kAny, "the peer does not serve it", "the status is that of IBA 12.11.2"},
    {unanswered, kAny, "the peer is silent",
     "does an RDMA service run at that address, and does the network carry UDP port 4791 both ways?"},
    {gone, kAny, "the peer went away without a goodbye", "look at the end of its program, and at the network"},
};

const Cause* cause_of(const CmEntry& e) {
    const auto* found =
        std::ranges::find_if(kCauses, [&](const Cause& c) { return c.what == e.what && (c.code == kAny || c.code == e.code); });
    return found == std::end(kCauses) ? nullptr : found;
}

const char* space_text(cm::PortSpace s) {
    return s == cm::PortSpace::tcp ? "TCP" : s == cm::PortSpace::udp ? "UDP" : s == cm::PortSpace::ib ? "IB" : "IPoIB";
}

std::string end_text(const Gid& gid, uint16_t port) {
    return fmt::format("{} port {}", gid.is_zero() ? std::string("any address") : wire::to_text(gid), port);
}

std::string entry_text(const CmEntry& e) {
    const std::string code = e.what == unresolved ? std::string(std::strerror(-e.code)) : std::to_string(e.code);
    return fmt::format(fmt::runtime(kEvents[size_t(e.what)].text), code) + (e.text.empty() ? "" : ": " + e.text);
}

CmStory story_of(const Session& s, const CmId& id) {
    CmStory out;
    out.id = id.handle;
    out.uid = s.who.uid;
    out.pid = int(s.who.pid);
    out.program = s.program;
    out.space = id.space;
    out.qpn = id.qpn;
    out.local = id.device ? id.local : to_gid(id.source);
    out.remote = id.remote.is_zero() ? to_gid(id.dest) : id.remote;
    out.local_port = id.source.port;
    out.remote_port = id.dest.port;
    out.listener = id.state == IdState::listening;
    out.passive = !id.journal.entries().empty() && id.journal.entries().front().what == request;
    out.journal = id.journal;
    return out;
}

bool may_see(const State& state, const Client& viewer, uint32_t owner) { return state.privileged(viewer) || viewer.uid == owner; }

/// A destroyed id (`gone`), or an existing id (`id`) with its session.
struct Known {
    const CmStory* gone = nullptr;
    const Session* session = nullptr;
    const CmId* id = nullptr;
};

/// Returns the newest `most` of the ids that the viewer may see. If `qpn` is not 0, returns only ids of this QP. Visits each id
/// once and copies no journal.
Newest<Known> known(const State& state, const Client& viewer, size_t most, uint32_t qpn = 0) {
    Newest<Known> out(most);
    const auto offer = [&](uint32_t of, const CmJournal& journal, const Known& what) {
        if ((qpn == 0 || of == qpn) && !journal.entries().empty()) out.offer(journal.entries().back().at, what);
    };
    for (const CmStory& s : state.cm->gone.all())
        if (may_see(state, viewer, s.uid)) offer(s.qpn, s.journal, {.gone = &s});
    for (const auto& [number, client] : state.cm->clients) {
        const Session* s = state.find(number);
        if (s == nullptr || !may_see(state, viewer, s->who.uid)) continue;
        client.ids.each([&](uint32_t, const CmId& id) { offer(id.qpn, id.journal, {.session = s, .id = &id}); });
    }
    return out;
}

std::string text_of(const Known& k, Nanos now) {
    return story_text(k.gone != nullptr ? *k.gone : story_of(*k.session, *k.id), now);
}

}  // namespace

void CmJournal::add(Nanos at, CmHappening what, int32_t code, std::string text) {
    if (entries_.size() == kMost) entries_.erase(entries_.begin() + 1);
    entries_.push_back({at, what, code, std::move(text)});
}

bool CmJournal::failed() const {
    return std::ranges::any_of(entries_, [](const CmEntry& e) { return kEvents[size_t(e.what)].fails; });
}

void CmArchive::keep(CmStory story) {
    const bool failed = story.journal.failed();
    const auto like = [&, uid = story.uid](const CmStory& s) { return s.uid == uid && s.journal.failed() == failed; };
    const size_t most = failed ? kFailedOfUser : kOtherOfUser;
    if (size_t(std::ranges::count_if(all_, like)) >= most) all_.erase(std::ranges::find_if(all_, like));
    if (all_.size() >= kMost) all_.pop_front();
    story.gone = true;
    all_.push_back(std::move(story));
}

std::string story_text(const CmStory& s, Nanos now) {
    const auto& entries = s.journal.entries();
    const char* way = s.listener ? "listens at" : s.passive ? "asked from" : "to";
    std::string out = fmt::format("id {} of {} (pid {}), {} {} {}", s.id, s.program, s.pid, space_text(s.space), way,
                                  s.listener ? end_text(s.local, s.local_port) : end_text(s.remote, s.remote_port));
    if (!s.listener && !s.local.is_zero()) out += fmt::format(", here {}", end_text(s.local, s.local_port));
    if (s.qpn != 0) out += fmt::format(", QP {}", s.qpn);
    out += s.gone ? ": destroyed\n" : "\n";
    for (auto e = entries.rbegin(); e != entries.rend(); ++e) {
        const Cause* cause = kEvents[size_t(e->what)].fails ? cause_of(*e) : nullptr;
        if (cause == nullptr) continue;
        out += fmt::format("cause: {}{}\nlook at: {}\n", cause->text, e->text.empty() ? "" : ": " + e->text, cause->advice);
        break;
    }
    out += fmt::format("what happened, from {:.1f} s ago on:\n", double(now - std::min(now, entries.front().at)) / 1e9);
    for (const CmEntry& e : entries)
        out += fmt::format("  +{:.6f} s  {}\n", double(e.at - entries.front().at) / 1e9, entry_text(e));
    return out;
}

void note_refusal(State& state, Session& session, std::span<const std::byte> request, const char* operation,
                  const std::string& reason) {
    static constexpr std::string_view kTold[] = {"cm_bind",   "cm_resolve_addr", "cm_resolve_route",
                                                 "cm_listen", "cm_connect",      "cm_accept"};
    if (std::ranges::find(kTold, std::string_view(operation)) == std::end(kTold) || request.size() < sizeof(uint32_t)) return;
    uint32_t handle = 0;
    std::memcpy(&handle, request.data(), sizeof handle);
    const auto client = state.cm->clients.find(session.id);
    CmId* id = client != state.cm->clients.end() ? client->second.ids.find(handle) : nullptr;
    if (id != nullptr) id->journal.add(state.now, call_refused, 0, fmt::format("rdma_{}: {}", operation + 3, reason));
}

void archive(State& state, uint32_t session, const CmId& id) {
    const Session* s = state.find(session);
    if (s != nullptr && !id.journal.entries().empty()) state.cm->gone.keep(story_of(*s, id));
}

std::string connections_text(const State& state, const Client& viewer) {
    Newest<Known> newest = known(state, viewer, kMostTold);
    const uint64_t older = newest.left_out();
    std::string out;
    for (const Known& k : newest.take()) out += (out.empty() ? "" : "\n") + text_of(k, state.now);
    if (out.empty()) return "rdma_cm: no connection and no attempt of yours is known\n";
    return (older != 0 ? fmt::format("({} older ones are left out)\n\n", older) : "") + out;
}

std::string connection_text(const State& state, const Client& viewer, uint32_t qpn) {
    const auto newest = known(state, viewer, 1, qpn).take();
    return newest.empty() ? "" : "\nits connection (rdma_cm):\n" + text_of(newest.front(), state.now);
}

}  // namespace roci::host::rdma_cm
