// The neighbour cache stores the MAC addresses of IP addresses on the link. The cache resolves addresses by solicitations and
// verifies old entries. The cache does no I/O: next_question() returns the solicitations. The caller sends each solicitation as a
// frame or queries the kernel's neighbour table.
//
// The number of entries and the number of solicitations per resolution are limited. A full cache evicts the least recently used
// entry without a MAC address. If all entries have a MAC address, the cache evicts the least recently used entry. find() creates
// entries. A received frame creates an entry only if the caller of heard() sets `worth_an_entry`.
#pragma once

#include <compare>
#include <deque>
#include <map>
#include <optional>

#include "base/types.hpp"

namespace roci::neighbour {

struct Key {
    uint32_t port = 0;
    Gid address;
    auto operator<=>(const Key&) const = default;
};

enum class Answer : uint8_t { known, pending, failed };
struct Lookup {
    Answer answer = Answer::pending;
    MacAddress mac;
};

/// A solicitation for the address `about`. The caller sends the solicitation to `mac`. If `mac` is zero, the caller sends the
/// solicitation to the broadcast address (IPv4) or to a multicast group (IPv6).
struct Question {
    Key about;
    MacAddress mac;
};
/// Result of a resolution.
struct Settled {
    Key about;
    bool known = false;
};

class Cache {
public:
    struct Config {
        size_t entries = 4096;
        uint32_t tries = 3;
        Nanos between_tries = 1'000'000'000;   ///< RETRANS_TIMER (RFC 4861 10)
        Nanos fresh = 30'000'000'000;          ///< REACHABLE_TIME (RFC 4861 10); an older entry is used and verified
        Nanos failure_counts = 1'000'000'000;  ///< time for which a failed address is not solicited again
    };
    Cache() : Cache(Config{}) {}
    explicit Cache(const Config& config) : config_(config) {}

    /// Adds a static entry.
    void configure(const Key& key, const MacAddress& mac) { configured_[key] = mac; }
    std::optional<MacAddress> configured(const Key& key) const {
        const auto it = configured_.find(key);
        return it == configured_.end() ? std::nullopt : std::optional(it->second);
    }
    /// Returns the stored MAC address, however old the entry is. Does not start a resolution.
    std::optional<MacAddress> recall(const Key& key) const {
        const auto it = entries_.find(key);
        const bool known = it != entries_.end() && (it->second.state == State::known || it->second.state == State::checking);
        return known ? std::optional(it->second.mac) : std::nullopt;
    }
    /// Returns Answer::known and the MAC address if the cache contains the MAC address. Returns Answer::failed if the last
    /// resolution failed less than `failure_counts` ago, or if the cache is full. Otherwise returns Answer::pending. Starts a
    /// resolution if the address is unknown or no longer fresh.
    Lookup find(const Key& key, Nanos now);
    /// Records the MAC address of a neighbour. If the neighbour has no entry, creates an entry only if `worth_an_entry` is set.
    /// If the entry contains a different MAC address, replaces that address only if `override_link` is set.
    void heard(const Key& key, const MacAddress& mac, Nanos now, bool worth_an_entry, bool override_link = true);
    /// Sets the state of the neighbour's entry to failed, because the kernel has removed the neighbour.
    void gone(const Key& key, Nanos now);
    /// Permits the eviction of an entry. Called when no request waits for the entry's resolution any more.
    void abandon(const Key& key);
    void forget_port(uint32_t port);

    void advance(Nanos now);
    Nanos next_deadline() const { return next_due_; }
    bool next_question(Question& out);
    bool next_settled(Settled& out);
    size_t size() const { return entries_.size(); }
    uint64_t questions() const { return asked_; }

private:
    enum class State : uint8_t { asking, known, checking /* known, and being resolved again */, failed };
    struct Entry {
        State state = State::asking;
        MacAddress mac;
        uint32_t tries = 0;
        Nanos due = 0;  ///< time of the next try; if known, end of freshness; if failed, end of failure_counts
        Nanos used = 0;
        bool waited_for = true;  ///< a request may wait for the resolution; false after abandon()

        bool may_go() const { return state != State::asking || !waited_for; }
        bool is_worth_less_than(const Entry& other) const {
            const bool knows = state == State::known || state == State::checking;
            const bool other_knows = other.state == State::known || other.state == State::checking;
            return knows != other_knows ? other_knows : used < other.used;
        }
    };
    Entry* make(const Key& key, Nanos now);
    void ask(const Key& key, Entry& e, Nanos now);
    void settle(const Key& key, Entry& e, State state, Nanos due);

    const Config config_;
    std::map<Key, MacAddress> configured_;
    std::map<Key, Entry> entries_;
    std::deque<Question> questions_;
    std::deque<Settled> settled_;
    Nanos next_due_ = kNever;  ///< advance() does nothing before this time
    uint64_t asked_ = 0;
};

}  // namespace roci::neighbour
