#include "counter_page.hpp"

#include <fcntl.h>
#include <rte_cycles.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "engine/counters.hpp"
#include "pmd_glue/eal.hpp"
#include "qp/counters.hpp"

namespace roci::rocid {
namespace {

/// Alignment in bytes of each engine's counters. With this alignment, two engines never write to the same pair of cache lines.
constexpr uint32_t kApart = 128;
constexpr uint32_t round_up(size_t n) { return uint32_t((n + kApart - 1) / kApart * kApart); }

static_assert(sizeof(engine::Counters) == (engine::kCounters + engine::kVerdicts) * sizeof(uint64_t));

abi::CounterPageHeader layout(uint32_t engines, uint32_t devices) {
    abi::CounterPageHeader h{};
    h.magic = abi::kCounterPageMagic;
    h.engines = engines;
    h.devices = devices;
    h.engine_counters = uint32_t(engine::kCounters + engine::kVerdicts);
    h.device_counters = uint32_t(qp::kDeviceCounterCount);
    h.names = round_up(sizeof h);
    h.values = round_up(h.names + sizeof(abi::CounterName) * (devices + h.engine_counters + h.device_counters));
    h.device_offset = round_up(sizeof(engine::Counters));
    h.device_stride = round_up(sizeof(qp::DeviceCounters));
    h.engine_stride = h.device_offset + devices * h.device_stride;
    h.bytes = h.values + engines * h.engine_stride;
    h.pid = uint32_t(getpid());
    h.cycles_per_ms = uint32_t(rte_get_tsc_hz() / 1000);
    return h;
}

}  // namespace

CounterPage::CounterPage(uint32_t engines, std::span<const std::string> devices)
    : header_(layout(engines, uint32_t(devices.size()))) {
    constexpr int kReadOnly = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    fd_ = memfd_create("rocid-counters", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void* p = MAP_FAILED;
    if (fd_ >= 0 && ftruncate(fd_, header_.bytes) == 0)
        p = mmap(nullptr, header_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
    if (p == MAP_FAILED || fcntl(fd_, F_ADD_SEALS, kReadOnly) != 0) {
        const int error = errno;
        if (fd_ >= 0) close(fd_);
        throw pmd::StartError(std::string("no shared memory for the counters: ") + std::strerror(error));
    }
    base_ = static_cast<std::byte*>(p);
    std::memcpy(base_, &header_, sizeof header_);
    write_names(devices);
}

CounterPage::~CounterPage() {
    munmap(base_, header_.bytes);
    close(fd_);
}

std::vector<uint64_t> CounterPage::device_values(uint32_t device) const {
    std::vector<uint64_t> out(header_.device_counters);
    for (uint32_t e = 0; e < header_.engines; ++e) {
        auto* values = reinterpret_cast<uint64_t*>(at(e) + header_.device_offset + size_t{device} * header_.device_stride);
        for (size_t i = 0; i < out.size(); ++i) out[i] += std::atomic_ref(values[i]).load(std::memory_order_relaxed);
    }
    return out;
}

std::vector<uint64_t> CounterPage::engine_values(uint32_t engine) const {
    std::vector<uint64_t> out;
    auto* values = reinterpret_cast<uint64_t*>(at(engine));
    for (size_t i = 0; i < header_.engine_counters; ++i)
        out.push_back(std::atomic_ref(values[i]).load(std::memory_order_relaxed));
    return out;
}

void CounterPage::write_names(std::span<const std::string> devices) {
    auto* out = reinterpret_cast<abi::CounterName*>(base_ + header_.names);
    const auto add = [&](const std::string& text, bool level) {
        std::snprintf(out->text, sizeof out->text, "%s", text.c_str());
        out++->level = level ? 1 : 0;
    };
    for (const std::string& name : devices) add(name, false);
    for (size_t i = 0; i < engine::kCounters; ++i) add(engine::kCounterTexts[i].name, engine::is_level(engine::Counter(i)));
    for (size_t i = 0; i < engine::kVerdicts; ++i) add(engine::verdict_counter(wire::Verdict(i)), false);
    for (const qp::CounterInfo& c : qp::kDeviceCounters) add(c.name, false);
}

engine::CounterPlaces CounterPage::places(uint32_t engine) const {
    engine::CounterPlaces out;
    out.engine = new (at(engine)) engine::Counters;
    for (uint32_t d = 0; d < header_.devices; ++d)
        out.devices.push_back(new (at(engine) + header_.device_offset + size_t{d} * header_.device_stride) qp::DeviceCounters);
    return out;
}

}  // namespace roci::rocid
