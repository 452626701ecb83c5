#include "tap_sinks.hpp"

#include <cerrno>
#include <cstring>

namespace roci::pmd {
namespace {

File open_file(const std::string& path, std::string& why) {
    File f(std::fopen(path.c_str(), "we"));
    if (f == nullptr) why = "cannot write '" + path + "': " + std::strerror(errno);
    return f;
}

/// Builds and writes a pcapng block. A block consists of the type, the length, the body, and the length again. All fields have
/// the machine's byte order.
class Block {
public:
    explicit Block(uint32_t type) {
        put(type);
        put(uint32_t{0});
    }
    template <class T>
    void put(T v) {
        const auto* p = reinterpret_cast<const char*>(&v);
        bytes_.append(p, sizeof v);
    }
    void data(const void* p, size_t n) {
        bytes_.append(static_cast<const char*>(p), n);
        bytes_.append((4 - n % 4) % 4, '\0');
    }
    void option(uint16_t code, const void* p, size_t n) {
        put(code);
        put(uint16_t(n));
        data(p, n);
    }
    void option(uint16_t code, const std::string& text) { option(code, text.data(), text.size()); }
    void end_options() { put(uint32_t{0}); }
    void write(std::FILE* f) {
        const uint32_t length = uint32_t(bytes_.size()) + 4;
        std::memcpy(bytes_.data() + 4, &length, sizeof length);
        put(length);
        std::fwrite(bytes_.data(), 1, bytes_.size(), f);
    }

private:
    std::string bytes_;
};

class PcapngSink final : public TapSink {
public:
    PcapngSink(File file, const std::vector<std::string>& interfaces, int64_t to_realtime)
        : file_(std::move(file)), to_realtime_(to_realtime) {
        section_header();
        for (const std::string& name : interfaces) interface_description(name);
        flush();
    }
    void frame(uint32_t interface, const TapRing::Slot& s) override {
        constexpr uint32_t kEnhancedPacket = 6;
        constexpr uint16_t kFlags = 2;
        const uint64_t t = uint64_t(int64_t(s.time) + to_realtime_);
        last_ = t;
        Block b(kEnhancedPacket);
        b.put(interface);
        b.put(uint32_t(t >> 32));
        b.put(uint32_t(t));
        b.put(s.captured);
        b.put(s.length);
        b.data(s.bytes, s.captured);
        const uint32_t flags = uint32_t(s.direction);
        b.option(kFlags, &flags, sizeof flags);
        b.end_options();
        b.write(file_.get());
    }
    bool flush() override { return std::fflush(file_.get()) == 0 && std::ferror(file_.get()) == 0; }
    void totals(uint32_t interface, uint64_t captured, uint64_t missed) override {
        constexpr uint32_t kInterfaceStatistics = 5;
        constexpr uint16_t kReceived = 4, kDropped = 5;
        Block b(kInterfaceStatistics);
        b.put(interface);
        b.put(uint32_t(last_ >> 32));
        b.put(uint32_t(last_));
        b.option(kReceived, &captured, sizeof captured);
        b.option(kDropped, &missed, sizeof missed);
        b.end_options();
        b.write(file_.get());
    }

private:
    void section_header() {
        constexpr uint32_t kSectionHeader = 0x0a0d0d0a, kByteOrderMagic = 0x1a2b3c4d;
        constexpr uint16_t kUserApplication = 4;
        Block b(kSectionHeader);
        b.put(kByteOrderMagic);
        b.put(uint16_t{1});
        b.put(uint16_t{0});
        b.put(~uint64_t{0});  // the section length is unspecified
        b.option(kUserApplication, "rocinante");
        b.end_options();
        b.write(file_.get());
    }
    void interface_description(const std::string& name) {
        constexpr uint32_t kInterfaceDescription = 1;
        constexpr uint16_t kEthernet = 1, kName = 2, kTimeResolution = 9;
        constexpr uint8_t kNanoseconds = 9;
        Block b(kInterfaceDescription);
        b.put(kEthernet);
        b.put(uint16_t{0});
        b.put(uint32_t{0});  // no limit of captured bytes per frame
        b.option(kName, name);
        b.option(kTimeResolution, &kNanoseconds, 1);
        b.end_options();
        b.write(file_.get());
    }

    File file_;
    const int64_t to_realtime_;
    uint64_t last_ = 0;
};

class TraceSink final : public TapSink {
public:
    TraceSink(File file, std::vector<std::string> interfaces, Describe describe)
        : file_(std::move(file)), interfaces_(std::move(interfaces)), describe_(std::move(describe)) {}
    void frame(uint32_t interface, const TapRing::Slot& s) override {
        std::fprintf(file_.get(), "%llu.%09llu %s %s %u %s\n", static_cast<unsigned long long>(s.time / 1'000'000'000),
                     static_cast<unsigned long long>(s.time % 1'000'000'000), interfaces_[interface].c_str(),
                     s.direction == Direction::in ? "<" : ">", s.length, describe_(s.bytes, s.captured).c_str());
    }
    bool flush() override { return std::fflush(file_.get()) == 0 && std::ferror(file_.get()) == 0; }
    void totals(uint32_t interface, uint64_t captured, uint64_t missed) override {
        std::fprintf(file_.get(), "# %s: %llu frames, %llu missed\n", interfaces_[interface].c_str(),
                     static_cast<unsigned long long>(captured), static_cast<unsigned long long>(missed));
    }

private:
    File file_;
    std::vector<std::string> interfaces_;
    Describe describe_;
};

}  // namespace

std::unique_ptr<TapSink> open_pcapng(const std::string& path, const std::vector<std::string>& interfaces, int64_t to_realtime,
                                     std::string& why) {
    File f = open_file(path, why);
    return f == nullptr ? nullptr : pcapng_to(std::move(f), interfaces, to_realtime);
}

std::unique_ptr<TapSink> pcapng_to(File file, const std::vector<std::string>& interfaces, int64_t to_realtime) {
    return std::make_unique<PcapngSink>(std::move(file), interfaces, to_realtime);
}

std::unique_ptr<TapSink> open_trace(const std::string& path, const std::vector<std::string>& interfaces, Describe describe,
                                    std::string& why) {
    File f = open_file(path, why);
    if (f == nullptr) return nullptr;
    return std::make_unique<TraceSink>(std::move(f), interfaces, std::move(describe));
}

}  // namespace roci::pmd
