// Mutation fuzzer of the frame parser. It is deterministic: the same arguments repeat a failure.
//
//     parse_fuzz ITERATIONS [SEED [CAPTURE.pcap]]
//
// The fuzzer starts from valid frames of every opcode, over IPv4 and IPv6, with and without a VLAN tag, and from the frames of
// the capture. It applies at most three mutations to a frame. Then it usually corrects the lengths and checksums, so that the
// frame passes the first checks of the parser. After 10,000 or more iterations, every verdict must have occurred.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "parse_target.hpp"
#include "pcap_file.hpp"
#include "samples.hpp"
#include "wire/loss_report.hpp"

namespace roci::test {
namespace {

using wire::Verdict;

class Mutator {
public:
    Mutator(uint64_t seed, std::vector<Frame> corpus) : random_(seed), corpus_(std::move(corpus)) {}

    Frame next() {
        Frame f = corpus_[below(corpus_.size())];
        for (size_t n = below(4); n > 0; --n) mutate(f);
        repair(f);
        return f;
    }

private:
    // The results of std::uniform_int_distribution differ between standard libraries, so the fuzzer does not use it.
    size_t below(size_t bound) { return bound == 0 ? 0 : size_t(random_() % bound); }
    uint8_t byte() { return uint8_t(random_()); }

    void flip_bit(Frame& f) { f[below(f.size())] ^= uint8_t(1 << below(8)); }
    void set_byte(Frame& f) { f[below(f.size())] = byte(); }
    /// Sets one of the first 90 bytes, which contain most fields.
    void set_header_byte(Frame& f) { f[below(std::min<size_t>(f.size(), 90))] = byte(); }
    void set_interesting_word(Frame& f) {
        static constexpr uint16_t words[] = {0, 1, 3, 4, 7, 8, 20, 24, 27, 28, 0x7fff, 0x8000, 0x8100, 0xfffc, 0xffff};
        if (f.size() < 2) return;
        store_be<uint16_t>(&f[below(std::min<size_t>(f.size() - 1, 90))], words[below(std::size(words))]);
    }
    void truncate(Frame& f) { f.resize(1 + below(f.size())); }
    void extend(Frame& f) { f.resize(f.size() + 1 + below(70), byte()); }
    void erase_inside(Frame& f) {
        const size_t at = below(f.size()), n = std::min(f.size() - at, 1 + below(8));
        if (n < f.size()) f.erase(f.begin() + ptrdiff_t(at), f.begin() + ptrdiff_t(at + n));
    }
    void insert_inside(Frame& f) { f.insert(f.begin() + ptrdiff_t(below(f.size())), 1 + below(8), byte()); }
    void splice(Frame& f) {
        const Frame& other = corpus_[below(corpus_.size())];
        const size_t at = below(std::min(f.size(), other.size()));
        f.resize(at);
        f.insert(f.end(), other.begin() + ptrdiff_t(at), other.end());
    }
    void set_opcode(Frame& f) {
        if (f.size() > 62) f[load_be<uint16_t>(&f[12]) == 0x86dd ? 62 : 42] = byte();
    }

    void mutate(Frame& f) {
        using Step = void (Mutator::*)(Frame&);
        static constexpr Step steps[] = {
            &Mutator::flip_bit, &Mutator::set_byte,  &Mutator::set_header_byte, &Mutator::set_interesting_word,
            &Mutator::truncate, &Mutator::extend,    &Mutator::erase_inside,    &Mutator::insert_inside,
            &Mutator::splice,   &Mutator::set_opcode};
        if (!f.empty()) std::invoke(steps[below(std::size(steps))], *this, f);
    }

    /// Corrects the IP length, the UDP length, the IPv4 checksum and the ICRC. Skips each of these corrections with a
    /// probability of 1/8.
    void repair(Frame& f) {
        const bool tagged = f.size() > 18 && load_be<uint16_t>(&f[12]) == 0x8100;
        const size_t l3 = tagged ? 18 : 14;
        if (f.size() < l3 + 60) return;
        const bool ipv6 = load_be<uint16_t>(&f[l3 - 2]) == 0x86dd;
        const uint32_t header = ipv6 ? 40 : uint32_t(f[l3] & 15) * 4;
        if (header < 20 || f.size() < l3 + header + 24) return;
        const size_t datagram = f.size() - l3 - header;
        if (datagram > 0xffff - 60) return;
        if (below(8) != 0) store_be<uint16_t>(&f[l3 + (ipv6 ? 4 : 2)], uint16_t(datagram + (ipv6 ? 0 : header)));
        if (below(8) != 0) store_be<uint16_t>(&f[l3 + header + 4], uint16_t(datagram));
        if (!ipv6 && below(8) != 0) repair_ipv4_checksum(&f[l3]);
        if (below(8) != 0) repair_icrc(f, uint32_t(l3), ipv6, header);
    }

    std::mt19937_64 random_;
    std::vector<Frame> corpus_;
};

std::vector<Frame> make_corpus(const char* capture) {
    std::vector<Frame> corpus;
    for (unsigned op = 0; op < 256; ++op) {
        const wire::OpcodeInfo& info = wire::opcode_info(uint8_t(op));
        if (!info.valid()) continue;
        for (unsigned kind = 0; kind < 4; ++kind) {
            const uint32_t length = info.has(wire::kPayload) ? (op * 4 + kind) % 131 : 0;
            corpus.push_back(sample_frame(uint8_t(op), (kind & 1) != 0, (kind & 2) != 0, length));
        }
    }
    wire::LossReport report;
    report.kind = wire::ReportKind::report;
    report.length = 40;
    report.newest = report.base + 50;
    report.set(7);
    uint8_t bytes[wire::LossReport::kBytes];
    wire::write_loss_report(bytes, report);
    const auto headers = sample_headers(wire::kLossReportOpcode);
    for (const bool ipv6 : {false, true}) corpus.push_back(build_frame(sample_path(ipv6, false), headers, bytes, sizeof bytes));
    if (capture == nullptr) return corpus;
    const std::vector<Frame> captured = read_pcap(capture);
    if (captured.empty()) {
        std::fprintf(stderr, "no frames in %s\n", capture);
        std::exit(2);
    }
    corpus.insert(corpus.end(), captured.begin(), captured.end());
    return corpus;
}

int run(uint64_t iterations, uint64_t seed, const char* capture) {
    Mutator mutator(seed, make_corpus(capture));
    uint64_t seen[size_t(Verdict::count_)] = {};
    for (uint64_t i = 0; i < iterations; ++i) {
        const Frame f = mutator.next();
        ++seen[size_t(check_parse(f.data(), f.size()))];
    }
    bool all = true;
    for (size_t v = 0; v < size_t(Verdict::count_); ++v) {
        std::printf("%-20s %llu\n", wire::verdict_name(Verdict(v)), static_cast<unsigned long long>(seen[v]));
        all = all && seen[v] != 0;
    }
    if (all || iterations < 10000) return 0;
    std::fprintf(stderr, "a verdict never occurred: the fuzzer does not reach it\n");
    return 1;
}

}  // namespace
}  // namespace roci::test

int main(int argc, char** argv) {
    if (argc < 2 || argc > 4) {
        std::fprintf(stderr, "usage: %s ITERATIONS [SEED [CAPTURE.pcap]]\n", argv[0]);
        return 2;
    }
    const uint64_t iterations = std::strtoull(argv[1], nullptr, 0);
    const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1;
    return roci::test::run(iterations, seed, argc > 3 ? argv[3] : nullptr);
}
