// SPDX-License-Identifier: BSD-3-Clause
// Selects frames for rocid's AF_XDP sockets before the kernel's network stack receives them. The program selects RoCEv2 frames
// (UDP to port 4791 over IPv4 or IPv6, with or without a VLAN tag) to an address that rocid serves or to a multicast address. The
// program also selects all frames to an address that only rocid has, and the ARP packets and neighbour solicitations for that
// address. The kernel receives all other frames unchanged.
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT 4791
#define ETH_LENGTH 14
#define VLAN_LENGTH 4
#define TYPE_VLAN 0x8100
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define TYPE_ARP 0x0806
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58
#define NEIGHBOUR_SOLICITATION 135
#define FRAGMENT_BITS 0x3fff

/* The AF_XDP sockets, indexed by receive queue. */
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u32);
} xsks_map SEC(".maps");

struct address {
    __u8 bytes[16]; /* an IPv4 address is stored as ::ffff:a.b.c.d */
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH); /* address to enum ours */
    __uint(max_entries, 1024);
    __type(key, struct address);
    __type(value, __u8);
} addresses SEC(".maps");

/* pmd_glue/xdp_steering.cpp writes values of enum ours. xdp_steering.hpp contains the names of the counters in the same order. */
enum ours { NOTHING, ROCE, ALL };
enum counter { STEERED, PASSED_OTHER, PASSED_ADDRESS, PASSED_FRAGMENT, PASSED_NO_SOCKET, COUNTERS };

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, COUNTERS);
    __type(key, __u32);
    __type(value, __u64);
} counters SEC(".maps");

static __always_inline int count(__u32 which) {
    __u64 *value = bpf_map_lookup_elem(&counters, &which);
    if (value) ++*value;
    return XDP_PASS;
}

static __always_inline __u16 be16(const __u8 *p) { return (__u16)(p[0] << 8 | p[1]); }

static __always_inline int ours(const struct address *to) {
    const __u8 *what = bpf_map_lookup_elem(&addresses, to);
    return what ? *what : NOTHING;
}

static __always_inline int to_socket(struct xdp_md *ctx) {
    __u32 queue = ctx->rx_queue_index;
    if (!bpf_map_lookup_elem(&xsks_map, &queue)) return count(PASSED_NO_SOCKET);
    count(STEERED);
    return (int)bpf_redirect_map(&xsks_map, queue, XDP_PASS);
}

static __always_inline void map_ipv4(struct address *to, const __u8 *four) {
    to->bytes[10] = to->bytes[11] = 0xff;
    __builtin_memcpy(&to->bytes[12], four, 4);
}

SEC("xdp")
int roci_steer(struct xdp_md *ctx) {
    const __u8 *p = (const __u8 *)(long)ctx->data, *end = (const __u8 *)(long)ctx->data_end;
    struct address to = {};

    if (p + ETH_LENGTH > end) return count(PASSED_OTHER);
    __u16 type = be16(p + 12);
    p += ETH_LENGTH;
    if (type == TYPE_VLAN) {
        if (p + VLAN_LENGTH > end) return count(PASSED_OTHER);
        type = be16(p + 2);
        p += VLAN_LENGTH;
    }
    if (type == TYPE_ARP) {
        if (p + 28 > end) return count(PASSED_OTHER);
        map_ipv4(&to, p + 24);
        return ours(&to) == ALL ? to_socket(ctx) : count(PASSED_OTHER);
    }
    if (type == TYPE_IPV4) {
        if (p + 20 > end) return count(PASSED_OTHER);
        map_ipv4(&to, p + 16);
        const int what = ours(&to), multicast = (p[16] & 0xf0) == 0xe0;
        if (what == ALL) return to_socket(ctx);
        if (p[9] != PROTOCOL_UDP) return count(PASSED_OTHER);
        if (be16(p + 6) & FRAGMENT_BITS) return count(PASSED_FRAGMENT);
        p += (p[0] & 0x0f) * 4;
        if (p + 8 > end || be16(p + 2) != ROCE_PORT) return count(PASSED_OTHER);
        return what == ROCE || multicast ? to_socket(ctx) : count(PASSED_ADDRESS);
    }
    if (type == TYPE_IPV6) {
        if (p + 48 > end) return count(PASSED_OTHER);
        __builtin_memcpy(&to.bytes, p + 24, 16);
        const int what = ours(&to);
        if (what == ALL) return to_socket(ctx);
        if (p[6] == PROTOCOL_ICMPV6 && p[40] == NEIGHBOUR_SOLICITATION && p + 64 <= end) {
            __builtin_memcpy(&to.bytes, p + 48, 16);
            return ours(&to) == ALL ? to_socket(ctx) : count(PASSED_OTHER);
        }
        if (p[6] != PROTOCOL_UDP || be16(p + 42) != ROCE_PORT) return count(PASSED_OTHER);
        return what == ROCE || p[24] == 0xff ? to_socket(ctx) : count(PASSED_ADDRESS);
    }
    return count(PASSED_OTHER);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
