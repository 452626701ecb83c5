#include "wire/loss_report.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace roci::wire {
namespace {

constexpr uint32_t kMagic = 0x526f6369;  // "Roci"
constexpr uint8_t kVersion = 1;
constexpr uint32_t kBitmapAt = 20;
static_assert(LossReport::kBytes == kBitmapAt + LossReport::kMost / 8);

/// Returns true if the report is consistent: the first covered PSN is missing, the report covers no PSN after `newest`, and no
/// bit behind the covered PSNs is set.
bool consistent(const LossReport& r) {
    if (r.kind == ReportKind::inquiry) return true;
    const int32_t end = (r.newest + 1).distance_from(r.base);
    if (r.length > LossReport::kMost || end < int32_t(r.length)) return false;
    if (r.length != 0 && r.has(0)) return false;
    for (uint32_t i = r.length; i < LossReport::kMost; ++i)
        if (r.has(i)) return false;
    return true;
}

}  // namespace

void write_loss_report(uint8_t* out, const LossReport& r) {
    store_be<uint32_t>(out, kMagic);
    out[4] = kVersion;
    out[5] = uint8_t(r.kind);
    store_be<uint16_t>(out + 6, r.serial);
    store_be<uint16_t>(out + 8, r.length);
    store_be<uint16_t>(out + 10, r.places);
    store_be<uint32_t>(out + 12, r.base.value());
    store_be<uint32_t>(out + 16, r.newest.value());
    std::copy(r.arrived.begin(), r.arrived.end(), out + kBitmapAt);
}

bool read_loss_report(const uint8_t* bytes, uint32_t length, LossReport& out) {
    if (length != LossReport::kBytes || load_be<uint32_t>(bytes) != kMagic || bytes[4] != kVersion) return false;
    if (bytes[5] > uint8_t(ReportKind::report)) return false;
    out.kind = ReportKind(bytes[5]);
    out.serial = load_be<uint16_t>(bytes + 6);
    out.length = load_be<uint16_t>(bytes + 8);
    out.places = load_be<uint16_t>(bytes + 10);
    out.base = Psn(load_be<uint32_t>(bytes + 12));
    out.newest = Psn(load_be<uint32_t>(bytes + 16));
    std::copy(bytes + kBitmapAt, bytes + LossReport::kBytes, out.arrived.begin());
    return consistent(out);
}

}  // namespace roci::wire
