// SPDX-License-Identifier: BSD-3-Clause
// Decides, frame by frame and before the kernel's network stack, what goes to rocid's AF_XDP sockets: UDP to port 4791 over IPv4 or
// IPv6, tagged or not, to an address that rocid serves. Everything else goes on to the kernel, untouched.
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT 4791
#define ETH_LENGTH 14
#define VLAN_LENGTH 4
#define TYPE_VLAN 0x8100
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define PROTOCOL_UDP 17
#define FRAGMENT_BITS 0x3fff

/* The sockets by receive queue; filled in by DPDK's driver. */
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u32);
} xsks_map SEC(".maps");

struct address {
    __u8 bytes[16]; /* IPv4 as ::ffff:a.b.c.d */
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct address);
    __type(value, __u8);
} addresses SEC(".maps");

/* Order and names: pmd_glue/xdp_steering.cpp. */
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

static __always_inline int steer_to_socket(struct xdp_md *ctx, const struct address *to, int multicast) {
    if (!multicast && !bpf_map_lookup_elem(&addresses, to)) return count(PASSED_ADDRESS);
    __u32 queue = ctx->rx_queue_index;
    if (!bpf_map_lookup_elem(&xsks_map, &queue)) return count(PASSED_NO_SOCKET);
    count(STEERED);
    return (int)bpf_redirect_map(&xsks_map, queue, XDP_PASS);
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
    if (type == TYPE_IPV4) {
        if (p + 20 > end || p[9] != PROTOCOL_UDP) return count(PASSED_OTHER);
        if (be16(p + 6) & FRAGMENT_BITS) return count(PASSED_FRAGMENT);
        to.bytes[10] = to.bytes[11] = 0xff;
        __builtin_memcpy(&to.bytes[12], p + 16, 4);
        const int multicast = (p[16] & 0xf0) == 0xe0;
        p += (p[0] & 0x0f) * 4;
        if (p + 8 > end || be16(p + 2) != ROCE_PORT) return count(PASSED_OTHER);
        return steer_to_socket(ctx, &to, multicast);
    }
    if (type == TYPE_IPV6) {
        if (p + 48 > end || p[6] != PROTOCOL_UDP || be16(p + 42) != ROCE_PORT) return count(PASSED_OTHER);
        __builtin_memcpy(&to.bytes, p + 24, 16);
        return steer_to_socket(ctx, &to, p[24] == 0xff);
    }
    return count(PASSED_OTHER);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
