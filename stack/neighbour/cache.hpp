// The neighbour cache: MAC addresses of IP addresses on the link. It resolves an address by solicitations and checks an old entry
// again. It is sans-IO: solicitations are returned as data, and the caller sends them as frames or queries the kernel's table.
//
// Everything is bounded. The number of entries is limited (entries without an answer are evicted first, then the least recently
// used one), and so is the number of tries. A received frame creates an entry only if it answers a solicitation or is itself a
// solicitation to us.
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

/// A solicitation to be sent for the address `about`. `mac` zero: broadcast; else: unicast to the known MAC.
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
        Nanos between_tries = 1'000'000'000;   ///< RFC 4861 10: RETRANS_TIMER
        Nanos fresh = 30'000'000'000;          ///< REACHABLE_TIME: older entries are still used, but checked again
        Nanos failure_counts = 1'000'000'000;  ///< time before a failed address is solicited again
    };
    Cache() : Cache(Config{}) {}
    explicit Cache(const Config& config) : config_(config) {}

    /// Adds a static entry.
    void configure(const Key& key, const MacAddress& mac) { configured_[key] = mac; }
    std::optional<MacAddress> configured(const Key& key) const {
        const auto it = configured_.find(key);
        return it == configured_.end() ? std::nullopt : std::optional(it->second);
    }
    /// The known MAC, however old. Starts no resolution.
    std::optional<MacAddress> recall(const Key& key) const {
        const auto it = entries_.find(key);
        const bool known = it != entries_.end() && (it->second.state == State::known || it->second.state == State::checking);
        return known ? std::optional(it->second.mac) : std::nullopt;
    }
    /// The known MAC. Starts a resolution if it is unknown or not fresh.
    Lookup find(const Key& key, Nanos now);
    /// A neighbour sent its MAC. `worth_an_entry`: create an entry if there is none, because we will answer the neighbour.
    /// `override_link`: replace a different known MAC.
    void heard(const Key& key, const MacAddress& mac, Nanos now, bool worth_an_entry, bool override_link = true);
    /// The kernel reports that the neighbour does not exist.
    void gone(const Key& key, Nanos now);
    /// No request waits for the answer any more. The entry may be evicted.
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
        Nanos due = 0;  ///< asking, checking: time of the next try; failed, known: end of the state
        Nanos used = 0;
        bool waited_for = true;  ///< a request waits for the answer

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
    Nanos next_due_ = kNever;  ///< no try is due before this time
    uint64_t asked_ = 0;
};

}  // namespace roci::neighbour
