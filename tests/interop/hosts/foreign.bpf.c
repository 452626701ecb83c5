// SPDX-License-Identifier: BSD-3-Clause
// An XDP program that does not belong to rocid. It counts frames and passes them to the kernel.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} foreign_count SEC(".maps");

SEC("xdp")
int foreign(struct xdp_md *ctx) {
    __u32 first = 0;
    __u64 *count = bpf_map_lookup_elem(&foreign_count, &first);
    if (count) __sync_fetch_and_add(count, 1);
    return XDP_PASS;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
