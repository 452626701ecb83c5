// The table of BTH opcodes and their properties (IBA 9.2.1, table 38; XRC annex A14).
#pragma once

#include <array>
#include <cstdint>

namespace roci::wire {

/// Upper three bits of the opcode: the service.
enum class Service : uint8_t { rc = 0, uc = 1, rd = 2, ud = 3, cnp = 4, xrc = 5 };

/// Lower five bits of the opcode: the operation. All services use the same numbers.
enum class Operation : uint8_t {
    send_first = 0x00,
    send_middle = 0x01,
    send_last = 0x02,
    send_last_imm = 0x03,
    send_only = 0x04,
    send_only_imm = 0x05,
    write_first = 0x06,
    write_middle = 0x07,
    write_last = 0x08,
    write_last_imm = 0x09,
    write_only = 0x0a,
    write_only_imm = 0x0b,
    read_request = 0x0c,
    read_response_first = 0x0d,
    read_response_middle = 0x0e,
    read_response_last = 0x0f,
    read_response_only = 0x10,
    ack = 0x11,
    atomic_ack = 0x12,
    cmp_swap = 0x13,
    fetch_add = 0x14,
    resync = 0x15,
    send_last_inv = 0x16,
    send_only_inv = 0x17,
    flush = 0x1c,
    atomic_write = 0x1d,
};

constexpr uint8_t make_opcode(Service s, Operation o) { return uint8_t(uint8_t(s) << 5 | uint8_t(o)); }
constexpr Service service_of(uint8_t opcode) { return Service(opcode >> 5); }
constexpr Operation operation_of(uint8_t opcode) { return Operation(opcode & 0x1f); }
inline constexpr uint8_t kCnpOpcode = 0x81;
/// Loss reports of Rocinante (loss_report.hpp). The opcodes 0xc0 to 0xff are reserved for manufacturers (IBA 9.2.1, table 38).
inline constexpr uint8_t kLossReportOpcode = 0xc0;
/// The transport version (TVer) of loss reports. All other packets have version 0. A receiver must silently drop packets with a
/// version that the receiver does not support (IBA 9.2.2). So every receiver except Rocinante drops loss reports.
inline constexpr uint8_t kLossReportVersion = 0xf;

/// Properties of an opcode, combined by bitwise or.
enum OpcodeFlags : uint32_t {
    kRequest = 1 << 0,  ///< travels from requester to responder
    kResponse = 1 << 1,
    kFirst = 1 << 2,  ///< starts a multi-packet message
    kMiddle = 1 << 3,
    kLast = 1 << 4,  ///< ends a multi-packet message
    kOnly = 1 << 5,  ///< is a whole message
    kSend = 1 << 6,
    kWrite = 1 << 7,
    kRead = 1 << 8,
    kAtomic = 1 << 9,
    kAck = 1 << 10,
    kReth = 1 << 11,  ///< kReth to kXrcEth, and kFlushEth, name the extended headers of the opcode
    kAeth = 1 << 12,
    kAtomicEth = 1 << 13,
    kAtomicAckEth = 1 << 14,
    kImmDt = 1 << 15,
    kIeth = 1 << 16,
    kDeth = 1 << 17,
    kXrcEth = 1 << 18,
    kPayload = 1 << 19,       ///< may carry payload
    kConsumesRecv = 1 << 20,  ///< the packet consumes a receive WQE: SEND First/Only, WRITE Last/Only with immediate
    kFlushEth = 1 << 21,
    kAtomicWrite = 1 << 22,
};

struct OpcodeInfo {
    const char* name = nullptr;  ///< such as "RC SEND Only with Immediate"; nullptr if the opcode does not exist
    uint32_t flags = 0;          ///< bits of OpcodeFlags
    uint8_t header_length = 0;   ///< BTH and extended headers, bytes; for CNP also its 16 reserved bytes
    constexpr bool has(uint32_t f) const { return (flags & f) != 0; }
    constexpr bool valid() const { return name != nullptr; }
};

/// The properties of all opcodes. Each of the 256 values of an opcode is a valid index.
extern const std::array<OpcodeInfo, 256> kOpcodes;
inline const OpcodeInfo& opcode_info(uint8_t opcode) { return kOpcodes[opcode]; }

}  // namespace roci::wire
