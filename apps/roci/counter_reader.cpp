#include "counter_reader.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>

namespace roci::cli {
namespace {

constexpr uint64_t kMostCounters = 4096, kMostDevices = 4096;

bool within(uint64_t offset, uint64_t bytes, uint64_t limit) { return offset <= limit && bytes <= limit - offset; }

/// Returns true if the header is valid: the magic number is right, the numbers of counters and devices are within the limits, the
/// offsets are aligned, and all names and values are within the page.
bool consistent(const abi::CounterPageHeader& h, uint64_t size) {
    const uint64_t names = uint64_t{h.devices} + h.engine_counters + h.device_counters;
    const uint64_t devices_end = h.device_offset + uint64_t{h.devices} * h.device_stride;
    return h.magic == abi::kCounterPageMagic && h.bytes <= size && h.devices <= kMostDevices &&
           h.engine_counters <= kMostCounters && h.device_counters <= kMostCounters && h.values % 8 == 0 &&
           h.engine_stride % 8 == 0 && h.device_offset % 8 == 0 && h.device_stride % 8 == 0 &&
           within(h.names, names * sizeof(abi::CounterName), h.bytes) && uint64_t{h.engine_counters} * 8 <= h.device_offset &&
           uint64_t{h.device_counters} * 8 <= h.device_stride && devices_end <= h.engine_stride &&
           within(h.values, uint64_t{h.engines} * h.engine_stride, h.bytes);
}

}  // namespace

void Unmap::operator()(const std::byte* p) const { munmap(const_cast<std::byte*>(p), bytes); }

std::optional<CounterReader> CounterReader::of(std::span<const std::byte> page, std::string& why) {
    CounterReader reader;
    reader.page_ = page;
    if (!reader.take_header(why)) return std::nullopt;
    return reader;
}

std::optional<CounterReader> CounterReader::open(ControlClient& client, std::string& why) {
    Answer answer = client.request(abi::Op::counters);
    why = answer.reason;
    if (answer.error != 0 || answer.fds.empty()) return std::nullopt;
    struct stat facts {};
    const int fd = answer.fds.back().get();
    void* p = MAP_FAILED;
    if (fstat(fd, &facts) == 0 && facts.st_size > 0) p = mmap(nullptr, size_t(facts.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        why = std::string("the counter page cannot be mapped: ") + std::strerror(errno);
        return std::nullopt;
    }
    const auto* base = static_cast<const std::byte*>(p);
    std::unique_ptr<const std::byte, Unmap> mapping(base, {size_t(facts.st_size)});
    auto reader = of({base, size_t(facts.st_size)}, why);
    if (reader) reader->mapping_ = std::move(mapping);
    return reader;
}

bool CounterReader::take_header(std::string& why) {
    if (page_.size() >= sizeof header_) std::memcpy(&header_, page_.data(), sizeof header_);
    if (page_.size() < sizeof header_ || !consistent(header_, page_.size())) {
        why = "rocid's counter page is of another version, or damaged";
        return false;
    }
    const std::byte* at = page_.data() + header_.names;
    const auto next = [&] {
        abi::CounterName name;
        std::memcpy(&name, at, sizeof name);
        at += sizeof name;
        return CounterLabel{{name.text, strnlen(name.text, sizeof name.text)}, name.level != 0};
    };
    for (uint32_t i = 0; i < header_.devices; ++i) devices_.push_back(next().name);
    for (uint32_t i = 0; i < header_.engine_counters; ++i) engine_labels_.push_back(next());
    for (uint32_t i = 0; i < header_.device_counters; ++i) device_labels_.push_back(next());
    return true;
}

uint64_t CounterReader::load(uint64_t offset) const {
    auto* word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(page_.data() + offset));
    return std::atomic_ref(*word).load(std::memory_order_relaxed);
}

std::vector<uint64_t> CounterReader::engine_values(uint32_t engine) const {
    std::vector<uint64_t> out;
    const uint64_t base = header_.values + uint64_t{engine} * header_.engine_stride;
    for (uint32_t i = 0; i < header_.engine_counters; ++i) out.push_back(load(base + uint64_t{i} * 8));
    return out;
}

std::vector<uint64_t> CounterReader::device_values_of(uint32_t engine, uint32_t device) const {
    std::vector<uint64_t> out(header_.device_counters);
    const uint64_t base = header_.values + uint64_t{engine} * header_.engine_stride + header_.device_offset +
                          uint64_t{device} * header_.device_stride;
    for (uint64_t i = 0; i < out.size(); ++i) out[i] = load(base + i * 8);
    return out;
}

std::vector<uint64_t> CounterReader::device_values(uint32_t device) const {
    std::vector<uint64_t> out(header_.device_counters);
    for (uint32_t e = 0; e < header_.engines; ++e) {
        const std::vector<uint64_t> of_engine = device_values_of(e, device);
        for (size_t i = 0; i < out.size(); ++i) out[i] += of_engine[i];
    }
    return out;
}

}  // namespace roci::cli
