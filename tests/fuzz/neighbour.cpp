// Frames of ARP, neighbour discovery and echo with arbitrary bytes. The fields of an accepted message must be valid, each answer
// must fit into its buffer, and the answer to a solicitation must be accepted as an advertisement of the same address.
#include "neighbour/frames.hpp"

#include <algorithm>
#include <memory>

#include "base/bytes.hpp"
#include "neighbour/cache.hpp"
#include "targets.hpp"

namespace roci::fuzz::neighbour {
namespace {

namespace real = roci::neighbour;
using real::Frame;
using real::Kind;
using real::Message;

constexpr MacAddress kOwnMac{{2, 0, 0, 0, 0, 1}}, kOtherMac{{2, 0, 0, 0, 0, 2}};
constexpr Gid kOwn4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}};
constexpr Gid kOther4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}};
constexpr Gid kOwn6{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
constexpr Gid kOther6{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};

Message parse_again(const Frame& f) { return real::parse(f.bytes.data(), f.length); }

void check_solicitation(const Message& m) {
    Frame answer;
    real::make_answer(answer, kOwnMac, m);
    require(answer.length <= real::kMaxFrame, "the answer fits");
    const Message again = parse_again(answer);
    require(again.kind == Kind::advertisement && again.target == m.target && again.link == kOwnMac, "the answer is understood");
    const uint32_t length = answer.length;
    require(real::insert_tag(answer, 0x64) && answer.length == length + 4, "the answer has room for a tag");
}

void check_echo(const Message& m, Input in) {
    require(m.length <= in.size() && m.l3 < m.length, "the echo request is in the frame");
    Frame reply;
    real::make_echo_reply(reply, kOwnMac, m, in.data());
    require(reply.length <= real::kMaxFrame && reply.length == m.length, "the echo reply fits");
    (void)real::insert_tag(reply, 0x64);
}

/// Passes the message to a small cache, which knows `kOther4` and `kOther6`.
void check_cache(const Message& m) {
    real::Cache cache({.entries = 2});
    for (const Gid& known : {kOther4, kOther6}) cache.heard({0, known}, kOtherMac, 1, true);
    const Gid about = m.kind == Kind::advertisement ? m.target : m.sender;
    cache.heard({0, about}, m.link, 2, m.kind == Kind::solicitation, m.override_link);
    require(cache.size() <= 2, "the cache keeps its limit");
    if (about == kOther4 || about == kOther6) return;
    require(cache.recall({0, kOther4}).has_value() || m.kind == Kind::solicitation, "an unsolicited address evicts nobody");
}

Bytes bytes_of(const Frame& f) { return {f.bytes.begin(), f.bytes.begin() + f.length}; }

uint32_t sum(const uint8_t* p, size_t length, uint32_t start = 0) {
    for (size_t i = 0; i < length; ++i) start += i % 2 == 0 ? uint32_t(p[i]) << 8 : p[i];
    return start;
}
/// Writes the checksum (RFC 1071) of `length` bytes at `p` to `at`.
void store_sum(uint8_t* at, const uint8_t* p, size_t length, uint32_t start = 0) {
    store_be<uint16_t>(at, uint16_t{0});
    uint32_t s = sum(p, length, start);
    while (s >> 16 != 0) s = (s & 0xffff) + (s >> 16);
    store_be<uint16_t>(at, uint16_t(~s));
}

/// An echo request of `data` bytes of data.
Bytes echo(bool ipv6, size_t data) {
    const size_t header = ipv6 ? 40 : 20;
    Bytes f(14 + header + 8 + data, 0x5a);
    std::fill_n(f.begin(), 14 + header + 8, uint8_t(0));
    std::ranges::copy(kOwnMac.bytes, f.begin());
    std::ranges::copy(kOtherMac.bytes, f.begin() + 6);
    store_be<uint16_t>(&f[12], uint16_t(ipv6 ? 0x86dd : 0x0800));
    f[14] = ipv6 ? 0x60 : 0x45;
    f[ipv6 ? 20 : 23] = ipv6 ? 58 : 1;
    f[ipv6 ? 21 : 22] = 64;
    if (ipv6) {
        std::ranges::copy(kOther6.bytes, f.begin() + 22);
        std::ranges::copy(kOwn6.bytes, f.begin() + 38);
    } else {
        std::copy_n(kOther4.bytes.begin() + 12, 4, f.begin() + 26);
        std::copy_n(kOwn4.bytes.begin() + 12, 4, f.begin() + 30);
    }
    f[14 + header] = ipv6 ? 128 : 8;
    Rng always(1);
    repair(f, always);
    return f;
}

}  // namespace

void run(Input input, Reach& reach) {
    const std::unique_ptr<uint8_t[]> block(new uint8_t[input.size()]);
    std::ranges::copy(input, block.get());
    const Input in(block.get(), input.size());
    const Message m = real::parse(in.data(), uint32_t(in.size()));
    reach(size_t(m.kind));
    if (m.kind == Kind::nothing) return;
    if (m.kind == Kind::echo) return check_echo(m, in);
    require(!m.target.is_zero(), "the target is an address");
    require(m.target.is_ipv4() || !real::is_multicast(m.target), "neighbour discovery is about hosts only (RFC 4861 7.1)");
    require((m.link.bytes[0] & 1) == 0, "the MAC address is not a group");
    if (m.kind == Kind::solicitation) check_solicitation(m);
    check_cache(m);
}

std::vector<Bytes> seeds() {
    std::vector<Bytes> all;
    const auto add = [&](auto&& make) {
        Frame f;
        make(f);
        all.push_back(bytes_of(f));
        return f;
    };
    for (const auto& ends : {std::pair{kOwn4, kOther4}, {kOwn6, kOther6}}) {
        const Gid &own = ends.first, &other = ends.second;  // clang 14 and 15 capture no structured binding
        for (const MacAddress& to : {MacAddress{}, kOtherMac}) {
            const Frame asked = add([&](Frame& f) { real::make_solicitation(f, {kOwnMac, own}, other, to); });
            add([&](Frame& f) { real::make_answer(f, kOtherMac, parse_again(asked)); });
        }
        add([&](Frame& f) { real::make_announcement(f, {kOwnMac, own}); });
    }
    for (const bool ipv6 : {false, true})
        for (const size_t data : {0, 56, 1472, 4180}) all.push_back(echo(ipv6, data));
    return all;
}

std::vector<Outcome> outcomes() { return numbered({"nothing", "solicitation", "advertisement", "echo"}); }

/// Corrects the lengths and checksums of IPv4, IPv6 and ICMP. Skips each correction with a probability of 1/8.
void repair(Bytes& f, Rng& rng) {
    if (f.size() < 14 + 20 + 8) return;
    const uint16_t type = load_be<uint16_t>(&f[12]);
    const auto often = [&] { return rng.chance(0.875); };
    if (type == 0x0800) {
        if (often()) store_be<uint16_t>(&f[16], uint16_t(f.size() - 14));
        if (often()) store_sum(&f[24], &f[14], 20);
        if (often()) store_sum(&f[36], &f[34], f.size() - 34);
    } else if (type == 0x86dd && f.size() >= 14 + 40 + 8) {
        if (often()) store_be<uint16_t>(&f[18], uint16_t(f.size() - 54));
        if (often()) store_sum(&f[56], &f[54], f.size() - 54, sum(&f[22], 32, uint32_t(f.size() - 54) + 58));
    }
}

}  // namespace roci::fuzz::neighbour
