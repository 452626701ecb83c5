// The data of one client request, which the request's handler reads and writes.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "host/outcome.hpp"
#include "host/state.hpp"

namespace roci::host {

/// The descriptors of a request. The destructor closes the descriptors that the handler has not taken.
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

/// The input and output of a handler.
struct Call {
    State& state;
    Session& session;
    std::span<const std::byte> request;  ///< body of the request; has at least the operation's min_body bytes (dispatch.cpp)
    ReceivedFds& received;
    std::vector<std::byte> body;  ///< body of the reply
    std::vector<int> fds;
    std::vector<int> keep_open;  ///< has one entry per entry of fds; 1: the descriptor stays open after sending
    bool close = false;

    /// Returns the request's body as a T. If the client's struct is shorter than T, pads the body with zeros.
    template <class T>
    T in() const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        if (!request.empty()) std::memcpy(&value, request.data(), std::min(sizeof value, request.size()));
        return value;
    }
    /// Returns the part of the request's body after the first `fixed` bytes.
    std::span<const std::byte> after(size_t fixed) const {
        return request.size() > fixed ? request.subspan(fixed) : std::span<const std::byte>{};
    }

    template <class T>
    void answer(const T& value, size_t length = sizeof(T)) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto* p = reinterpret_cast<const std::byte*>(&value);
        body.assign(p, p + length);
    }
    /// Adds a descriptor to the reply. If `keep` is true, the platform owns the descriptor. The descriptor then stays open after
    /// sending.
    void give(int fd, bool keep) {
        fds.push_back(fd);
        keep_open.push_back(keep ? 1 : 0);
    }
    const DeviceConfig& device() const { return state.devices[*session.device]; }
};

/// Looks up the object of a handle. Fails with ENOENT if the handle has no object, as the kernel's uverbs do.
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
