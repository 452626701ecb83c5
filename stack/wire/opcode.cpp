#include "wire/opcode.hpp"

#include <string_view>

#include "wire/packet.hpp"

namespace roci::wire {
namespace {

constexpr uint32_t kNameRoom = 40;

/// The properties of an operation that do not depend on the service (IBA 9.2.1, table 38).
struct OperationRow {
    Operation operation;
    std::string_view name;
    uint32_t flags;
};

constexpr uint32_t kSendPart = kRequest | kSend | kPayload;
constexpr uint32_t kWritePart = kRequest | kWrite | kPayload;
constexpr uint32_t kReadPart = kResponse | kRead | kPayload;

constexpr OperationRow kOperations[] = {
    {Operation::send_first, "SEND First", kSendPart | kFirst | kConsumesRecv},
    {Operation::send_middle, "SEND Middle", kSendPart | kMiddle},
    {Operation::send_last, "SEND Last", kSendPart | kLast},
    {Operation::send_last_imm, "SEND Last with Immediate", kSendPart | kLast | kImmDt},
    {Operation::send_only, "SEND Only", kSendPart | kOnly | kConsumesRecv},
    {Operation::send_only_imm, "SEND Only with Immediate", kSendPart | kOnly | kImmDt | kConsumesRecv},
    {Operation::send_last_inv, "SEND Last with Invalidate", kSendPart | kLast | kIeth},
    {Operation::send_only_inv, "SEND Only with Invalidate", kSendPart | kOnly | kIeth | kConsumesRecv},
    {Operation::write_first, "WRITE First", kWritePart | kFirst | kReth},
    {Operation::write_middle, "WRITE Middle", kWritePart | kMiddle},
    {Operation::write_last, "WRITE Last", kWritePart | kLast},
    {Operation::write_last_imm, "WRITE Last with Immediate", kWritePart | kLast | kImmDt | kConsumesRecv},
    {Operation::write_only, "WRITE Only", kWritePart | kOnly | kReth},
    {Operation::write_only_imm, "WRITE Only with Immediate", kWritePart | kOnly | kReth | kImmDt | kConsumesRecv},
    {Operation::read_request, "READ Request", kRequest | kRead | kOnly | kReth},
    {Operation::read_response_first, "READ Response First", kReadPart | kFirst | kAeth},
    {Operation::read_response_middle, "READ Response Middle", kReadPart | kMiddle},
    {Operation::read_response_last, "READ Response Last", kReadPart | kLast | kAeth},
    {Operation::read_response_only, "READ Response Only", kReadPart | kOnly | kAeth},
    {Operation::ack, "Acknowledge", kResponse | kAck | kOnly | kAeth},
    {Operation::atomic_ack, "Atomic Acknowledge", kResponse | kAtomic | kOnly | kAeth | kAtomicAckEth},
    {Operation::cmp_swap, "CmpSwap", kRequest | kAtomic | kOnly | kAtomicEth},
    {Operation::fetch_add, "FetchAdd", kRequest | kAtomic | kOnly | kAtomicEth},
    {Operation::flush, "FLUSH", kRequest | kOnly | kFlushEth | kReth},
    {Operation::atomic_write, "ATOMIC WRITE", kRequest | kOnly | kAtomicWrite | kReth | kPayload},
};

/// The length of each extended header, bytes.
struct HeaderRow {
    uint32_t flag;
    uint8_t length;
};
constexpr HeaderRow kHeaders[] = {{kXrcEth, 4}, {kDeth, 8},         {kFlushEth, 4}, {kReth, 16}, {kAtomicEth, 28},
                                  {kAeth, 4},   {kAtomicAckEth, 8}, {kImmDt, 4},    {kIeth, 4}};

constexpr bool carried_by(Service s, const OperationRow& row) {
    const bool two_sided_response = (row.flags & (kResponse | kRead | kAtomic | kFlushEth | kAtomicWrite | kIeth)) != 0;
    switch (s) {
        case Service::rc:
        case Service::xrc:
            return true;
        case Service::uc:
            return !two_sided_response;
        case Service::ud:
            return row.operation == Operation::send_only || row.operation == Operation::send_only_imm;
        default:
            return false;  // RD is not supported
    }
}

/// Returns the extended headers that a service adds to its operations: DETH for UD, and XRCETH for every XRC request (annex A14).
constexpr uint32_t service_headers(Service s, const OperationRow& row) {
    if (s == Service::ud) return kDeth;
    if (s == Service::xrc && (row.flags & kRequest) != 0) return kXrcEth;
    return 0;
}

struct Named {
    char text[256][kNameRoom]{};
};

constexpr void write_name(char (&out)[kNameRoom], std::string_view service, std::string_view operation) {
    uint32_t n = 0;
    for (char c : service) out[n++] = c;
    if (!operation.empty()) out[n++] = ' ';
    for (char c : operation) out[n++] = c;
}

struct ServiceRow {
    Service service;
    std::string_view name;
};
constexpr ServiceRow kServices[] = {{Service::rc, "RC"}, {Service::uc, "UC"}, {Service::ud, "UD"}, {Service::xrc, "XRC"}};

template <class Visit>
constexpr void each_opcode(Visit visit) {
    for (const ServiceRow& s : kServices)
        for (const OperationRow& row : kOperations)
            if (carried_by(s.service, row)) visit(s, row);
}

constexpr Named make_names() {
    Named names;
    each_opcode([&](const ServiceRow& s, const OperationRow& row) {
        write_name(names.text[make_opcode(s.service, row.operation)], s.name, row.name);
    });
    write_name(names.text[kCnpOpcode], "CNP", "");
    write_name(names.text[kLossReportOpcode], "Rocinante", "Loss Report");
    return names;
}
constexpr Named kNames = make_names();

constexpr uint8_t header_length(uint32_t flags) {
    uint8_t n = kBthLength;
    for (const HeaderRow& h : kHeaders)
        if ((flags & h.flag) != 0) n = uint8_t(n + h.length);
    return n;
}

constexpr std::array<OpcodeInfo, 256> make_table() {
    std::array<OpcodeInfo, 256> table{};
    each_opcode([&](const ServiceRow& s, const OperationRow& row) {
        const uint8_t opcode = make_opcode(s.service, row.operation);
        const uint32_t flags = row.flags | service_headers(s.service, row);
        table[opcode] = {kNames.text[opcode], flags, header_length(flags)};
    });
    table[kCnpOpcode] = {kNames.text[kCnpOpcode], 0, kBthLength + kCnpReserved};
    table[kLossReportOpcode] = {kNames.text[kLossReportOpcode], kPayload, kBthLength};
    return table;
}

}  // namespace

constinit const std::array<OpcodeInfo, 256> kOpcodes = make_table();

}  // namespace roci::wire
