// The internal state of the conductor (rocid's control thread): the sessions, and the tables that all sessions share.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "host/capabilities.hpp"
#include "host/conductor.hpp"
#include "host/memory_waits.hpp"
#include "host/numbers.hpp"
#include "host/objects.hpp"
#include "host/qp_facts.hpp"
#include "host/token_bucket.hpp"
#include "qp/user_rate.hpp"

namespace roci::host {

namespace paths {
struct Neighbours;  // paths/neighbours.hpp
}
namespace rdma_cm {
struct CmService;  // rdma_cm/service.hpp
}

/// The reply to a deferred request, ready to be sent.
struct HeldReply {
    uint32_t session = 0;
    Reply reply;
    bool close = false;
};

inline constexpr size_t kMostResources = 19;

struct Conductor::State {
    State(const Limits& limits, std::vector<DeviceConfig> devices, qp::Shared& shared, engine::CommandPort& engines,
          Platform& platform);
    ~State();

    const Limits limits;
    const Capabilities caps;
    std::vector<DeviceConfig> devices;  ///< constant except for addresses, link state and MTU
    qp::Shared& shared;
    engine::CommandPort& engines;
    Platform& platform;

    qp::Pool qps;
    Pool<mem::MemoryRegion> regions;
    MemoryWaits memory_waits;
    std::map<uint32_t, std::unique_ptr<Session>> sessions;
    uint32_t last_session = 0;
    NumberPool qpns, keys, ahs, srqns;
    std::unordered_set<uint32_t> pd_numbers;
    uint32_t last_pd = 0;
    /// XRC domains with a file, by device and file. Entries of destroyed domains remain until the next domain with a file is
    /// created.
    std::map<std::pair<uint32_t, FileIdentity>, std::weak_ptr<XrcDomain>> xrc_files;
    uint32_t last_xrcd = 0;
    Archive gone;
    std::unique_ptr<io::MulticastTable> multicast;  ///< the table that the engines use
    std::vector<uint8_t> key_variant;               ///< low 8 bits of the last key, by key index
    std::vector<uint32_t> engine_load;              ///< number of QPs and SRQs per engine
    uint32_t next_engine = 0;
    std::vector<std::unique_ptr<io::PortAddresses>> addresses;

    Nanos now = 0;  ///< time of the last service()
    std::unique_ptr<rdma_cm::CmService> cm;
    std::unique_ptr<paths::Neighbours> neighbours;
    std::deque<HeldReply> replies;
    std::map<uint32_t, std::array<uint64_t, kMostResources>> refused;  ///< refused requests by user and resource (quotas.cpp)
    std::map<uint32_t, TokenBucket> rates;                             ///< rates of control operations, by user
    std::map<uint32_t, qp::UserRate> user_rates;                       ///< sending rates of users with such a limit
    size_t users_to_sweep = 0;  ///< forget_idle_users() does nothing until a table of users has more entries than this
    PeerTable peers;            ///< claimed peers of connected QPs

    uint32_t new_pd_number();
    /// Returns a new key for a key index. The low 8 bits of a key are its variant. The first variant of an index is random, and
    /// each new key has the next variant. So a stale key does not become valid again soon.
    Key new_key(uint32_t index) { return {index << 8 | ++key_variant[index]}; }
    /// Returns true for root and the user of rocid.
    bool privileged(const Client& who) const { return who.uid == 0 || who.uid == platform.uid(); }
    /// Returns the engine with the fewest QPs and SRQs. Selects engines with equal numbers in turn.
    uint32_t pick_engine();
    /// Waits until no engine uses an entry that was removed from the shared tables before the call.
    void fence_all();
    /// Executes one operation on an engine and waits for its end. Returns the operation's error, or 0. `operation` contains the
    /// other results.
    template <class Operation>
    int execute(uint32_t engine, Operation&& operation) {
        engines.execute(engine, operation);
        if constexpr (requires { operation.error; }) return operation.error;
        return 0;
    }
    Session* find(uint32_t session) const {
        const auto it = sessions.find(session);
        return it == sessions.end() ? nullptr : it->second.get();
    }
    /// Returns true if the platform provides file descriptors. On a platform without descriptors, the value -1 is not an error.
    bool real_descriptors() const { return platform.engine_page_fd() >= 0; }
};
using State = Conductor::State;

}  // namespace roci::host
