// Two communication managers over a network in virtual time. The network loses and duplicates messages at random,
// with a seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "cm/manager.hpp"

namespace roci::cm {

using Kind = Event::Kind;

inline constexpr Nanos kMs = 1'000'000;
inline constexpr uint64_t kService = service_id(PortSpace::tcp, 7174);

inline Gid address(uint8_t last) {
    const uint8_t four[] = {10, 77, 0, last};
    return Gid::from_ipv4(four);
}

struct World {
    explicit World(uint32_t seed = 1, uint32_t max = 65536) : rng(seed), a(config(100, max)), b(config(500000, max)) {}
    static Config config(uint32_t first, uint32_t max) {
        Config c;
        c.first_id = first;
        c.max_connections = max;
        return c;
    }
    static Endpoint at(bool is_a) {
        Endpoint e;
        e.port = is_a ? 0 : 1;
        e.local = address(is_a ? 1 : 2);
        e.remote = address(is_a ? 2 : 1);
        return e;
    }

    ConnectSpec spec(uint32_t qpn = 0x21) {
        ConnectSpec s;
        s.to = at(true);
        s.service_id = kService;
        s.ca_guid = 1;
        s.qpn = qpn;
        s.owner = 11;
        put_ip_header(s.private_data.data(), {4000, address(1), address(2)});
        s.private_data[kIpHeaderLength] = 'x';
        return s;
    }
    void listen() {
        Listener l;
        l.service_id = kService;
        l.owner = 99;
        b.listen(l);
    }

    /// Delivers or loses all messages, including replies, until no message is left.
    void settle() {
        for (bool moved = true; moved;) {
            moved = false;
            for (const bool from_a : {true, false}) {
                Outgoing out;
                while ((from_a ? a : b).next_message(out)) {
                    moved = true;
                    Header h;
                    EXPECT_TRUE(parse_header(out.mad, h));
                    sent.push_back(h.attribute);
                    if (coin(rng) < loss || (dropping && dropping(h.attribute, from_a))) continue;
                    const int copies = coin(rng) < duplicate ? 2 : 1;
                    for (int i = 0; i < copies; ++i) (from_a ? b : a).receive({at(!from_a), kGsiQpn, out.mad}, now);
                }
            }
            if (on_event) moved |= collect();
        }
        if (!on_event) collect();
    }
    bool collect() {
        bool any = false;
        Event e;
        while (a.next_event(e)) {
            any = true;
            events_a.push_back(e);
            if (on_event) on_event(true, e);
        }
        while (b.next_event(e)) {
            any = true;
            events_b.push_back(e);
            if (on_event) on_event(false, e);
        }
        return any;
    }
    void pass(Nanos time) {
        const Nanos end = now + time;
        settle();
        while (true) {
            const Nanos next = std::min(a.next_deadline(), b.next_deadline());
            if (next > end) break;
            now = std::max(now, next);
            a.advance(now);
            b.advance(now);
            settle();
        }
        now = end;
    }
    /// Connects the two managers and returns the ids of both ends of the connection.
    std::pair<uint32_t, uint32_t> connected() {
        listen();
        const uint32_t id = a.connect(spec(), now);
        settle();
        const uint32_t other = events_b.at(0).connection;
        AcceptSpec accept;
        accept.qpn = 0x31;
        EXPECT_EQ(b.accept(other, accept, now), 0);
        settle();
        EXPECT_EQ(a.ready(id, now), 0);
        settle();
        EXPECT_EQ(a.find(id)->state, State::established);
        EXPECT_EQ(b.find(other)->state, State::established);
        events_a.clear();
        events_b.clear();
        return {id, other};
    }
    int count(Attribute attribute) const { return int(std::count(sent.begin(), sent.end(), attribute)); }

    std::mt19937 rng;
    std::uniform_real_distribution<double> coin{0, 1};
    double loss = 0, duplicate = 0;
    Nanos now = 1;
    Manager a, b;
    std::function<bool(Attribute, bool from_a)> dropping;
    std::function<void(bool at_a, const Event&)> on_event;
    std::vector<Event> events_a, events_b;
    std::vector<Attribute> sent;
};

}  // namespace roci::cm
