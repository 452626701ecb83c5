// The capabilities that rocid reports. They contain only features that are implemented.
#pragma once

#include <cstdint>

namespace roci::host {

struct Capabilities {
    // values of enum ibv_device_cap_flags
    static constexpr uint64_t kCurrentStateMod = 1 << 7, kPortActiveEvent = 1 << 10, kSysImageGuid = 1 << 11,
                              kRcRnrNakGen = 1 << 12, kSrqResize = 1 << 13, kMemoryWindow = 1 << 17, kUdIpChecksum = 1 << 18,
                              kXrc = 1 << 20, kMemoryManagement = 1 << 21, kWindowType2B = 1 << 24,
                              kFlushGlobal = uint64_t{1} << 38, kAtomicWrite = uint64_t{1} << 40;
    // values of enum ibv_odp_general_caps and ibv_odp_transport_cap_bits
    static constexpr uint32_t kOdp = 1 << 0, kOdpImplicit = 1 << 1;
    static constexpr uint32_t kOdpSend = 1 << 0, kOdpRecv = 1 << 1, kOdpWrite = 1 << 2, kOdpRead = 1 << 3, kOdpAtomic = 1 << 4,
                              kOdpSrqRecv = 1 << 5, kOdpFlush = 1 << 6, kOdpAtomicWrite = 1 << 7;

    uint64_t device_cap_flags = kCurrentStateMod | kPortActiveEvent | kSysImageGuid | kRcRnrNakGen | kSrqResize | kMemoryWindow |
                                kUdIpChecksum | kXrc | kMemoryManagement | kWindowType2B | kFlushGlobal | kAtomicWrite;
    // rocid does not map a region with on-demand paging. rocid reads and writes the region through the client's /proc/PID/mem, so
    // the kernel loads each page at the first access.
    uint64_t odp_general = kOdp | kOdpImplicit;
    uint32_t odp_rc = kOdpSend | kOdpRecv | kOdpWrite | kOdpRead | kOdpAtomic | kOdpSrqRecv | kOdpFlush | kOdpAtomicWrite;
    uint32_t odp_uc = kOdpSend | kOdpRecv | kOdpWrite | kOdpSrqRecv;
    uint32_t odp_ud = kOdpSend | kOdpRecv | kOdpSrqRecv;
    uint32_t odp_xrc = kOdpSend | kOdpWrite | kOdpRead | kOdpAtomic | kOdpSrqRecv | kOdpFlush | kOdpAtomicWrite;
    uint64_t max_mr_size = ~uint64_t{0};
    uint64_t page_size_cap = 0xfffff000;
    uint64_t clock_khz = 1'000'000;  ///< Cqe::timestamp counts nanoseconds
    uint64_t timestamp_mask = ~uint64_t{0};
    uint32_t vendor_id = 0xffffff;  ///< no vendor: Rocinante has no OUI
    uint32_t max_rd_atomic = 16;    ///< per QP, both as initiator and as responder
    uint32_t atomic_cap = 1;        ///< IBV_ATOMIC_HCA
    uint32_t max_srq_wr = 32768, max_srq_sge = 27;
    uint32_t local_ca_ack_delay = 15;          ///< 4.096 us * 2^15
    uint32_t max_message = uint32_t{1} << 31;  ///< bytes (IBA 9.4.1)
    uint32_t max_mcast_groups = 8192, max_mcast_attach = 1024;
    uint32_t max_log_dm_alignment = 6;            ///< device memory begins at a cache line (2^6 bytes)
    uint32_t pkeys = 1;                           ///< RoCE has only the default P_Key (A16.4.2)
    uint32_t active_width = 1, active_speed = 8;  ///< 1X, 10 Gb/s
    uint32_t port_cap_flags = 1 << 16;            ///< IBV_PORT_CM_SUP
    uint32_t comp_vectors = 4;                    ///< one event dispatcher thread per completion vector
    uint32_t max_moderation_count = 65535, max_moderation_us = 65535;
    const char* firmware = "0.1.0";

    // Limits per session.
    uint32_t max_pds = 65536, max_regions = 65536, max_channels = 4096, max_cqs = 65536, max_srqs = 16384, max_xrcds = 4096;
    uint64_t max_dm_bytes = uint64_t{8} << 20;
    uint64_t max_mapped_bytes = uint64_t{1} << 42;
};

}  // namespace roci::host
