// Records the last events of each rdma_cm id, for `roci why --cm`. CmArchive stores the events of destroyed ids. Per user,
// CmArchive stores at most kFailedOfUser ids with a failure and kOtherOfUser other ids.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "cm/ip_cm.hpp"
#include "host/state.hpp"

namespace roci::host::rdma_cm {

struct CmId;

// Each row contains a name, true if the event is a failure, and a text in which {} stands for the code.
#define ROCI_CM_EVENTS(X)                                                                                     \
    X(resolved, false, "found the peer's address on the network")                                             \
    X(unresolved, true, "did not find the peer's address on the network: {}")                                 \
    X(call_refused, true, "a call was refused")                                                               \
    X(asked, false, "asked for the connection (REQ)")                                                         \
    X(request, false, "a peer asked for a connection (REQ)")                                                  \
    X(accepted, false, "the program accepted it (REP)")                                                       \
    X(turned_away, true, "the program rejected it (REJ)")                                                     \
    X(no_room, true, "rocid rejected a request: the backlog was full, or the listener is of another QP type") \
    X(rejected, true, "the peer rejected it (REJ, reason {})")                                                \
    X(unserved, true, "the peer does not serve it (SIDR_REP, status {})")                                     \
    X(unanswered, true, "the peer did not answer any of the repeated messages")                               \
    X(established, false, "is established")                                                                   \
    X(disconnected, false, "is disconnected")                                                                 \
    X(gone, true, "the peer did not answer the disconnect (DREQ)")

enum class CmHappening : uint8_t {
#define X(name, fails, text) name,
    ROCI_CM_EVENTS(X)
#undef X
};

struct CmEntry {
    Nanos at = 0;
    CmHappening what{};
    int32_t code = 0;
    std::string text;  ///< for call_refused: the error text of the call
};

/// Stores the first event of one id and the last kMost - 1 events.
class CmJournal {
public:
    static constexpr size_t kMost = 8;
    void add(Nanos at, CmHappening what, int32_t code = 0, std::string text = {});
    const std::vector<CmEntry>& entries() const { return entries_; }
    bool failed() const;

private:
    std::vector<CmEntry> entries_;
};

struct CmStory {
    uint32_t id = 0, uid = 0, qpn = 0;
    int pid = 0;
    std::string program;
    cm::PortSpace space{};
    Gid local, remote;
    uint16_t local_port = 0, remote_port = 0;
    bool listener = false, passive = false, gone = false;
    CmJournal journal;
};

class CmArchive {
public:
    static constexpr size_t kMost = 512, kFailedOfUser = 64, kOtherOfUser = 16;
    void keep(CmStory story);
    const std::deque<CmStory>& all() const { return all_; }

private:
    std::deque<CmStory> all_;
};

/// Returns the report about one id. The report states the time from the first event to `now`.
std::string story_text(const CmStory& story, Nanos now);

/// Records in the id's journal that a call failed. The request's body begins with the handle of the id. Ignores calls other than
/// bind, resolve_addr, resolve_route, listen, connect and accept.
void note_refusal(State& state, Session& session, std::span<const std::byte> request, const char* operation,
                  const std::string& reason);
void archive(State& state, uint32_t session, const CmId& id);
/// Largest number of ids in one report.
inline constexpr size_t kMostTold = 64;
/// Returns the reports about the newest existing and destroyed ids that `viewer` may see. The newest id is last.
std::string connections_text(const State& state, const Client& viewer);
/// Returns the report about the newest id of a QP, or an empty text if the QP has no id that `viewer` may see.
std::string connection_text(const State& state, const Client& viewer, uint32_t qpn);

}  // namespace roci::host::rdma_cm
