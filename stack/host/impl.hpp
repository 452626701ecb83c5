// Inside of the conductor: the tables of all sessions, and what a handler is given.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "host/capabilities.hpp"
#include "host/conductor.hpp"
#include "host/numbers.hpp"
#include "host/objects.hpp"
#include "host/outcome.hpp"

namespace roci::host {

struct CmService;   // cm.hpp
struct Neighbours;  // neighbours.hpp

struct Conductor::Impl {
    Impl(const Limits& limits, std::vector<DeviceConfig> devices, engine::Shared& shared, engine::CommandPort& engines,
         Platform& platform);
    ~Impl();

    const Limits limits;
    const Capabilities caps;
    std::vector<DeviceConfig> devices;  ///< but for their addresses, they stay what they were
    engine::Shared& shared;
    engine::CommandPort& engines;
    Platform& platform;

    qp::Pool qps;
    Pool<mem::MemoryRegion> regions;
    std::map<uint32_t, std::unique_ptr<Session>> sessions;
    uint32_t last_session = 0;
    NumberPool qpns, keys, ahs, srqns;
    std::unordered_set<uint32_t> pd_numbers;
    uint32_t last_pd = 0;
    /// XRC domains that were opened with a file, by device and file; an entry whose domain is gone is replaced.
    std::map<std::pair<uint32_t, FileIdentity>, std::weak_ptr<XrcDomain>> xrc_files;
    uint32_t last_xrcd = 0;
    std::unique_ptr<engine::MulticastTable> multicast;  ///< what the engines look at
    std::vector<uint8_t> key_variant;                   ///< by key index
    std::vector<uint32_t> engine_load;                  ///< QPs and SRQs an engine
    uint32_t next_engine = 0;
    std::vector<std::unique_ptr<engine::PortAddresses>> addresses;

    Nanos now = 0;  ///< of the last service()
    std::unique_ptr<CmService> cm;
    std::unique_ptr<Neighbours> neighbours;

    /// Runs one request of a session.
    Reply answer(uint32_t session, std::span<const std::byte> packet, std::span<const int> fds, bool& close);

    uint32_t new_pd_number();
    Key new_key(uint32_t index) { return {index << 8 | ++key_variant[index]}; }
    /// The engine with the fewest QPs; among equals they take turns.
    uint32_t pick_engine();
    /// When this returns, no engine uses anything that was cleared from the shared tables before.
    void fence_all();
    int execute(uint32_t engine, engine::Command& command) {
        engines.execute(engine, command);
        return command.error;
    }
    Session* find(uint32_t session) const {
        const auto it = sessions.find(session);
        return it == sessions.end() ? nullptr : it->second.get();
    }
    /// False in the simulator, where descriptors are -1.
    bool real_descriptors() const { return platform.engine_page_fd() >= 0; }
};
using Host = Conductor::Impl;

/// What engines are to know of a device.
std::unique_ptr<engine::PortAddresses> port_addresses(const DeviceConfig& device);

/// Descriptors that came with a request: whatever is not taken is closed.
class ReceivedFds {
public:
    ReceivedFds(Platform& platform, std::span<const int> fds) : platform_(platform), fds_(fds.begin(), fds.end()) {}
    ~ReceivedFds() {
        for (const int fd : fds_) platform_.close_fd(fd);
    }
    ReceivedFds(const ReceivedFds&) = delete;
    size_t count() const { return fds_.size(); }
    int peek() const { return fds_.back(); }
    int take() {
        const int fd = fds_.back();
        fds_.pop_back();
        return fd;
    }

private:
    Platform& platform_;
    std::vector<int> fds_;
};

/// One request on its way through a handler.
struct Call {
    Host& host;
    Session& session;
    std::span<const std::byte> request;  ///< body, at least as long as the operation's smallest
    ReceivedFds& received;
    std::vector<std::byte> body;  ///< of the reply
    std::vector<int> fds;
    std::vector<int> keep_open;  ///< parallel to fds
    bool close = false;

    /// The request's body, zero-extended when the client's struct is shorter than ours.
    template <class T>
    T in() const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        if (!request.empty()) std::memcpy(&value, request.data(), std::min(sizeof value, request.size()));
        return value;
    }
    /// What follows the fixed part.
    std::span<const std::byte> after(size_t fixed) const {
        return request.size() > fixed ? request.subspan(fixed) : std::span<const std::byte>{};
    }

    template <class T>
    void answer(const T& value, size_t length = sizeof(T)) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto* p = reinterpret_cast<const std::byte*>(&value);
        body.assign(p, p + length);
    }
    /// A descriptor to send; `keep`: it stays open here (it belongs to the platform).
    void give(int fd, bool keep) {
        fds.push_back(fd);
        keep_open.push_back(keep ? 1 : 0);
    }
    const DeviceConfig& device() const { return host.devices[*session.device]; }
};

/// The object of a handle, or ENOENT that says which, as the kernel has it.
template <class T, class Pointer>
Outcome look_up(const HandleTable<T, Pointer>& table, uint32_t handle, const char* kind, T*& out) {
    out = table.find(handle);
    if (out == nullptr) return fail(ENOENT, "no {} with handle {}: never made, or destroyed already", kind, handle);
    return done();
}
inline Outcome must_be_idle(const std::atomic<uint32_t>& uses, const char* kind, const char* users) {
    const uint32_t n = uses.load(std::memory_order_relaxed);
    if (n != 0) return fail(EBUSY, "{} is in use by {} {}; destroy them first", kind, n, users);
    return done();
}
template <class T, class Pointer>
Outcome has_room(const HandleTable<T, Pointer>& table, uint32_t limit, const char* kind) {
    if (table.count() >= limit) return fail(ENOMEM, "session has {} {}s, the limit", limit, kind);
    return done();
}

}  // namespace roci::host
