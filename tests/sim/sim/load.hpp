// A load: clients with random work that know the expected results. There is one file per kind.
#pragma once

#include <cstdio>
#include <deque>
#include <stdexcept>

#include "sim/plan.hpp"

namespace roci::sim {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// Throws a Failure.
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
    /// Posts, polls and checks at random. Throws Failure.
    virtual void act() = 0;
    virtual bool finished() const = 0;
    /// Grows as long as there is progress.
    virtual uint64_t done() const = 0;
    /// Checks the final state, after the network is healed and all work is done.
    virtual void check_end() = 0;
    virtual std::string state() const = 0;
    /// True if the QP ends and begins again, with other PSNs.
    virtual bool renews(Qpn) const { return false; }
};

/// The hosts and devices of the two sides of a load.
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

// ---- what all of them use ------------------------------------------------------------------------------------------

inline uint8_t payload_byte(uint64_t tag, uint64_t i) {
    return uint8_t((tag * 0x9e3779b97f4a7c15 >> 56) + i * 11 + (i >> 8) * 5 + tag);
}
void paint(uint8_t* p, uint64_t n, uint64_t tag);
/// Index of the first wrong byte, or -1.
int64_t first_wrong_byte(const uint8_t* p, uint64_t n, uint64_t tag);

inline constexpr uint8_t kEmptyByte = 0xee;  ///< of receive buffers
inline constexpr uint32_t kUnderWay = 12;    ///< requests of a sender at a time

/// A receive buffer that was posted.
struct Posted {
    uint64_t id = 0;
    std::vector<Sge> sges;
    uint32_t capacity = 0;
};

void write_sges(const std::vector<Sge>& sges, uint64_t tag);
/// Bytes [skip, skip + length) of the buffer must be the pattern.
int64_t wrong_in_sges(const std::vector<Sge>& sges, uint64_t skip, uint64_t length, uint64_t tag);
/// From byte `from` on nothing was written.
bool untouched(const std::vector<Sge>& sges, uint64_t from);
void empty_sges(const std::vector<Sge>& sges);

/// The memory of the last completed requests: nothing may be placed there again. Their memory must not be used for new ones yet.
class Sealed {
public:
    void add(const std::vector<Sge>& sges);
    void check() const;

private:
    static constexpr size_t kMost = 8;
    std::deque<std::vector<Sge>> all_;
};

/// Memory that is allocated in a circle. It is large enough that outstanding requests never overlap.
struct Pool {
    Mr* mr = nullptr;
    uint64_t cursor = 0;
    uint64_t reserved = 0;  ///< at the end
    uint64_t take(uint64_t length);
    std::vector<Sge> carve(uint64_t length, uint32_t pieces);
};
/// Room for that many bytes at a time.
uint64_t pool_bytes(const Plan& plan);
MrOptions memory_options(Rng& rng, uint32_t access);

/// Receive buffers of a QP or an SRQ, in the order in which they must be used.
struct Inbox {
    Client* client = nullptr;
    Qp* qp = nullptr;
    Srq* srq = nullptr;  ///< instead of qp
    Pool pool;
    uint32_t capacity = 0, window = 16;
    std::deque<Posted> posted;
    uint64_t next_id = 1;
    uint32_t starving = 0;
    uint32_t limit = 0;  ///< SRQ: armed limit
    uint32_t limits_hit = 0;
    /// Posts some receives, or none for a while.
    void fill(Rng& rng);
    /// The oldest buffer, which must be the one that completed.
    Posted take(uint64_t id);
    /// Arms the SRQ's limit now and then. Its event must come exactly once, when fewer receives are left.
    void watch_limit(Rng& rng, Host& host);
    /// Resizes an SRQ now and then, whatever its content. Uses its own random numbers, so that a seed's traffic does not change.
    void resize_by_chance();
    Rng sizes{1};
};

/// Resizes a CQ now and then, full or empty.
void resize_by_chance(Rng& rng, Client& client, Cq& cq);

}  // namespace roci::sim
