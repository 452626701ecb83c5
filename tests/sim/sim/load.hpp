// A load is a set of clients that do random work and check the results. There is one file per kind of load.
#pragma once

#include <cstdio>
#include <deque>
#include <stdexcept>

#include "sim/plan.hpp"

namespace roci::sim {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// Throws a Failure with a formatted text.
template <class... T>
[[noreturn]] void broken(const char* format, T... args) {
    char text[400];
    if constexpr (sizeof...(T) == 0)
        std::snprintf(text, sizeof text, "%s", format);
    else
        std::snprintf(text, sizeof text, format, args...);
    throw Failure(text);
}
inline unsigned long long ull(uint64_t n) { return n; }

class Load {
public:
    virtual ~Load() = default;
    /// Posts, polls and checks at random. Throws a Failure if an invariant is violated.
    virtual void act() = 0;
    virtual bool finished() const = 0;
    /// Returns a number that increases whenever the load makes progress.
    virtual uint64_t done() const = 0;
    /// Checks the final state, after the network is healed and all work is done.
    virtual void check_end() = 0;
    virtual std::string state() const = 0;
    /// Returns true if the load resets the QP and connects it again with other PSNs.
    virtual bool renews(Qpn) const { return false; }
    /// Returns a virtual time. If the load makes no progress for this time, it counts as hung. Any sequence of
    /// timeouts of the load is shorter than this time.
    virtual Nanos patience() const { return kPatience; }
    static constexpr Nanos kPatience = 20'000'000'000;
    /// Returns true if the load has made no progress for so long that only a timer of several seconds can be the
    /// reason.
    virtual bool waits() const { return false; }
};

/// The host and device of each side of a load.
struct Seats {
    World& world;
    Host& left;
    uint32_t left_device;
    Host& right;
    uint32_t right_device;
};
std::unique_ptr<Load> make_load(LoadKind kind, const Seats& seats, const Plan& plan, Rng& rng);
std::unique_ptr<Load> make_connected(const Seats& seats, const Plan& plan, Rng& rng, bool xrc);
std::unique_ptr<Load> make_uc(const Seats& seats, const Plan& plan, Rng& rng);
std::unique_ptr<Load> make_datagrams(const Seats& seats, const Plan& plan, Rng& rng);
std::unique_ptr<Load> make_windows(const Seats& seats, const Plan& plan, Rng& rng);
std::unique_ptr<Load> make_tags(const Seats& seats, const Plan& plan, Rng& rng);
std::unique_ptr<Load> make_endings(const Seats& seats, const Plan& plan, Rng& rng);
std::unique_ptr<Load> make_connections(const Seats& seats, const Plan& plan, Rng& rng);

// ---- shared by all loads -------------------------------------------------------------------------------------------

inline uint8_t payload_byte(uint64_t tag, uint64_t i) {
    return uint8_t((tag * 0x9e3779b97f4a7c15 >> 56) + i * 11 + (i >> 8) * 5 + tag);
}
void paint(uint8_t* p, uint64_t n, uint64_t tag);
/// Returns the index of the first byte that differs from the pattern, or -1.
int64_t first_wrong_byte(const uint8_t* p, uint64_t n, uint64_t tag);

inline constexpr uint8_t kEmptyByte = 0xee;  ///< content of receive buffers before data arrives
inline constexpr uint32_t kUnderWay = 12;    ///< maximum number of outstanding requests per sender

/// A posted receive buffer.
struct Posted {
    uint64_t id = 0;
    std::vector<Sge> sges;
    uint32_t capacity = 0;
};

void write_sges(const std::vector<Sge>& sges, uint64_t tag);
/// Checks that bytes [skip, skip + length) of the buffer are the pattern. Returns the index of the first wrong byte, or -1.
int64_t wrong_in_sges(const std::vector<Sge>& sges, uint64_t skip, uint64_t length, uint64_t tag);
/// Returns true if all bytes from `from` on still have the value kEmptyByte.
bool untouched(const std::vector<Sge>& sges, uint64_t from);
void empty_sges(const std::vector<Sge>& sges);

/// The memory of the last kMost completed requests. Nothing may write to this memory any more. No new request may use
/// it yet.
class Sealed {
public:
    void add(const std::vector<Sge>& sges);
    void check() const;

private:
    static constexpr size_t kMost = 8;
    std::deque<std::vector<Sge>> all_;
};

/// Memory that is allocated cyclically. The pool is so large that the buffers of outstanding requests never overlap.
struct Pool {
    Mr* mr = nullptr;
    uint64_t cursor = 0;
    uint64_t reserved = 0;  ///< bytes at the end that are not allocated
    uint64_t take(uint64_t length);
    std::vector<Sge> carve(uint64_t length, uint32_t pieces);
};
/// Returns the size of a pool that holds all outstanding messages.
uint64_t pool_bytes(const Plan& plan);
MrOptions memory_options(Rng& rng, uint32_t access);

/// The receive buffers of a QP or an SRQ, in the order in which completions must use them.
struct Inbox {
    Client* client = nullptr;
    Qp* qp = nullptr;
    Srq* srq = nullptr;  ///< if not null, the inbox belongs to this SRQ and not to a QP
    Pool pool;
    uint32_t capacity = 0, window = 16;
    std::deque<Posted> posted;
    uint64_t next_id = 1;
    uint32_t starving = 0;
    uint32_t limit = 0;  ///< the armed limit of the SRQ; 0: not armed
    uint32_t limits_hit = 0;
    /// Posts some receives. At random times, posts none for a while.
    void fill(Rng& rng);
    /// Removes and returns the oldest buffer. Throws a Failure if its id is not `id`.
    Posted take(uint64_t id);
    /// Arms the limit of the SRQ at random times. The limit event must come exactly once, when fewer receives than
    /// the limit are left.
    void watch_limit(Rng& rng, Host& host);
    /// Resizes an SRQ at random times, whatever receives it contains. Uses a random generator of its own (`sizes`),
    /// so that the traffic of a seed does not depend on the resizing.
    void resize_by_chance();
    Rng sizes{1};
};

/// Resizes a CQ at random times, whatever entries it contains.
void resize_by_chance(Rng& rng, Client& client, Cq& cq);

}  // namespace roci::sim
