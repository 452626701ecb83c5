#include "words.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace roci::plot {
namespace {

struct Unit {
    double from;
    const char* name;
};

std::string scaled(double value, const Unit* units, size_t count) {
    size_t i = 0;
    while (i + 1 < count && value < units[i].from) ++i;
    const double v = value / units[i].from;
    return fmt::format("{:.{}f} {}", v, v < 10 ? 2 : v < 100 ? 1 : 0, units[i].name);
}

const char* were(uint64_t n) { return n == 1 ? "was" : "were"; }

std::string traffic(const Stream& s, int64_t length) {
    std::string out = fmt::format("{}, {} in {}", count_of(s.messages.size(), "message"), byte_text(s.counts.payload),
                                  count_of(s.counts.packets, "packet"));
    if (length > 0 && s.counts.payload != 0)
        out += ", " + rate_text(double(s.counts.payload) * 8e9 / double(length)) + " on average";
    return out + ".";
}

std::string losses(const Stream& s) {
    const Counts& c = s.counts;
    if (c.lost + c.resent + c.responses_again == 0) return c.late == 0 ? "No packet was lost or sent again." : "";
    std::string out =
        fmt::format("{} {} lost; {} sent again", count_of(c.lost, "packet"), were(c.lost), grouped(c.resent + c.responses_again));
    if (c.lost_responses != 0) out += fmt::format("; {} of the lost were READ responses", grouped(c.lost_responses));
    if (c.needless != 0) out += fmt::format("; {} of the repeated had been acknowledged before", grouped(c.needless));
    return out + (s.lost_known ? ". Loss is known, because both ends are in the capture." : ".");
}

std::string naks(const Counts& c) {
    std::string out;
    const auto add = [&](uint64_t n, const char* one, const char* many) {
        if (n != 0) out += (out.empty() ? "" : ", ") + count_of(n, one, many);
    };
    add(c.sequence_naks, "sequence NAK", "sequence NAKs");
    add(c.rnr_naks, "RNR NAK (no receive was posted)", "RNR NAKs (no receive was posted)");
    add(c.error_naks, "NAK that ended the connection", "NAKs that end a connection");
    add(c.cnps, "congestion notification", "congestion notifications");
    add(c.marked, "packet marked Congestion Experienced", "packets marked Congestion Experienced");
    return out.empty() ? "" : "There " + std::string(out.starts_with("1 ") ? "was " : "were ") + out + ".";
}

std::string round_trips(const Stream& s) {
    if (s.rtt.empty()) return "";
    std::vector<int64_t> v;
    for (const RttSample& r : s.rtt) v.push_back(r.rtt);
    std::ranges::sort(v);
    return fmt::format("Round trip at the place of the capture: median {}, 99 % within {}, longest {}.",
                       duration(v[v.size() / 2]), duration(v[(v.size() - 1) * 99 / 100]), duration(v.back()));
}

void describe(const Stream& s, const std::string& from, const std::string& to, int64_t length, std::vector<std::string>& out) {
    if (s.empty()) return;
    const auto add = [&](std::string text) {
        if (!text.empty()) out.push_back(std::move(text));
    };
    if (s.counts.packets == 0) {
        add(fmt::format("Requests of {} are not in the capture, only answers of {}.", from, to));
    } else {
        add(fmt::format("{} to {}: {}", from, to, traffic(s, length)));
    }
    if (s.reliable || s.counts.lost != 0) add(losses(s));
    if (s.counts.late != 0)
        add(fmt::format("{} {} overtaken on the way.", count_of(s.counts.late, "packet"), were(s.counts.late)));
    if (s.longest_gap.length > 0)
        add(fmt::format("The longest time without progress was {}, at PSN {}.", duration(s.longest_gap.length),
                        wire_psn(s.longest_gap.psn)));
    add(naks(s.counts));
    add(round_trips(s));
    if (s.counts.not_captured != 0)
        add(fmt::format("{} not in the capture, but nobody reported {} missing: the capture itself has a gap.",
                        s.counts.not_captured == 1 ? "1 packet is" : grouped(s.counts.not_captured) + " packets are",
                        s.counts.not_captured == 1 ? "it" : "them"));
}

void wrap(const std::string& text, size_t columns, const std::string& indent, std::string& out) {
    size_t used = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        const size_t length = end - at;
        if (used != 0 && used + 1 + length > columns) {
            out += "\n" + indent;
            used = indent.size();
        } else if (used != 0) {
            out += ' ';
            ++used;
        }
        out.append(text, at, length);
        used += length;
        at = end + 1;
    }
    out += '\n';
}

}  // namespace

std::string grouped(uint64_t n) {
    std::string out = std::to_string(n);
    for (int64_t at = int64_t(out.size()) - 3; at > 0; at -= 3) out.insert(size_t(at), ",");
    return out;
}

std::string count_of(uint64_t n, const char* one, const char* many) {
    return grouped(n) + " " + (n == 1 ? one : many != nullptr ? many : std::string(one) + "s");
}

std::string duration(int64_t nanos) {
    static constexpr Unit kUnits[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    return nanos < 1000 ? fmt::format("{} ns", nanos) : scaled(double(nanos), kUnits, std::size(kUnits));
}

std::string byte_text(uint64_t bytes) {
    static constexpr Unit kUnits[] = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
    return bytes < 1000 ? count_of(bytes, "byte") : scaled(double(bytes), kUnits, std::size(kUnits));
}

std::string rate_text(double bits) {
    static constexpr Unit kUnits[] = {{1e9, "Gb/s"}, {1e6, "Mb/s"}, {1e3, "kb/s"}, {1, "b/s"}};
    return scaled(bits, kUnits, std::size(kUnits));
}

uint32_t wire_psn(int64_t psn) { return uint32_t(psn) & kMask24; }

std::vector<std::string> sentences(const Analysed& a) {
    std::vector<std::string> out;
    const Connection& c = a.connection;
    out.push_back(fmt::format("Connection {}, {}: {} and {}, {} in {}.", a.number, service_name(c.service), c.a, c.b,
                              count_of(c.frames, "frame"), duration(a.end - a.begin)));
    describe(a.streams[0], c.a, c.b, a.end - a.begin, out);
    describe(a.streams[1], c.b, c.a, a.end - a.begin, out);
    return out;
}

std::string summary_text(const Analysis& a, size_t columns) {
    columns = std::clamp<size_t>(columns, 20, 120);
    std::string out;
    const ReadCounts& n = a.capture.counts;
    wrap(fmt::format("{}: {} RoCEv2 {} of {} frames, {}.", a.capture.name, grouped(n.roce), n.roce == 1 ? "packet" : "packets",
                     grouped(n.frames), count_of(a.connections.size(), "connection")),
         columns, "  ", out);
    for (const std::string& notice : a.notices) wrap("Notice: " + notice, columns, "  ", out);
    for (const Analysed& d : a.drawn) {
        out += '\n';
        for (const std::string& sentence : sentences(d)) wrap(sentence, columns, "  ", out);
    }
    return out;
}

}  // namespace roci::plot
