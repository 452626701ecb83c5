#include "neighbour/cache.hpp"

#include <algorithm>

namespace roci::neighbour {

void Cache::ask(const Key& key, Entry& e, Nanos now) {
    ++e.tries;
    ++asked_;
    e.due = now + config_.between_tries;
    next_due_ = std::min(next_due_, e.due);
    // The last solicitation of a check is a broadcast (IPv4) or multicast (IPv6), because another host may have the address now.
    const bool one = e.state == State::checking && e.tries < config_.tries;
    questions_.push_back({key, one ? e.mac : MacAddress{}});
}

void Cache::settle(const Key& key, Entry& e, State state, Nanos due) {
    if (e.state == State::asking) settled_.push_back({key, state == State::known});
    e.state = state;
    e.due = due;
    e.tries = 0;
}

/// Creates an entry. If the cache is full, evicts another entry. Returns nullptr if the cache is full and requests wait for all
/// entries.
Cache::Entry* Cache::make(const Key& key, Nanos now) {
    if (entries_.size() >= config_.entries) {
        auto least = entries_.end();
        for (auto it = entries_.begin(); it != entries_.end(); ++it)
            if (it->second.may_go() && (least == entries_.end() || it->second.is_worth_less_than(least->second))) least = it;
        if (least == entries_.end()) return nullptr;
        entries_.erase(least);
    }
    Entry& e = entries_[key];
    e.used = now;
    return &e;
}

Lookup Cache::find(const Key& key, Nanos now) {
    const auto it = entries_.find(key);
    if (it == entries_.end()) {
        Entry* e = make(key, now);
        if (e == nullptr) return {Answer::failed, {}};
        ask(key, *e, now);
        return {};
    }
    Entry& e = it->second;
    e.used = now;
    e.waited_for = true;
    if (e.state == State::known && e.due <= now) {
        e.state = State::checking;
        ask(key, e, now);
    }
    if (e.state == State::failed && e.due <= now) {
        e.state = State::asking;
        ask(key, e, now);
    }
    if (e.state == State::failed) return {Answer::failed, {}};
    return {e.state == State::asking ? Answer::pending : Answer::known, e.mac};
}

void Cache::heard(const Key& key, const MacAddress& mac, Nanos now, bool worth_an_entry, bool override_link) {
    auto it = entries_.find(key);
    if (it == entries_.end()) {
        if (!worth_an_entry || make(key, now) == nullptr) return;
        it = entries_.find(key);
        it->second.state = State::known;
    }
    Entry& e = it->second;
    // An advertisement without the override flag does not change a known address (RFC 4861 7.2.5).
    const bool had = e.state == State::known || e.state == State::checking;
    if (had && !override_link && !(e.mac == mac) && !e.mac.is_zero()) return;
    e.mac = mac;
    settle(key, e, State::known, now + config_.fresh);
}

void Cache::gone(const Key& key, Nanos now) {
    const auto it = entries_.find(key);
    if (it != entries_.end()) settle(key, it->second, State::failed, now + config_.failure_counts);
}

void Cache::abandon(const Key& key) {
    if (const auto it = entries_.find(key); it != entries_.end()) it->second.waited_for = false;
}

void Cache::forget_port(uint32_t port) {
    for (auto it = entries_.begin(); it != entries_.end();) {
        if (it->first.port != port) {
            ++it;
            continue;
        }
        if (it->second.state == State::asking) settled_.push_back({it->first, false});
        it = entries_.erase(it);
    }
}

void Cache::advance(Nanos now) {
    if (now < next_due_) return;
    next_due_ = kNever;
    for (auto& [key, e] : entries_) {
        if (e.state != State::asking && e.state != State::checking) continue;
        if (e.due > now)
            next_due_ = std::min(next_due_, e.due);
        else if (e.tries < config_.tries)
            ask(key, e, now);
        else
            settle(key, e, State::failed, now + config_.failure_counts);
    }
}

bool Cache::next_question(Question& out) {
    if (questions_.empty()) return false;
    out = questions_.front();
    questions_.pop_front();
    return true;
}

bool Cache::next_settled(Settled& out) {
    if (settled_.empty()) return false;
    out = settled_.front();
    settled_.pop_front();
    return true;
}

}  // namespace roci::neighbour
