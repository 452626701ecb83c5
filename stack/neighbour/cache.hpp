// Which MAC an address on the link has: resolved by asking, remembered, asked again when it has become old. Sans-IO: questions
// come out as data, and whoever owns the port asks them, by a frame of ours or by the kernel's own table.
//
// Everything is bounded: entries by count (one without an answer goes first, then the one that was used longest ago), questions
// by tries, and nothing that a frame says makes an entry unless we had asked, or somebody asks us.
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

/// To be asked: who has `about`? `mac` zero: everybody is asked, else the one who had it.
struct Question {
    Key about;
    MacAddress mac;
};
/// The end of a wait.
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
        Nanos fresh = 30'000'000'000;          ///< REACHABLE_TIME: older answers are used, and asked for again
        Nanos failure_counts = 1'000'000'000;  ///< so long nobody asks again in vain
    };
    Cache() : Cache(Config{}) {}
    explicit Cache(const Config& config) : config_(config) {}

    /// An address that is never asked for and never forgotten.
    void configure(const Key& key, const MacAddress& mac) { configured_[key] = mac; }
    std::optional<MacAddress> configured(const Key& key) const {
        const auto it = configured_.find(key);
        return it == configured_.end() ? std::nullopt : std::optional(it->second);
    }
    /// What is known, however old; asks nobody.
    std::optional<MacAddress> recall(const Key& key) const {
        const auto it = entries_.find(key);
        const bool known = it != entries_.end() && (it->second.state == State::known || it->second.state == State::checking);
        return known ? std::optional(it->second.mac) : std::nullopt;
    }
    /// What is known; starts asking if nothing is, or nothing fresh.
    Lookup find(const Key& key, Nanos now);
    /// Somebody said where he is. `ask_made`: he asked us something, and will want an answer: worth an entry of its own.
    void heard(const Key& key, const MacAddress& mac, Nanos now, bool worth_an_entry, bool override_link = true);
    /// Whoever was asked says that there is nobody.
    void gone(const Key& key, Nanos now);
    /// Nobody waits for the answer any more: its place is there for others.
    void abandon(const Key& key);
    void forget_port(uint32_t port);

    void advance(Nanos now);
    Nanos next_deadline() const { return next_due_; }
    bool next_question(Question& out);
    bool next_settled(Settled& out);
    size_t size() const { return entries_.size(); }
    uint64_t questions() const { return asked_; }

private:
    enum class State : uint8_t { asking, known, checking /* known, and asked for again */, failed };
    struct Entry {
        State state = State::asking;
        MacAddress mac;
        uint32_t tries = 0;
        Nanos due = 0;  ///< asking, checking: next try; failed: until when; known: until when it is fresh
        Nanos used = 0;
        bool waited_for = true;  ///< while asking

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
    Nanos next_due_ = kNever;  ///< no try is due before it
    uint64_t asked_ = 0;
};

}  // namespace roci::neighbour
